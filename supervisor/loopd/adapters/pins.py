"""Pinned copies in the run's folder, guarded by digests that are kept in memory and in the ledger."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

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

    def changed(self) -> tuple[str, ...]:
        """See the port."""
        return tuple(name for name, content in self._content.items() if _read(self._folder / name) != content)

    def repair(self) -> None:
        """See the port."""
        for name in self.changed():
            _write(self._folder / name, self._content[name])


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
    return hashlib.sha256(content).hexdigest()
