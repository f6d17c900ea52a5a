# a path object for each of thousands of files is what a second look must not cost
"""A folder's content by walking it: no git, no program; the price of a second look is one stat a file."""

import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from loopd.adapters.ticks import tells_changes
from loopd.adapters.workspace.store import EXECUTABLE, LINK, Entry
from loopd.domain.digests import sha256_hex, sha256_of
from loopd.ports.workspace import TreeId

# Tools' own folders, never a project's files. Folders with a CACHEDIR.TAG or a .gitignore that says `*` count
# too.
_SKIPPED = frozenset(
    (
        ".git",
        ".hg",
        ".svn",
        ".jj",
        "__pycache__",
        "node_modules",
        ".venv",
        "venv",
        ".tox",
        ".nox",
        ".hypothesis",
    )
)

Files = dict[str, Entry]
_Seen = tuple[int, int, int, int, int]


class Walked(Struct, frozen=True):
    """A folder at one moment."""

    files: Files
    left_out: tuple[str, ...]


class Walker:
    """Remembers what it read by size, times and inode. `keep` is given the contents that `wants` asks for."""

    def __init__(self, root: Path, wants: Callable[[str, int], bool], keep: Callable[[str, bytes], None]) -> None:
        self._root = str(root)
        self._wants = wants
        self._keep = keep
        self._known: dict[str, tuple[_Seen, Entry]] = {}

    def walk(self) -> Walked:
        """Look at everything now. Never raises on content: what cannot be read is left out."""
        files: Files = {}
        left_out: list[str] = []
        known: dict[str, tuple[_Seen, Entry]] = {}
        for path, entry in _entries(self._root, ""):
            try:
                found = self._look(path, entry, known)
            except OSError:
                found = None
            if found is None:
                left_out.append(path)
            else:
                files[path] = found
        self._known = known
        return Walked(files, tuple(sorted(left_out)))

    def _look(self, path: str, entry: "os.DirEntry[str]", known: dict[str, tuple[_Seen, Entry]]) -> Entry | None:
        status = entry.stat(follow_symlinks=False)
        seen = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode)
        before = self._known.get(path)
        if before and before[0] == seen:
            known[path] = before
            return before[1]
        read_ns = time.time_ns()
        found = self._read(path, entry.path, status)
        if found and tells_changes(max(status.st_ctime_ns, status.st_mtime_ns), read_ns):
            known[path] = (seen, found)
        return found

    def _read(self, path: str, place: str, status: os.stat_result) -> Entry | None:
        if stat.S_ISLNK(status.st_mode):
            return Entry(LINK, self._kept(os.fsencode(os.readlink(place))))
        if not stat.S_ISREG(status.st_mode):
            return None
        kind = EXECUTABLE if status.st_mode & stat.S_IXUSR else "100644"
        with open(place, "rb", buffering=0) as file:
            if self._wants(path, status.st_size):
                return Entry(kind, self._kept(file.read()))
            return Entry(kind, sha256_of(file))

    def _kept(self, data: bytes) -> str:
        digest = sha256_hex(data)
        self._keep(digest, data)
        return digest


def tree_id(files: Files) -> TreeId:
    """The digest of paths, modes and contents."""
    lines = (f"{entry.mode} {entry.blob} {path}\0" for path, entry in sorted(files.items()))
    return sha256_hex("".join(lines).encode(errors="surrogateescape"))


def _entries(place: str, prefix: str) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
    try:
        found = list(os.scandir(place))
    except OSError:
        return
    if prefix and _is_cache(found):
        return
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in _SKIPPED:
                yield from _entries(entry.path, f"{prefix}{entry.name}/")
        elif entry.name != ".git" and not entry.name.endswith((".pyc", ".pyo")):
            yield prefix + entry.name, entry


def _is_cache(found: list["os.DirEntry[str]"]) -> bool:
    for entry in found:
        if entry.name == "CACHEDIR.TAG":
            return True
        if entry.name == ".gitignore" and entry.is_file(follow_symlinks=False):
            try:
                return Path(entry.path).read_bytes()[:4096].split(b"\n")[-2:] in ([b"*"], [b"*", b""])
            except OSError:
                return False
    return False
