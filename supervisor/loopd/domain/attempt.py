"""One agent process inside a run: what it was allowed, how it ended, what it cost."""

from enum import StrEnum
from typing import TypeVar

from msgspec import Struct

_Number = TypeVar("_Number", int, float)


class Outcome(StrEnum):
    """How an attempt ended. It says nothing about success."""

    FINISHED = "finished"
    NO_EFFECT = "no_effect"
    LIMITED = "limited"
    PROVIDER_ERROR = "provider_error"
    AUTH_ERROR = "auth_error"
    CRASHED = "crashed"
    IDLE = "idle"
    TIMED_OUT = "timed_out"
    OVER_BUDGET = "over_budget"
    INTERRUPTED = "interrupted"


class Usage(Struct, frozen=True):
    """What an attempt cost as far as its agent told; None is unknown, never zero."""

    cost_usd: float | None = None
    tokens: int | None = None
    partial: bool = False  # the attempt was ended before a final figure
    estimated: bool = False  # nothing was reported: the reserve stands

    def __add__(self, other: "Usage") -> "Usage":
        """Sum per figure; an unknown part leaves the known one and marks the sum partial."""
        unknown = (self.cost_usd is None) != (other.cost_usd is None)
        return Usage(
            cost_usd=_add(self.cost_usd, other.cost_usd),
            tokens=_add(self.tokens, other.tokens),
            partial=self.partial or other.partial or unknown,
            estimated=self.estimated or other.estimated,
        )


def _add(left: _Number | None, right: _Number | None) -> _Number | None:
    if left is None:
        return right
    return left if right is None else left + right


class Ended(Struct, frozen=True):
    """A process that was part of an attempt and had to be ended by loopd."""

    pid: int
    command: str  # safe, at most 200 characters


class Exit(Struct, frozen=True):
    """How the main process of a container left: an exit status or a signal, never both."""

    status: int | None = None
    signal: str | None = None  # "SIGKILL"
    duration_s: float = 0.0  # suspend-aware, measured by the container itself
    lost: bool = False  # the record is gone (machine restart): nothing is known

    def __str__(self) -> str:
        """`exit 3`, `SIGKILL`, or `lost`."""
        if self.lost:
            return "lost"
        return self.signal or f"exit {self.status}"
