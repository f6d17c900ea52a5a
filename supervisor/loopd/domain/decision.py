"""What follows an attempt. Pure: the same facts, the same decision."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct, field

from loopd.domain.budget import Allowance, Spent, exhausted_by
from loopd.domain.criteria import Assessment
from loopd.domain.run import State

STALLED_AFTER = 3  # attempts with an effect and without a better verdict, before the next rung
NO_EFFECT_BACK_OFF = 3  # attempts in a row that changed nothing, before a timed back-off and a rung
NO_EFFECT_STUCK = 5
RESTORED_AGAIN = 3  # attempts in a row that touched the same protected path


class Rung(StrEnum):
    """One way to go on when stuck."""

    REPHRASE = "rephrase"
    FRESH = "fresh"
    STOP = "stop"


class Policy(Struct, frozen=True):
    """The owner's settings that decisions depend on."""

    ladder: tuple[Rung, ...] = (Rung.REPHRASE, Rung.FRESH, Rung.STOP)
    tamper: int = 2  # tampering attempts that are tolerated
    keeps_context: bool = False  # False: every attempt starts fresh, so the rung `fresh` would change nothing
    back_off_s: float = 30.0
    back_off_cap_s: float = 600.0


class History(Struct, frozen=True):
    """What decisions need to know of the attempts so far, the one just assessed included."""

    no_effect: int = 0  # in a row
    stalled: int = 0  # attempts with an effect since the best verdict or the last rung
    tampers: int = 0
    rungs: tuple[Rung, ...] = ()  # used since the last better verdict
    restored: Mapping[str, int] = field(default_factory=dict)  # path -> attempts in a row that touched it


class Continue(Struct, frozen=True):
    """Another attempt, told what failed."""

    reason: str


class Wait(Struct, frozen=True):
    """Another attempt, not before `seconds` have passed; uses no attempt."""

    seconds: float
    reason: str


class Escalate(Struct, frozen=True):
    """Another attempt, told in another way, after a pause."""

    rung: Rung
    reason: str
    after_s: float = 0.0


class Met(Struct, frozen=True):
    """Every criterion holds; the proven tree is delivered."""

    reason: str


class Stop(Struct, frozen=True):
    """The run ends without its goal."""

    state: State
    reason: str


Decision: TypeAlias = Continue | Wait | Escalate | Met | Stop


def decide(history: History, assessment: Assessment, allowance: Allowance, spent: Spent, policy: Policy) -> Decision:
    """Choose what follows an attempt; a red check outranks every other voice."""
    if history.tampers > policy.tamper:
        return Stop(State.HALTED, f"{history.tampers} attempts tampered with the proof: {assessment.tampered}")
    if assessment.broken:
        return Stop(State.BLOCKED, assessment.broken)
    if assessment.met:
        return Met(_all_hold(len(assessment.criteria)))
    if limit := exhausted_by(allowance, spent):
        return Stop(State.EXHAUSTED, limit.text)
    if history.no_effect >= NO_EFFECT_BACK_OFF:
        return _no_effect(history, policy)
    again = _touched_again(history)
    if history.stalled >= STALLED_AFTER:
        stalled = f"{history.stalled} attempts brought no better verdict"
        return _climb(history, policy, f"{stalled}; {again}" if again else stalled)
    if again:
        return Escalate(Rung.REPHRASE, again)
    return Continue(_failing(assessment))


def next_rung(ladder: Sequence[Rung], used: Sequence[Rung], *, keeps_context: bool) -> Rung | None:
    """The first rung not yet used that would change something; None when the ladder is used up."""
    for rung in ladder:
        if rung is Rung.STOP:
            return None
        if rung not in used and (rung is not Rung.FRESH or keeps_context):
            return rung
    return None


def _touched_again(history: History) -> str:
    paths = [path for path, times in history.restored.items() if times == RESTORED_AGAIN]
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return f"{', '.join(paths[:5])}{more} changed {RESTORED_AGAIN} times in a row without effect" if paths else ""


def _no_effect(history: History, policy: Policy) -> Decision:
    reason = f"{history.no_effect} attempts in a row changed nothing"
    if history.no_effect >= NO_EFFECT_STUCK:
        return Stop(State.STUCK, reason)
    pause = min(policy.back_off_s * 2 ** (history.no_effect - NO_EFFECT_BACK_OFF), policy.back_off_cap_s)
    if history.no_effect > NO_EFFECT_BACK_OFF:
        return Wait(pause, reason)
    return _climb(history, policy, reason, after_s=pause)


def _climb(history: History, policy: Policy, reason: str, after_s: float = 0.0) -> Decision:
    rung = next_rung(policy.ladder, history.rungs, keeps_context=policy.keeps_context)
    if rung is not None:
        return Escalate(rung, reason, after_s)
    if after_s:  # nothing left to try but time: the cap on attempts without effect ends it
        return Wait(after_s, reason)
    return Stop(State.STUCK, f"{reason}, and the ladder is used up")


def _all_hold(criteria: int) -> str:
    return f"all {criteria} criteria hold" if criteria > 1 else "its criterion holds"


def _failing(assessment: Assessment) -> str:
    if assessment.tampered:
        return f"rejected for tampering: {assessment.tampered}"
    if not assessment.failing:
        return "all criteria hold in the kept tree, not in a fresh one"
    fail = [name for name in assessment.failing if name in assessment.verdicts]
    unreached = len(assessment.failing) - len(fail)
    more = f"; {unreached} not reached" if unreached else ""
    return f"{len(fail)} of {len(assessment.criteria)} criteria fail: {', '.join(fail)}{more}"
