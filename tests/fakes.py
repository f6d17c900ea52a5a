"""In-memory stand-ins for ports; each passes the contract suite of its port."""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio.lowlevel
from msgspec.structs import replace

from loopd.adapters.liveness import is_alive
from loopd.adapters.stores.find import find_run
from loopd.ports.ledger import Event
from loopd.ports.requests import Request, RequestKind
from loopd.ports.store import RunEntry


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


class MemoryStore:
    """The store port in dictionaries; `alive` says which (pid, start time) pairs live."""

    def __init__(self, alive: Callable[[int, int], bool] = is_alive) -> None:
        self._alive = alive
        self._runs: dict[str, RunEntry] = {}
        self._holds: dict[Path, tuple[str, int, int]] = {}

    def put(self, entry: RunEntry) -> None:
        self._runs[entry.run] = entry

    def forget(self, run: str) -> None:
        self._runs.pop(run, None)

    def runs(self) -> tuple[RunEntry, ...]:
        by_id = sorted(self._runs.values(), key=lambda entry: entry.run)
        return tuple(sorted(by_id, key=lambda entry: (entry.changed_at, entry.started_at), reverse=True))

    def find(self, name: str) -> RunEntry:
        return find_run(self.runs(), name)

    def hold(self, workspace: Path, run: str, pid: int, pid_start: int) -> RunEntry | None:
        real = workspace.resolve()
        for held, holder in list(self._holds.items()):
            passed_on = held == real and holder[1:] == (pid, pid_start)
            ours = passed_on or holder == (run, pid, pid_start)
            if ours or not (held.is_relative_to(real) or real.is_relative_to(held)):
                continue
            if self._alive(*holder[1:]):
                known = self._runs.get(holder[0]) or RunEntry(
                    holder[0], holder[0].rpartition("-")[0], Path(), held, Path(), "", "", "", ""
                )
                return replace(known, pid=holder[1], pid_start=holder[2])
            del self._holds[held]
        self._holds[real] = (run, pid, pid_start)
        return None

    def release(self, workspace: Path, run: str) -> None:
        if self._holds.get(workspace.resolve(), ("",))[0] == run:
            del self._holds[workspace.resolve()]


class MemoryRequests:
    """The requests port in a list."""

    def __init__(self) -> None:
        self._open: list[Request] = []
        self._number = 0

    def put(self, kind: RequestKind, data: Mapping[str, Any]) -> Request:
        self._number += 1
        self._open.append(Request(self._number, kind, _as_json(data)))
        return self._open[-1]

    def peek(self) -> tuple[Request, ...]:
        return tuple(self._open)

    def done(self, request: Request) -> None:
        self._open = [one for one in self._open if one.number != request.number]
