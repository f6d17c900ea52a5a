"""The append-only events of one run: the truth, of which everything else is a view."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from msgspec import Struct


class Event(Struct, frozen=True):
    """One recorded fact. `data` holds JSON values only."""

    seq: int  # 1, 2, 3, … without gaps
    at: str  # UTC, ISO 8601 with milliseconds
    kind: str  # "attempt.reserved"
    data: Mapping[str, Any]


class Ledger(Protocol):
    """One writer, held by a lock for as long as it is open; recorded before acted upon."""

    def append(self, kind: str, data: Mapping[str, Any], *, durable: bool = True) -> Event:
        """Write one event as one line; with `durable`, on the disk when this returns.

        Raises `StateError` when it cannot be written (disk full, read-only): the run must stop, never go on.
        """
        ...

    def events(self, after: int = 0) -> Iterator[Event]:
        """All events with a number above `after`, oldest first, each checked against the chain."""
        ...

    def save_snapshot(self, seq: int, state: Mapping[str, Any]) -> None:
        """Keep a summary of events 1..seq, so that opening need not replay them. A hint, never the truth."""
        ...

    def load_snapshot(self) -> tuple[int, Mapping[str, Any]] | None:
        """The newest summary that fits this ledger (its seq and chain hash are checked), or None."""
        ...
