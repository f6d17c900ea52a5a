"""Reading the output files of an attempt while they grow, and capping them when it is over.

Splits on b"\\n" only and never decodes: text is made late, by `loopd.domain.text`. Memory is bounded by one
chunk and one line, whatever the file holds.
"""

import os
from pathlib import Path
from typing import BinaryIO, Self

from loopd.domain.text import Ends

CHUNK_BYTES = 256 * 1024
LINE_BYTES = 1024 * 1024
EXCERPT_BYTES = 128 * 1024  # read from each end of a file for an excerpt of a few kB


class Tail:
    """The complete lines of one file from byte 0 on; the file need not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._line = bytearray()
        self.offset = 0  # bytes consumed so far
        self.cut_lines = 0  # lines longer than LINE_BYTES
        self.cut_bytes = 0  # what they lost
        self._cutting = False
        self.size = 0  # when it was last asked whether it grew

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back; idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def read(self) -> list[bytes]:
        """New complete lines without their newline, one chunk's worth; empty: nothing more at the moment.

        Ask again until it is empty. A line longer than 1 MiB arrives cut.
        """
        while chunk := self._chunk():
            if lines := self._split(chunk):
                return lines
        return []

    def grew(self) -> bool:
        """Whether the file is longer than at the last call; nothing is read."""
        try:
            size = self._path.stat().st_size
        except FileNotFoundError:
            return False
        moved, self.size = size != self.size, size
        return moved

    def finish(self) -> bytes:
        """The last line when no newline ends it, else b"". Call when `read` is empty; closes the file."""
        self.close()
        line, self._line = bytes(self._line), bytearray()
        self._cutting = False
        return line

    def _chunk(self) -> bytes:
        if self._file is None:
            try:
                self._file = self._path.open("rb", buffering=0)
            except FileNotFoundError:
                return b""
        chunk = self._file.read(CHUNK_BYTES)
        self.offset += len(chunk)
        return chunk

    def _split(self, chunk: bytes) -> list[bytes]:
        *ended, rest = chunk.split(b"\n")
        lines = []
        for part in ended:
            self._extend(part)
            lines.append(bytes(self._line))
            self._line = bytearray()
            self._cutting = False
        self._extend(rest)
        return lines

    def _extend(self, part: bytes) -> None:
        room = LINE_BYTES - len(self._line)
        self._line += part[:room]
        if len(part) > room:
            self.cut_bytes += len(part) - room
            self.cut_lines += not self._cutting
            self._cutting = True


def exceeds(path: Path, cap_bytes: int) -> bool:
    """Whether a log is longer than its cap, so that its writer must be ended; a missing file is not."""
    try:
        return path.stat().st_size > cap_bytes
    except FileNotFoundError:
        return False


def keep_head_and_tail(path: Path, cap_bytes: int) -> int:
    """Shorten a finished log to its cap: first and last half, and a line that says what is missing.

    Returns the bytes left out, 0 when it fits; a second call changes nothing. Written aside,
    flushed to the disk, renamed.
    """
    size = path.stat().st_size
    if size <= cap_bytes:
        return 0
    room = max(cap_bytes - len(_cap_note(size, cap_bytes)), 0)
    head, tail = room // 2, room - room // 2
    aside = path.with_name(path.name + ".capping")
    with path.open("rb") as source, aside.open("wb") as target:
        os.fchmod(target.fileno(), 0o600)
        _copy(source, target, head)
        target.write(_cap_note(size - head - tail, cap_bytes))
        source.seek(size - tail)
        _copy(source, target, tail)
        target.flush()
        os.fsync(target.fileno())
    aside.replace(path)
    return size - head - tail


def _cap_note(left_out: int, cap_bytes: int) -> bytes:
    return b"\n[loopd: %d bytes left out here; the log was longer than its cap of %d bytes]\n" % (
        left_out,
        cap_bytes,
    )


def _copy(source: BinaryIO, target: BinaryIO, count: int) -> None:
    while count and (chunk := source.read(min(count, CHUNK_BYTES))):
        target.write(chunk)
        count -= len(chunk)


def read_ends(path: Path, each_bytes: int = EXCERPT_BYTES) -> Ends:
    """Both ends of an output file, for `excerpt`; empty when the file is missing."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return Ends(b"")
    with file:
        size = os.fstat(file.fileno()).st_size
        if size <= 2 * each_bytes:
            return Ends(file.read())
        head = file.read(each_bytes)
        file.seek(size - each_bytes)
        return Ends(head, file.read(each_bytes), size - 2 * each_bytes)
