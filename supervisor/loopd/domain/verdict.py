"""What a verifier said about a tree: the only evidence there is."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field


class Status(StrEnum):
    """Five answers. Only `PASS` counts as met; `ERROR` is never a pass and never a fail."""

    PASS = "pass"
    FAIL = "fail"
    ERROR = "error"
    TAMPER = "tamper"
    SKIP = "skip"


class Metric(Struct, frozen=True):
    """A finite number a verifier measured."""

    value: float
    unit: str = ""
    better: str = ""  # "higher" | "lower" | ""


class Finding(Struct, frozen=True):
    """One located remark of a verifier; a failing test is a finding whose `rule` is the test id."""

    message: str
    level: str = "error"  # "error" | "warning" | "note"
    rule: str = ""
    file: str = ""
    line: int = 0


class Verdict(Struct, frozen=True):
    """One verifier's answer on one tree."""

    criterion: str
    status: Status
    summary: str = ""  # one line for people, or at most 2 kB from a verifier that speaks the protocol
    reason: str = ""  # why it is an error, in words: "timed out after 600 s", "killed by SIGSEGV"
    exit: int | None = None  # None when it did not exit by itself
    duration_s: float = 0.0
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    tests: tuple[str, ...] = ()  # ids of all tests that ran, when a report tells
    skipped: tuple[str, ...] = ()  # ids of skipped tests
    flags: tuple[str, ...] = ()  # suspicious, not decisive
    output: str = ""  # folder with stdout.log, stderr.log and reports, relative to the run folder
    cached: bool = False
    evidence: str = ""  # private evidence for the owner, never fed back

    @property
    def failed_tests(self) -> tuple[str, ...]:
        """Ids of the findings at level error, sorted; the stable part of a failure."""
        return tuple(sorted({f.rule for f in self.findings if f.level == "error" and f.rule}))
