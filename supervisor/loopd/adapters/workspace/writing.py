# everything goes through descriptors of folders, which pathlib does not know
"""Single files put into, or taken out of, a folder whose links cannot be trusted.

Every step goes through a descriptor of its parent, so that a link in the way is replaced and never followed.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from loopd.adapters.workspace.git import raw

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FileContent(Struct, frozen=True):
    """A file as a tree knows it; for a link, `data` is its target."""

    data: bytes
    executable: bool = False
    link: bool = False


def found_at(root: Path, path: str) -> FileContent | None:
    """What stands at `path` itself; None for nothing, a folder, or a place only reachable through a link."""
    try:
        with _parent(root, path, make=None) as (folder, name):
            mode = os.lstat(name, dir_fd=folder).st_mode
            if stat.S_ISLNK(mode):
                return FileContent(os.readlink(name, dir_fd=folder), link=True)
            if not stat.S_ISREG(mode):
                return None
            if not mode & stat.S_IRUSR:
                os.chmod(name, stat.S_IMODE(mode) | stat.S_IRUSR, dir_fd=folder)
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            with open(file, "rb") as opened:
                return FileContent(opened.read(), bool(mode & stat.S_IXUSR))
    except (FileNotFoundError, NotADirectoryError):
        return None


def put(root: Path, path: str, content: FileContent, displaced: Path) -> None:
    """Make `path` hold this content by rename. What blocks the way is moved to the folder `displaced`.

    Folders that were made unwritable on the way are opened for their owner again.
    """
    with _parent(root, path, make=displaced) as (folder, name):
        _unlock(folder)
        mode = _mode_of(name, folder)
        if stat.S_ISDIR(mode):
            _displace(root / path, displaced)
        temporary = b".loopd-" + str(os.getpid()).encode()
        with _removed_on_error(temporary, folder):
            _write(temporary, folder, content, mode)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def take_out(root: Path, path: str, *, prune: bool = False) -> None:
    """Remove the file or link at `path`; with `prune`, the folders above that are empty then. Idempotent."""
    try:
        with _parent(root, path, make=None) as (folder, name):
            _unlock(folder)
            if not stat.S_ISDIR(_mode_of(name, folder)):
                os.unlink(name, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    if prune:
        _prune(root, path)


@contextmanager
def _parent(root: Path, path: str, *, make: Path | None) -> Iterator[tuple[int, bytes]]:
    """A descriptor of the folder of `path`, and its last name. `make`: create it, displacing to there."""
    *steps, name = raw(path).split(b"/")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    walked = root
    try:
        for step in steps:
            walked = walked / os.fsdecode(step)
            deeper = _enter(step, folder, walked, make)
            os.close(folder)
            folder = deeper
        yield folder, name
    finally:
        os.close(folder)


def _enter(step: bytes, folder: int, walked: Path, make: Path | None) -> int:
    if stat.S_ISDIR(_mode_of(step, folder)):
        return _opened(step, folder)
    if make is None:
        raise NotADirectoryError(walked)
    _unlock(folder)
    if _mode_of(step, folder):
        _displace(walked, make)
    os.mkdir(step, dir_fd=folder)
    return os.open(step, _FOLDER, dir_fd=folder)


def _opened(step: bytes, folder: int) -> int:
    try:
        return os.open(step, _FOLDER, dir_fd=folder)
    except PermissionError:
        os.chmod(step, stat.S_IRWXU, dir_fd=folder)
        return os.open(step, _FOLDER, dir_fd=folder)


def _unlock(folder: int) -> None:
    mode = stat.S_IMODE(os.fstat(folder).st_mode)
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        os.fchmod(folder, mode | stat.S_IRWXU)


def _mode_of(name: bytes, folder: int) -> int:
    """0 when there is nothing."""
    try:
        return os.lstat(name, dir_fd=folder).st_mode
    except FileNotFoundError:
        return 0


def _write(name: bytes, folder: int, content: FileContent, old_mode: int) -> None:
    if content.link:
        os.symlink(content.data, name, dir_fd=folder)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(name, flags, 0o777 if content.executable else 0o666, dir_fd=folder)
    with open(file, "wb") as opened:
        opened.write(content.data)
        if stat.S_ISREG(old_mode):  # the owner's 0600 stays; only the bit that trees know is set
            os.fchmod(file, _permissions(old_mode, content.executable))


def _permissions(old_mode: int, executable: bool) -> int:
    bits = stat.S_IMODE(old_mode) & 0o777 | stat.S_IRUSR | stat.S_IWUSR
    return bits | (bits & 0o444) >> 2 if executable else bits & ~0o111


@contextmanager
def _removed_on_error(name: bytes, folder: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        raise


def _displace(path: Path, displaced: Path) -> None:
    displaced.mkdir(parents=True, exist_ok=True)
    target = displaced / path.name
    number = 1
    while os.path.lexists(target):
        number += 1
        target = displaced / f"{path.name}.{number}"
    shutil.move(path, target)


def _prune(root: Path, path: str) -> None:
    for parent in Path(path).parents:
        try:
            (root / parent).rmdir() if parent.name else None
        except OSError:
            return
