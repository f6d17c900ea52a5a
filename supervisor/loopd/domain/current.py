"""The attempt at work, and an assessed one as history keeps it."""

from collections.abc import Mapping

from msgspec import Struct, field

from loopd.domain.attempt import Exit, Outcome, Usage
from loopd.domain.budget import Reserve
from loopd.domain.decision import Rung
from loopd.domain.progress import Score
from loopd.domain.verdict import Verdict


class Current(Struct, frozen=True):
    """The attempt at work, or the last one."""

    number: int
    before: str  # tree of the workspace before it
    reserve: Reserve
    reserved_at: str  # UTC
    started_s: float  # active seconds of the run when it was reserved
    rung: Rung | None = None
    outcome: Outcome | None = None
    exit: Exit | None = None
    usage: Usage | None = None
    after: str = ""
    tree: str = ""  # composed: what is verified
    effect: bool = True
    changed: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()  # commands of background processes that were ended
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)  # on the kept tree
    fresh: Mapping[str, Verdict] = field(default_factory=dict)  # on the fresh tree
    tampered: str = ""
    reason: str = ""  # why loopd ended it, in words; empty when it left by itself
    notes: tuple[str, ...] = ()  # the operator's that its instruction used


class Summary(Struct, frozen=True):
    """An assessed attempt, as history keeps it."""

    number: int
    outcome: Outcome
    tree: str
    score: Score
    fingerprint: str
    effect: bool
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()
    rung: Rung | None = None
