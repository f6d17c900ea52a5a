# paths are bytes here, which pathlib does not take
"""Sockets, pipes and device nodes beside the files of a tree: git does not see them, so a person is told."""

import os
from collections.abc import Iterable

_Folder = tuple[int, frozenset[bytes]]


class Specials:
    """Looks through the folders that hold files of the tree; again only where an entry came or went."""

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._folders: dict[bytes, _Folder] = {b"": (0, frozenset())}

    def know(self, paths: Iterable[bytes]) -> None:
        """Remember the folders of these files."""
        for path in paths:
            self._folders.setdefault(path.rpartition(b"/")[0], (0, frozenset()))

    def found(self) -> set[bytes]:
        """Paths of the special files that are there now; one stat a folder when nothing changed."""
        everything: set[bytes] = set()
        for folder, (changed_ns, specials) in self._folders.items():
            try:
                now_ns = os.lstat(os.path.join(self._root, folder)).st_mtime_ns
            except OSError:
                continue
            if now_ns != changed_ns:
                specials = self._look(folder)
                self._folders[folder] = (now_ns, specials)
            everything |= specials
        return everything

    def _look(self, folder: bytes) -> frozenset[bytes]:
        try:
            entries = list(os.scandir(os.path.join(self._root, folder)))
        except OSError:
            return frozenset()
        odd = (entry for entry in entries if not _is_usual(entry))
        return frozenset(os.path.join(folder, entry.name) for entry in odd)


def _is_usual(entry: "os.DirEntry[bytes]") -> bool:
    return entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False) or entry.is_symlink()
