"""In-memory stand-ins for ports; each passes the contract suite of its port."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio.lowlevel

from loopd.ports.ledger import Event


class FakeClock:
    """Two hands that move only when told: by `advance`, `jump` or a sleep, which returns at once."""

    def __init__(self, wall: datetime = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), elapsed_s: float = 1000.0) -> None:
        self.wall = wall
        self.elapsed_s = elapsed_s
        self.slept: list[float] = []

    def elapsed(self) -> float:
        return self.elapsed_s

    def now(self) -> datetime:
        return self.wall

    async def sleep(self, seconds: float) -> None:
        await anyio.lowlevel.checkpoint()
        self.slept.append(seconds)
        self.advance(max(seconds, 0.0))

    def advance(self, seconds: float) -> None:
        """Time passes."""
        self.elapsed_s += seconds
        self.wall += timedelta(seconds=seconds)

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock, forwards or back."""
        self.wall += timedelta(seconds=seconds)


class MemoryLedger:
    """The ledger port in a list; `fail_with` makes the next append raise."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.fail_with: Exception | None = None
        self._clock = clock or FakeClock()
        self._events: list[Event] = []
        self._snapshot: tuple[int, Mapping[str, Any]] | None = None

    def append(self, kind: str, data: Mapping[str, Any], *, durable: bool = True) -> Event:
        if self.fail_with:
            raise self.fail_with
        at = self._clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        event = Event(len(self._events) + 1, at, kind, _as_json(data))
        self._events.append(event)
        return event

    def events(self, after: int = 0) -> Iterator[Event]:
        yield from self._events[max(after, 0) :]

    def save_snapshot(self, seq: int, state: Mapping[str, Any]) -> None:
        if not 0 <= seq <= len(self._events):
            raise ValueError(f"there is no event {seq}")
        self._snapshot = (seq, _as_json(state))

    def load_snapshot(self) -> tuple[int, Mapping[str, Any]] | None:
        return self._snapshot


def _as_json(data: Mapping[str, Any]) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(json.dumps(data, allow_nan=False))
    return value
