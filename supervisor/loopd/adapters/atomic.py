"""Files that are there whole or not at all."""

import os
from itertools import count
from pathlib import Path

_numbers = count()


def write_whole(path: Path, content: bytes, *, durable: bool = True, mode: int = 0o600) -> None:
    """Replace `path` by a rename, so that a reader sees the old or the new content and never a mixture.

    With `durable`, content and name are on the disk when this returns. Raises `OSError`; then the old file
    stands and no temporary file is left.
    """
    # Two writers of one name (a process and its threads included) must not share a temporary file.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{next(_numbers)}")
    try:
        _write_new(temporary, content, durable, mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names in `folder` to the disk: without, a synced file may be gone after a power loss."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_fully(fd: int, content: bytes) -> None:
    """One `write` for all of it; only a full disk or a limit makes a second one, which tells the error."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _write_new(path: Path, content: bytes, durable: bool, mode: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        write_fully(fd, content)
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)
