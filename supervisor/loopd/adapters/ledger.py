"""The ledger of one run as a file: one writer, one line an event, on the disk before it is acted upon."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from msgspec import Struct

from loopd.adapters.atomic import sync_folder, write_fully
from loopd.adapters.chain import (
    START,
    Mark,
    compose,
    encode,
    header,
    last_mark,
    parse,
    read_ledger,
    scan,
    seal,
    verify_all,
)
from loopd.adapters.lock import hold_lock, release_lock
from loopd.adapters.snapshots import Summary, read_summary, write_summary
from loopd.adapters.state import RunFolder
from loopd.domain.errors import StateError
from loopd.ports.clock import Clock
from loopd.ports.ledger import Event

__all__ = ["FileLedger", "Repair", "open_ledger", "read_ledger", "read_since_snapshot", "verify_all"]

RESERVE_BYTES = 64 * 1024


class Repair(Struct, frozen=True):
    """An incomplete last line, never acknowledged, that was cut off and kept aside."""

    seq: int  # the number its event would have had
    offset: int  # where it began, in bytes
    size_bytes: int
    kept_in: Path


def open_ledger(folder: RunFolder, clock: Clock) -> "FileLedger":
    """Take the run's lock and open its ledger, a new one when there is none.

    A torn last line is cut off, kept in `ledger.torn` and told by `.repaired`. With a snapshot that fits,
    only the events after it are checked (`verify_all` checks all). Raises `BusyError` when another process
    holds the run and `StateError`, with nothing changed, when the ledger is damaged, shorter than its
    snapshot, or of an unknown version.
    """
    try:
        lock = hold_lock(folder.lock)
    except OSError as error:
        raise StateError(f"{folder.lock} cannot be locked: {error.strerror}") from error
    try:
        return _open(folder, clock, lock)
    except OSError as error:
        release_lock(lock)
        raise StateError(f"the ledger {folder.ledger} cannot be opened: {error.strerror}") from error
    except BaseException:
        release_lock(lock)
        raise


class FileLedger:
    """The ledger port on `ledger.ndjson`, for one thread. To be closed; a context manager."""

    def __init__(
        self, folder: RunFolder, clock: Clock, *, lock: int, fd: int, end: Mark, summary: Summary | None
    ) -> None:
        self.repaired: Repair | None = None
        self._folder = folder
        self._clock = clock
        self._lock = lock
        self._fd = fd
        self._end = end
        self._summary = summary
        self._failure = ""

    @property
    def last_seq(self) -> int:
        """The number of the newest event; 0 when there is none."""
        return self._end.seq

    def append(self, kind: str, data: Mapping[str, Any], *, durable: bool = True) -> Event:
        """See the port. After a failure every further append fails: what the disk holds is then in doubt."""
        if self._failure:
            raise StateError(self._failure)
        return self._write(kind, data, durable=durable)

    def write_last_record(self, kind: str, data: Mapping[str, Any]) -> Event:
        """Append the end of the run, durably, although an append failed: the reserve is given back first.

        Raises `StateError` when even that does not help.
        """
        with suppress(OSError):
            self._folder.reserve.unlink()
        return self._write(kind, data, durable=True)

    def events(self, after: int = 0) -> Iterator[Event]:
        """See the port; ends with the event that was the newest at the first step."""
        last = self._end.seq
        start = self._summary.mark if self._summary and self._summary.mark.seq <= after else START
        for line, mark in self._lines(start):
            if mark.seq > last:
                return
            if mark.seq > max(after, 0):
                yield parse(line)

    def save_snapshot(self, seq: int, state: Mapping[str, Any]) -> None:
        """See the port. Raises `StateError` when it cannot be written, `ValueError` for an unknown event."""
        summary = Summary(*self._around(seq), state)
        try:
            os.fdatasync(self._fd)  # a snapshot must never be ahead of its ledger
            write_summary(self._folder.snapshot, summary)
        except OSError as error:
            raise StateError(f"{self._folder.snapshot} cannot be written: {error.strerror}") from error
        self._summary = summary

    def load_snapshot(self) -> tuple[int, Mapping[str, Any]] | None:
        """See the port; checked when the ledger was opened."""
        return (self._summary.mark.seq, self._summary.state) if self._summary else None

    def close(self) -> None:
        """Give the run free. Idempotent."""
        if self._fd < 0:
            return
        os.close(self._fd)
        self._fd, self._failure = -1, f"the ledger {self._folder.ledger} is closed"
        with suppress(OSError):
            self._folder.reserve.unlink()
        release_lock(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, kind: str, data: Mapping[str, Any], *, durable: bool) -> Event:
        seq, at, text = self._end.seq + 1, _text(self._clock.now()), encode(dict(data))
        line, after = seal(compose(seq, at, kind, text), self._end)
        # What a reader will see (a tuple comes back as a list), and no alias of the caller's mapping.
        event = Event(seq, at, kind, json.loads(text))
        self._put(line, after, durable=durable)
        return event

    def _put(self, line: bytes, after: Mark, *, durable: bool) -> None:
        try:
            write_fully(self._fd, line)
            if durable:
                os.fdatasync(self._fd)
            self._end = after
        except BaseException as error:  # a signal's exception too: what is not counted must not stay in the file
            with suppress(OSError):
                os.ftruncate(self._fd, self._end.offset)
            if not isinstance(error, OSError):
                raise
            self._failure = (
                f"the ledger {self._folder.ledger} cannot be written: {error.strerror}\n"
                "mend the disk, then `loopd resume last`; nothing that was recorded is lost"
            )
            raise StateError(self._failure) from error

    def _around(self, seq: int) -> tuple[Mark, Mark]:
        """The marks before and after the line of event `seq`."""
        near = self._summary.before if self._summary and self._summary.mark.seq <= seq else START
        for _, mark in self._lines(near):
            if mark.seq == seq:
                return near, mark
            near = mark
        raise ValueError(f"there is no event {seq}; the newest is {self._end.seq}")

    def _lines(self, start: Mark) -> Iterator[tuple[bytes, Mark]]:
        try:
            with self._folder.ledger.open("rb") as file:
                yield from scan(file, self._folder.ledger, start)
        except OSError as error:
            raise StateError(f"the ledger {self._folder.ledger} cannot be read: {error.strerror}") from error


def read_since_snapshot(folder: RunFolder) -> tuple[tuple[int, Mapping[str, Any]] | None, Iterator[Event]]:
    """The newest snapshot that fits, and the events after it, without a lock: for views that need not see them all.

    As `read_ledger`: a last line that is half there is left out. Raises `StateError` for a damaged or missing ledger.
    """
    claimed = read_summary(folder.snapshot)
    try:
        with folder.ledger.open("rb") as file:
            summary = claimed if claimed and claimed.fits(file) else None
    except OSError as error:
        raise StateError(f"the ledger {folder.ledger} cannot be read: {error.strerror}") from error
    if summary is None:
        return None, read_ledger(folder.ledger)
    return (summary.mark.seq, summary.state), read_ledger(folder.ledger, summary.mark.seq, summary.mark)


def _open(folder: RunFolder, clock: Clock, lock: int) -> FileLedger:
    is_new = not folder.ledger.exists()
    fd = os.open(folder.ledger, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        summary, end = _check(folder)
        repaired = _cut_torn_tail(folder, fd, end)
        if end is START:
            line, end = seal(header(_text(clock.now())), START)
            write_fully(fd, line)
            os.fsync(fd)
        if is_new:
            sync_folder(folder.root)
        _keep_reserve(folder)
    except BaseException:
        os.close(fd)
        raise
    ledger = FileLedger(folder, clock, lock=lock, fd=fd, end=end, summary=summary)
    ledger.repaired = repaired
    return ledger


def _check(folder: RunFolder) -> tuple[Summary | None, Mark]:
    """The snapshot that fits, and the mark after the last good line."""
    claimed = read_summary(folder.snapshot)
    with folder.ledger.open("rb") as file:
        summary = claimed if claimed and claimed.fits(file) else None
        end = last_mark(file, folder.ledger, summary.mark if summary else START)
    if claimed and claimed.mark.seq > max(end.seq, 0):
        raise StateError(
            f"the ledger {folder.ledger} ends with event {max(end.seq, 0)}, but its snapshot was taken "
            f"at event {claimed.mark.seq}: recorded events are missing\n"
            f"restore the ledger from a copy; or, to go on without them, remove {folder.snapshot}"
        )
    return summary, end


def _cut_torn_tail(folder: RunFolder, fd: int, end: Mark) -> Repair | None:
    size = os.fstat(fd).st_size
    if size == end.offset:
        return None
    tail = os.pread(fd, size - end.offset, end.offset)
    kept = os.open(folder.torn, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        write_fully(kept, tail + b"\n")
        os.fsync(kept)
    finally:
        os.close(kept)
    os.ftruncate(fd, end.offset)
    os.fsync(fd)
    return Repair(seq=max(end.seq + 1, 0), offset=end.offset, size_bytes=len(tail), kept_in=folder.torn)


def _keep_reserve(folder: RunFolder) -> None:
    """Set space aside for the last record; a full disk has none, and the next append will say so."""
    fd = os.open(folder.reserve, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with suppress(OSError):
            os.posix_fallocate(fd, 0, RESERVE_BYTES)
    finally:
        os.close(fd)


def _text(now: datetime) -> str:
    return now.astimezone(UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
