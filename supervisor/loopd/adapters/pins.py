"""Pinned copies in the run's folder, guarded by digests that are kept in memory and in the ledger."""

import os
from collections.abc import Mapping
from pathlib import Path

from loopd.adapters.ticks import tells_changes
from loopd.domain.digests import sha256_hex
from loopd.domain.errors import StateError


class PinnedFiles:
    """Implements `ports.pins`: the content is held in memory, so a changed copy can always be put right again."""

    def __init__(self, folder: Path, digests: Mapping[str, str]) -> None:
        """Read what `pin` wrote. Raises `StateError` when a copy does not have its recorded digest."""
        self._folder = folder
        self._content: dict[str, bytes] = {}
        for name, digest in digests.items():
            content = _read(folder / name)
            if content is None or _digest(content) != digest:
                raise StateError(f"{folder / name} is not what this run was started with; it cannot be resumed")
            self._content[name] = content
        self._seen: dict[str, tuple[int, ...] | None] = {}  # what a file looked like when its content was right

    def changed(self) -> tuple[str, ...]:
        """See the port. A file with the times it had at an earlier look is not read again."""
        return tuple(name for name in self._content if not self._stands(name))

    def repair(self) -> None:
        """See the port."""
        for name in self.changed():
            _write(self._folder / name, self._content[name])

    def _stands(self, name: str) -> bool:
        path = self._folder / name
        looks = _looks(path)
        if looks is not None and self._seen.get(name) == looks:
            return True
        stands = _read(path) == self._content[name]
        self._seen[name] = looks if stands and looks == _looks(path) else None
        return stands


def _looks(path: Path) -> tuple[int, ...] | None:
    """Inode, size and times; None while they are too young to show another change (the clock of times ticks)."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    looks = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode)
    return looks if tells_changes(status.st_ctime_ns) else None


def _read(path: Path) -> bytes | None:
    try:
        return None if path.is_symlink() else path.read_bytes()
    except OSError:
        return None


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or path.is_dir():
        path.rename(path.with_name(f"{path.name}.displaced"))
    path.write_bytes(content)


def _digest(content: bytes) -> str:
    return sha256_hex(content)
