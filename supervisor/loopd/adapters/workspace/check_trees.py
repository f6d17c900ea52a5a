"""The trees that verifiers run in: kept between attempts, reset before each use, rebuilt from pristine."""

import glob
import shutil
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from loopd.adapters.workspace.git import Git, GitError, fields, text
from loopd.adapters.workspace.prepared import Pristine, Workshop, copy_tree
from loopd.adapters.workspace.record import load, save
from loopd.adapters.workspace.removing import remove_tree
from loopd.adapters.workspace.store import Store
from loopd.adapters.workspace.writing import take_out
from loopd.ports.workspace import TreeId


class _Kept(Struct, frozen=True):
    key: str


class CheckTrees(Struct, frozen=True):
    """Trees by name below `folder`: "tree" for attempts, "baseline" for comparisons."""

    workshops: Mapping[str, Workshop]
    store: Store
    exclude: Path
    folder: Path
    last: dict[str, TreeId] = field(default_factory=dict)  # what was checked

    async def ready(self, name: str, tree: TreeId, *, fresh: bool = False) -> tuple[Path, Pristine]:
        """The named tree: the files of `tree`, what setup made, ignored files of earlier use."""
        pristine = await self.workshops[name].pristine(tree)
        place = self.folder / name
        kept = load(self.folder / f"{name}.json") if place.exists() else None
        if fresh or kept is None or kept["key"] != pristine.key:
            await self._renew(name, pristine)
        try:
            await self._reset(name, tree, pristine)
        except (GitError, OSError):  # what ran there left folders that cannot be changed
            await self._renew(name, pristine)
            await self._reset(name, tree, pristine)
        return place, pristine

    async def _renew(self, name: str, pristine: Pristine) -> None:
        place, index, marker = self.folder / name, self.index(name), self.folder / f"{name}.json"
        marker.unlink(missing_ok=True)
        await remove_tree(place)
        await copy_tree(self.store.git, pristine.tree, place)
        shutil.copy2(pristine.index, index)
        await self._refresh(place, index)
        own = place / ".git"
        if own.is_dir() and not own.is_symlink() and not (own / "index").is_symlink():
            await self._refresh(place, own / "index")
        save(marker, _Kept(pristine.key))

    async def _refresh(self, place: Path, index: Path) -> None:
        """Learn the copy's stat data, or the reset would write every file anew and nothing stay built.

        Always through loopd's own repository: the tree's own could have been given a filter to run.
        """
        if index.exists():
            git = self.store.git.at(work_tree=place, index=index)
            await git("update-index", "-q", "--refresh", ok=(0, 1))

    async def _reset(self, name: str, tree: TreeId, pristine: Pristine) -> None:
        """Clean, then reset: a folder put in the place of a tracked file must be emptied first."""
        place, index = self.folder / name, self.index(name)
        index.with_name(index.name + ".lock").unlink(missing_ok=True)
        git = self.store.git.at(work_tree=place, index=index)
        await self._clean(git, place, set(pristine.made))
        await git("read-tree", "--reset", "-u", tree)
        await self._drop_stale_bytecode(name, tree)

    async def _drop_stale_bytecode(self, name: str, tree: TreeId) -> None:
        """Remove bytecode of what changed since the last check.

        Python compares whole seconds and the size: an edit of the same size, checked within the second of the
        last check, would run the old code (tried).
        """
        before = self.last.get(name, tree)
        self.last[name] = tree
        for change in await self.store.differences(before, tree):
            path = self.folder / name / change.path
            for compiled in path.parent.glob(f"__pycache__/{glob.escape(path.stem)}.*.pyc"):
                compiled.unlink(missing_ok=True)

    async def _clean(self, git: Git, place: Path, made: set[str]) -> None:
        """Remove what is neither of a tree, nor ignored, nor made by the setup."""
        listed = fields(await git("ls-files", "-z", "-o", f"--exclude-from={self.exclude}"))
        for path in (text(found) for found in listed):
            if path.endswith("/"):
                await remove_tree(place / path.rstrip("/"))
            elif path not in made:
                take_out(place, path, prune=True)

    def index(self, name: str) -> Path:
        """git's index of the named tree; outside it, since the code under test runs inside."""
        return self.folder / f"{name}.index"
