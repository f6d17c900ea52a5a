# paths are bytes here, which pathlib does not take
"""Snapshots of a folder that others are working in: byte-exact, incremental, never fatal on content."""

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

import anyio

from loopd.adapters.workspace.git import Completed, GitError, fields, raw, text
from loopd.adapters.workspace.specials import Specials
from loopd.adapters.workspace.store import Entry, Store, index_info
from loopd.ports.workspace import Snapshot, TreeId

_GRAFT = b".loopd-graft"
_UPDATE = ("update-index", "-z", "--add", "--remove", "--replace", "--stdin")


class Snapshots:
    """Takes snapshots of one folder, one at a time, through an index file that belongs to this process alone.

    The index is a cache of stat data: an old one is taken over by copying, so that neither a lock file nor a
    git process left by a dead predecessor can be in the way.
    """

    def __init__(
        self,
        store: Store,
        root: Path,
        index: Path,
        exclude: Path,
        tracked: Iterable[str] = (),
        fallback: TreeId | None = None,
    ) -> None:
        self._store = store
        self._git = store.git.at(work_tree=root, index=index)
        self._root = raw(str(root))
        self._index = index
        self._exclude = exclude
        self._tracked = frozenset(raw(path) for path in tracked)  # count although ignored
        self._missing = set(self._tracked)  # of these, the ones that the index may not know
        self._doubts = index.with_name("doubts")  # on the disk, since an agent may outlive this process
        self._suspects = set(fields(self._doubts.read_bytes())) if self._doubts.exists() else set()
        self._tree: TreeId | None = None
        self._fallback = fallback
        self._specials = Specials(self._root)
        self._one_at_a_time = anyio.Lock()

    async def take(self, first: Iterable[str] = ()) -> Snapshot:
        """The folder now. `first`: paths that count although an ignore rule covers them."""
        async with self._one_at_a_time:
            os.makedirs(self._root, exist_ok=True)  # an agent may have removed the folder itself
            try:
                return await self._taken([raw(path) for path in first])
            except GitError:  # the index, or an object it relies on, did not survive a power loss
                if self._fallback is None:
                    raise
                await self.start_anew()
                return await self._taken([])

    async def start_anew(self) -> None:
        """Fill a lost or broken index; the next snapshot reads every file again."""
        self._index.unlink(missing_ok=True)
        self._tree = None
        self._missing = set(self._tracked)
        await self._git("read-tree", self._fallback or "--empty")

    async def _taken(self, first: list[bytes]) -> Snapshot:
        self._index.with_name(self._index.name + ".lock").unlink(missing_ok=True)
        await self._doubt_again()
        listed = [*await self._listed(), *first, *self._back_again()]
        if self._tree is None:
            self._specials.know(fields(await self._git("ls-files", "-z", "-c")))
        known, self._tree = self._tree, None  # stays so when this is cancelled half-way
        left_out = await self._update(listed)
        if known is None or len(listed) > len(left_out):
            self._specials.know(listed)
            known = (await self._git("write-tree")).decode().strip()
        self._tree = known
        left_out |= self._specials.found()
        return Snapshot(known, tuple(sorted({text(path) for path in left_out})))

    async def _listed(self) -> list[bytes]:
        """Paths that are new or whose stat data differs, with nested repositories opened."""
        grafted: set[bytes] = set()
        while True:
            new, changed = await self._listing()
            nested = {path for path in new if path.endswith(b"/")} - grafted
            if not nested:
                return [
                    *_without_self_ignored(self._root, [path for path in new if path[-1:] != b"/"]),
                    *changed,
                ]
            await self._graft(nested)
            grafted |= nested

    async def _listing(self) -> tuple[list[bytes], list[bytes]]:
        output = await self._git("ls-files", "-z", "-t", "-o", "-m", f"--exclude-from={self._exclude}")
        lines = dict.fromkeys(fields(output))
        new = [line[2:] for line in lines if line.startswith(b"? ")]
        return new, [line[2:] for line in lines if not line.startswith(b"? ")]

    async def _graft(self, nested: set[bytes]) -> None:
        """Make git walk into these repositories: it does so when it tracks a file below them.

        The file does not exist, so the next listing reports it as gone and the update takes it out again.
        """
        entry = Entry("100644", "1" * len(self._store.zero))
        paths: dict[str, Entry | None] = {text(folder + _GRAFT): entry for folder in nested}
        await self._git("update-index", "-z", "--index-info", stdin=index_info(paths, self._store.zero))

    def _back_again(self) -> list[bytes]:
        back = [path for path in self._missing if os.path.lexists(os.path.join(self._root, path))]
        self._missing.difference_update(back)
        return back

    async def _update(self, paths: list[bytes]) -> set[bytes]:
        """Bring these paths into the index; returns those that cannot be carried."""
        left_out = {path for path in paths if not _carriable(self._root, path)}
        wanted = [path for path in dict.fromkeys(paths) if path not in left_out]
        if not wanted:
            return left_out
        self._suspects |= set(wanted)  # until it is known better; cancelled half-way, all are looked at again
        left_out |= await self._fed(wanted)
        self._missing |= {path for path in self._tracked.intersection(wanted) if self._gone(path)}
        self._remember(self._undatable(wanted))
        return left_out

    async def _fed(self, paths: list[bytes]) -> set[bytes]:
        """Feed git; when it dies on one of them, halve until that one is alone."""
        done = await self._git.run(*_UPDATE, stdin=b"".join(path + b"\0" for path in paths))
        if done.status == 0:
            return await self._ignored(paths) if b"Ignoring path" in done.stderr else set()
        if len(paths) == 1:
            _raise_unless_about_content(done)
            return set(paths)
        half = len(paths) // 2
        return await self._fed(paths[:half]) | await self._fed(paths[half:])

    async def _ignored(self, paths: list[bytes]) -> set[bytes]:
        """Of these, the names that git did not take."""
        new, _ = await self._listing()
        return set(new) & set(paths)

    async def _doubt_again(self) -> None:
        """Forget the stat data of files that could have been changed unseen; see `_undatable`."""
        if self._suspects:
            forget = b"".join(path + b"\0" for path in self._suspects)
            await self._git("update-index", "-z", "--force-remove", "--stdin", stdin=forget)
            self._missing |= self._suspects & self._tracked
            self._remember(set())
            self._tree = None

    def _remember(self, suspects: set[bytes]) -> None:
        self._suspects = suspects
        if suspects:
            self._doubts.write_bytes(b"".join(path + b"\0" for path in suspects))
        else:
            self._doubts.unlink(missing_ok=True)

    def _undatable(self, paths: list[bytes]) -> set[bytes]:
        """Files that a later change within this second, with the old mtime put back, would leave looking the
        same.

        git compares whole seconds and doubts only what has an mtime as young as its index. Tried: same size,
        `touch -d` to the old time within the second of the snapshot, and the change went unseen.
        """
        written = int(self._index.stat().st_mtime)
        return {path for path in paths if _changed_but_dated_back(os.path.join(self._root, path), written)}

    def _gone(self, path: bytes) -> bool:
        return not os.path.lexists(os.path.join(self._root, path))


def own_index(folder: Path, name: str) -> Path:
    """An index file for this process, taken over from the predecessor when there is one."""
    folder.mkdir(parents=True, exist_ok=True)
    mine = folder / f"{name}-{os.getpid()}"
    others = [path for path in folder.glob(f"{name}-*") if path != mine and path.suffix != ".lock"]
    if not mine.exists() and others:
        # copy2, because git compares the time of the index with those of the files
        shutil.copy2(max(others, key=lambda path: path.stat().st_mtime_ns), mine)
    for path in (*others, *folder.glob(f"{name}-*.lock")):
        path.unlink(missing_ok=True)
    return mine


def _carriable(root: bytes, path: bytes) -> bool:
    if any(_is_git_name(part) for part in path.split(b"/")):
        return False
    try:
        mode = os.lstat(os.path.join(root, path)).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return True  # a deletion
    except OSError:
        return False
    if stat.S_ISLNK(mode):
        return path.rpartition(b"/")[2].lower() != b".gitmodules"
    return stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and os.access(os.path.join(root, path), os.R_OK))


def _is_git_name(part: bytes) -> bool:
    return part.lower().rstrip(b" .").partition(b":")[0] in (b".git", b"git~1")


def _changed_but_dated_back(path: bytes, written_s: int) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return int(found.st_ctime) >= written_s > int(found.st_mtime)


def _without_self_ignored(root: bytes, new: list[bytes]) -> list[bytes]:
    """Leave out new folders that ignore themselves (`.venv`, `.pytest_cache`, `.mypy_cache` hold a
    .gitignore `*`).

    The ignore rules are those of the baseline; carrying less than they say is harmless, carrying more is not.
    """
    rules = [path for path in new if path.endswith(b"/.gitignore") and _ignores_all(os.path.join(root, path))]
    folders = tuple(path.removesuffix(b".gitignore") for path in rules)
    return [path for path in new if not path.startswith(folders)] if folders else new


def _ignores_all(path: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            lines = file.read(4096).split(b"\n")
    except OSError:
        return False
    return [line.strip() for line in lines if line.strip() and not line.startswith(b"#")] == [b"*"]


def _raise_unless_about_content(done: Completed) -> None:
    words = done.stderr.decode(errors="backslashreplace")
    if not any(sign in words for sign in ("Unable to process path", "Unable to process file", "Invalid path")):
        raise GitError(f"git update-index failed: {words.strip()}")
