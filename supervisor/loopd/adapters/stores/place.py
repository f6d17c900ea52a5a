"""Where a SQLite database with a write-ahead log may lie: not on a network file system."""

import os
import re
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from loopd.domain.digests import sha256_hex
from loopd.domain.errors import StateError

# Their locks or shared memory do not reach from one machine to another, so a write-ahead log is lost or torn.
_NETWORK = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "fuse.sshfs",
        "glusterfs",
        "gfs2",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "smb3",
        "smbfs",
    ]
)
_NOT_THE_PLACE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)


class Place(Struct, frozen=True):
    """The file to use, and what to tell the person when it is not the expected one."""

    path: Path
    note: str = ""


def find_place(wanted: Path, spare: Path) -> Place:
    """`wanted` when a write-ahead log works in its folder, else a file of this user's below `spare`.

    Raises `StateError` when neither works. Asked once a database: one that exists has been through it.
    """
    if wanted.exists():
        return Place(wanted)
    reason = why_not(wanted.parent)
    if not reason:
        return Place(wanted)
    other = _private(spare) / f"{sha256_hex(os.fsencode(wanted))[:16]}.db"
    if again := why_not(other.parent):
        raise StateError(
            f"the index of runs can be kept neither in {wanted.parent} ({reason}) nor in {spare} ({again})\n"
            "set LOOPD_STATE to a folder on a local disk"
        )
    return Place(other, f"the index of runs is kept in {other}: {wanted.parent} {reason}")


def spare_folder() -> Path:
    """A local folder that survives a restart of the machine."""
    return Path("/var/tmp") / f"loopd-{os.getuid()}"


def why_not(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Why a write-ahead log cannot be trusted in `folder`, in words that follow its name; empty when it can."""
    kind = file_system(folder, mounts)
    if kind in _NETWORK:
        return f"is on a network file system ({kind})"
    return _try_out(folder)


def file_system(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The type of the file system that `folder` lies on; empty when it cannot be told."""
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    real, best, kind = folder.resolve(), Path("/"), ""
    for line in lines:
        left, _, right = line.partition(" - ")
        point = Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), left.split()[4]))
        if real.is_relative_to(point) and point.is_relative_to(best):
            best, kind = point, right.split()[0]
    return kind


def _try_out(folder: Path) -> str:
    """Write through one connection, read through another, as two processes would."""
    probe = folder / f".probe-{os.getpid()}.db"
    try:
        with closing(sqlite3.connect(probe, timeout=5)) as first, closing(sqlite3.connect(probe, timeout=5)) as second:
            mode = first.execute("pragma journal_mode = wal").fetchone()[0]
            first.execute("create table probe (value integer)")
            first.execute("insert into probe values (7)")
            first.commit()
            seen = second.execute("select value from probe").fetchone()[0]
        return "" if (mode, seen) == ("wal", 7) else f"does not support a write-ahead log (mode {mode})"
    except sqlite3.Error as error:
        if error.sqlite_errorcode & 0xFF in _NOT_THE_PLACE:  # moving elsewhere for a while would make two indexes
            raise StateError(f"the index of runs cannot be kept in {folder}: {error}") from error
        return f"does not support a write-ahead log ({error})"
    finally:
        for name in (probe, Path(f"{probe}-wal"), Path(f"{probe}-shm"), Path(f"{probe}-journal")):
            name.unlink(missing_ok=True)


def _private(folder: Path) -> Path:
    """The folder, made for this user alone; anybody may have put something else under a name in /var/tmp."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise StateError(f"{folder} cannot be created: {error.strerror}; set LOOPD_STATE to a local disk") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StateError(
            f"{folder} is not a private folder of this user; remove it, or set LOOPD_STATE to a local disk"
        )
    return folder
