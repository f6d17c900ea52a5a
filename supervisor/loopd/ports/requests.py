"""What an owner asks of a supervisor that is running, or of the next one that runs."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct


class RequestKind(StrEnum):
    """The things that can be asked."""

    STOP = "stop"
    STEER = "steer"
    EXTEND = "extend"


class Request(Struct, frozen=True):
    """One thing asked. Its number is never used again, so a recorded request is recognised when it is seen twice."""

    number: int
    kind: RequestKind
    data: Mapping[str, Any]


class Requests(Protocol):
    """A queue with many writers and one reader; survives both."""

    def put(self, kind: RequestKind, data: Mapping[str, Any]) -> Request:
        """Ask; on the disk when this returns. Raises `StateError` when it cannot be written."""
        ...

    def peek(self) -> tuple[Request, ...]:
        """All open requests, oldest first; they stay until `done`."""
        ...

    def done(self, request: Request) -> None:
        """Remove it, after it was recorded: a crash in between shows it again. Idempotent."""
        ...
