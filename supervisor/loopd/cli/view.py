"""Watching a run at work: plain lines, a live screen on a terminal, or the events themselves as NDJSON.

An observer never raises for want of a reader: a terminal that died or a closed pipe must not end a run.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from loopd.adapters.chain import START, Mark, last_mark, parse, scan
from loopd.adapters.state import RunFolder
from loopd.cli.telling import Teller
from loopd.domain.record import Record

EVENT_FORMAT = "loopd.event/1"


class View(Protocol):
    """Somebody who watches; `observe` is one of `Run.observers`. To be entered before the first event."""

    def observe(self, record: Record, kind: str, data: Mapping[str, Any]) -> None:
        """One event was recorded, and `record` follows from it. Never raises for output that cannot be written."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_view(
    folder: RunFolder, *, criteria: Sequence[str], contract: str, stream: TextIO, as_json: bool = False
) -> View:
    """The view that fits `stream`. `contract` is the path a person would type."""
    quiet = Quiet(stream)
    if as_json:
        return EventStream(folder, quiet)
    if stream.isatty() and os.environ.get("TERM") != "dumb":
        from loopd.cli.live import LiveScreen

        return LiveScreen(folder, criteria=criteria, contract=contract, stream=quiet)
    return PlainLines(contract=contract, stream=quiet)


class Quiet:
    """A text stream whose failure is no news: after the first one, everything goes nowhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.dead = False
        with suppress(AttributeError, OSError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[attr-defined]

    def write(self, text: str) -> int:
        """All of `text`, or silently nothing."""
        if not self.dead:
            try:
                self._stream.write(text)
                self._stream.flush()
            except (OSError, ValueError):
                self._give_up()
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _give_up(self) -> None:
        """What the stream still holds would fail again when the interpreter leaves, and spoil its exit status."""
        self.dead = True
        with suppress(OSError, ValueError, AttributeError):
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


class _Plain:
    """Nothing to set up."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class PlainLines(_Plain):
    """One line, with the time of day, for every event worth telling."""

    def __init__(self, *, contract: str, stream: Quiet, now: Callable[[], datetime] | None = None) -> None:
        self._now = now or _now
        self._teller = Teller(contract, self._now)
        self._stream = stream

    def observe(self, record: Record, kind: str, data: Mapping[str, Any]) -> None:
        """See `View`."""
        for line in self._teller.tell(record, kind, data):
            self._stream.write(f"{self._now().astimezone():%H:%M:%S}  {line.text}\n")


class EventStream(_Plain):
    """Every event as it lies in the ledger, one JSON object a line, from the moment this is made."""

    def __init__(self, folder: RunFolder, stream: Quiet) -> None:
        self._path = folder.ledger
        self._stream = stream
        self._mark = self._end()

    def observe(self, record: Record, kind: str, data: Mapping[str, Any]) -> None:
        """See `View`; events that other code recorded in the meantime come along in their order."""
        with self._path.open("rb") as file:
            for line, mark in scan(file, self._path, self._mark):
                self._mark = mark
                if mark.seq > 0:
                    event = parse(line)
                    fields = {"format": EVENT_FORMAT, "seq": event.seq, "at": event.at, "kind": event.kind}
                    self._stream.write(json.dumps({**fields, "data": event.data}, separators=(",", ":")) + "\n")

    def _end(self) -> Mark:
        try:
            with self._path.open("rb") as file:
                return last_mark(file, self._path)
        except FileNotFoundError:
            return START


def _now() -> datetime:
    return datetime.now(UTC)
