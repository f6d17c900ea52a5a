"""Contents by name in one append-only file: creating a file a content cost fifty times as much (measured)."""

import os
from pathlib import Path

from loopd.domain.errors import StateError


class ContentLog:
    """Records `name length\\n data \\n`, appended with one write each; a torn last one is cut off when it is
    opened.

    Not synced: what the last seconds before a power loss wrote may be gone, and is then reported as unknown.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Open for the one writer, or only to look at what another process may be writing."""
        flags = os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT | os.O_APPEND
        if not read_only:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._file = os.open(path, flags | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise StateError(f"{path} cannot be opened: {problem.strerror}") from problem
        self._places: dict[str, tuple[int, int]] = {}
        self._end = self._read_places()
        if not read_only:
            os.truncate(self._file, self._end)

    def __contains__(self, name: str) -> bool:
        """Whether a content of this name is kept."""
        return name in self._places

    def add(self, name: str, data: bytes) -> None:
        """Keep `data`; a known name is kept as it is. Raises `StateError` when the disk does not take it."""
        if name in self._places:
            return
        head = f"{name} {len(data)}\n".encode()
        try:
            written = os.write(self._file, head + data + b"\n")
        except OSError as problem:
            raise StateError(f"contents cannot be kept: {problem}") from problem
        if written != len(head) + len(data) + 1:
            os.truncate(self._file, self._end)
            raise StateError("contents cannot be kept: the disk took only a part")
        self._places[name] = (self._end + len(head), len(data))
        self._end += written

    def get(self, name: str) -> bytes:
        """The content. Raises `StateError` for an unknown name."""
        if name not in self._places:
            raise StateError(f"the content {name[:20]} is not known")
        start, length = self._places[name]
        return os.pread(self._file, length, start)

    def sync(self) -> None:
        """On the disk when this returns."""
        os.fsync(self._file)

    def __del__(self) -> None:
        """Close the file with the object."""
        if (file := getattr(self, "_file", None)) is not None:
            os.close(file)

    def _read_places(self) -> int:
        size, at = os.fstat(self._file).st_size, 0
        while at < size:
            head, newline, _ = os.pread(self._file, 200, at).partition(b"\n")
            name, _, length = head.decode(errors="replace").partition(" ")
            start = at + len(head) + 1
            if not newline or not length.isdigit() or start + int(length) + 1 > size:
                return at
            self._places[name] = (start, int(length))
            at = start + int(length) + 1
        return at
