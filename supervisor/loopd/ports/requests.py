"""What a person asks of a run from another terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Request:
    """One wish, kept until it is recorded."""

    id: str
    kind: str  # "stop" | "steer" | "extend"
    data: Mapping[str, Any]


class Requests(Protocol):
    """The inbox of a run's owner."""

    def pending(self) -> Sequence[Request]:
        """Oldest first; unreadable ones are set aside."""
        ...

    def done(self, request: Request) -> None:
        """Forget a request, after the ledger has it. Idempotent."""
        ...
