"""The right to write one run, held by the kernel for as long as its holder lives."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from loopd.domain.errors import BusyError


def hold_lock(path: Path) -> int:
    """Take the lock at `path`; the descriptor that holds it. Closing it, or any death, frees the lock.

    Raises `BusyError` at once when another process holds it, naming its pid; `OSError` when the file cannot
    be opened. The descriptor is close-on-exec, so no program started later keeps the lock. A *fork* without
    exec would: fork before opening. The file is never removed, since a removed file could be locked twice.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(fd, 20, 0).decode(errors="replace").strip()
        os.close(fd)
        if not isinstance(error, BlockingIOError):
            raise
        raise BusyError(f"{path.parent} is held by process {holder or 'unknown'} ({path} is locked)") from error
    _name_holder(fd, str(os.getpid()))
    return fd


def release_lock(fd: int) -> None:
    """Free the lock; the pid goes first, so that nobody is told a holder that has left."""
    _name_holder(fd, "")
    os.close(fd)


def _name_holder(fd: int, name: str) -> None:
    """For messages only, so a full disk is no reason to refuse. Padded: overwriting needs no new space."""
    with suppress(OSError):
        os.pwrite(fd, f"{name:<20}\n".encode(), 0)
