"""The lines of a ledger: how one is sealed to the one before, and how a file of them is read and trusted.

A line is `BODY,"hash":"HASH"}` and a newline: one JSON object. HASH is the sha256, in hex, of the hash of the
line before (64 zeros for the first) followed by BODY, so no byte of any line can change unnoticed. The first
line, number 0, tells the format version.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct

from loopd.domain.digests import sha256_hex
from loopd.domain.errors import StateError
from loopd.ports.ledger import Event

FORMAT = 1
HEADER = "ledger"
_SEAL_BYTES = len(',"hash":""}\n') + 64


class Mark(Struct, frozen=True):
    """A place between two lines of a ledger."""

    seq: int  # of the line before it; -1: the beginning of the file
    offset: int  # bytes
    hash: str  # of the line before it


START = Mark(-1, 0, "0" * 64)
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)  # made once: json.dumps would make one a call


def encode(value: object) -> str:
    """JSON without blanks, in ASCII: undecodable bytes in paths are no UTF-8, but as escapes they are JSON.

    Raises `TypeError` or `ValueError` for what JSON cannot say (NaN included).
    """
    return _ENCODER.encode(value)


def compose(seq: int, at: str, kind: str, data: str) -> bytes:
    """The body of a line; `data` is JSON already."""
    return f'{{"seq":{seq},"at":"{at}","kind":{encode(kind)},"data":{data}'.encode()


def seal(body: bytes, mark: Mark) -> tuple[bytes, Mark]:
    """The whole line that puts `body` at `mark`, and the mark after it."""
    digest = sha256_hex(mark.hash.encode() + body)
    line = b'%s,"hash":"%s"}\n' % (body, digest.encode())
    return line, Mark(mark.seq + 1, mark.offset + len(line), digest)


def follow(line: bytes, mark: Mark) -> Mark | None:
    """The mark after `line`, or None when it is not the line that was written at `mark`."""
    sealed, after = seal(line[:-_SEAL_BYTES], mark)
    return after if sealed == line else None


def parse(line: bytes) -> Event:
    """The event of a line that has been checked."""
    fields = json.loads(line)
    return Event(seq=fields["seq"], at=fields["at"], kind=fields["kind"], data=fields["data"])


def scan(file: BinaryIO, path: Path, start: Mark = START) -> Iterator[tuple[bytes, Mark]]:
    """Every complete line from `start` on, each with the mark after it; a torn last line ends the scan.

    A torn line has no newline: it was never acknowledged. Everything else that does not fit raises
    `StateError`.
    """
    file.seek(start.offset)
    mark = start
    for line in file:
        if not line.endswith(b"\n"):
            if follow(line[:-1] + b"\n", mark):  # whole but for its newline: not torn, damaged
                raise damaged(path, mark)
            return
        if mark is START:
            check_format(line, path)
        after = follow(line, mark)
        if after is None:
            raise damaged(path, mark)
        mark = after
        yield line, mark


def read_ledger(path: Path, after: int = 0, start: Mark = START) -> Iterator[Event]:
    """All events above `after`, without a lock: for views of a ledger that may be written right now.

    A last line that is only half there is left out. What lies before `start`, a mark that fits, is not looked at.
    Raises `StateError` for a damaged or missing ledger.
    """
    try:
        with path.open("rb") as file:
            for line, mark in scan(file, path, start):
                if mark.seq > max(after, 0):
                    yield parse(line)
    except OSError as error:
        raise StateError(f"the ledger {path} cannot be read: {error.strerror}") from error


def verify_all(path: Path) -> int:
    """Check the chain from the first byte; the number of events. Raises `StateError` at the first fault."""
    try:
        with path.open("rb") as file:
            return max(last_mark(file, path).seq, 0)
    except OSError as error:
        raise StateError(f"the ledger {path} cannot be read: {error.strerror}") from error


def last_mark(file: BinaryIO, path: Path, start: Mark = START) -> Mark:
    """The mark after the last complete line, every line from `start` on checked."""
    mark = start
    for _, after in scan(file, path, start):
        mark = after
    return mark


def check_format(line: bytes, path: Path) -> None:
    """Raise `StateError` when the first line names a version this loopd does not know."""
    try:
        version = json.loads(line)["data"]["format"]
    except (ValueError, KeyError, TypeError):
        return  # not a first line at all: the chain says so, with its place
    if version != FORMAT:
        raise StateError(
            f"the ledger {path} says format {version} in line 1; this loopd reads format {FORMAT}\n"
            "use the loopd that wrote it, or a newer one"
        )


def damaged(path: Path, mark: Mark) -> StateError:
    """What to say about the line that begins at `mark`."""
    number = mark.seq + 2
    return StateError(
        f"the ledger {path} is damaged or was edited: line {number}, at byte {mark.offset}, "
        "is not what was written there\n"
        f"the {number - 1} lines before it are intact; nothing was changed or dropped\n"
        "restore the file from a copy, or leave this run as it is and begin anew with `loopd run --new`"
    )


def header(at: str) -> bytes:
    """The body of the first line of a new ledger."""
    return compose(0, at, HEADER, encode({"format": FORMAT}))


def canonical(fields: Mapping[str, Any]) -> bytes:
    """The same bytes for the same JSON value, to be hashed."""
    return json.dumps(fields, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
