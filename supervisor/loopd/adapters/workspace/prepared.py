"""Prepared trees: files, carried things, setup. Made once a key, and never touched by a verifier."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from loopd.adapters.workspace.git import Git, fields, text
from loopd.adapters.workspace.plan import WorkspacePlan
from loopd.adapters.workspace.record import load, save
from loopd.adapters.workspace.removing import remove_tree
from loopd.adapters.workspace.setup import Setup
from loopd.adapters.workspace.store import Store
from loopd.adapters.workspace.view import WRITABLE_IN_NODE_MODULES
from loopd.domain.digests import sha256_hex
from loopd.domain.errors import BlockedError, UsageError
from loopd.domain.scope import matches
from loopd.ports.workspace import TreeId


class Pristine(Struct, frozen=True):
    """A prepared tree as it was right after its setup."""

    key: str
    folder: Path  # holds `tree` and `index`
    setup_s: float = 0.0
    made: tuple[str, ...] = ()  # not ignored, and yet no part of any tree: kept when a tree is cleaned
    read_only: tuple[str, ...] = ()  # what verifiers must not rewrite
    cached: bool = False

    @property
    def tree(self) -> Path:
        """Its files."""
        return self.folder / "tree"

    @property
    def index(self) -> Path:
        """git's index for them."""
        return self.folder / "index"


class _Made(Struct, frozen=True):
    setup_s: float
    made: tuple[str, ...]
    read_only: tuple[str, ...]


class Workshop(Struct, frozen=True):
    """Where and with what trees are made."""

    plan: WorkspacePlan
    store: Store
    exclude: Path
    setup: Setup
    repository: Path | None  # a git directory to copy into each tree
    build_at: Path | None  # without bubblewrap every tree is made, and lies, at this one path

    async def key(self, tree: TreeId) -> str:
        """Which prepared tree suits: setup, the files it depends on, carried things, the path they see."""
        watched = {}
        if self.plan.setup and self.plan.setup_when:
            found = await self.store.entries(tree)
            watched = {path: e.blob for path, e in found.items() if matches(path, self.plan.setup_when)}
        facts = [self.plan.setup, sorted(watched.items()), self.plan.carry, str(self.setup.seen_at)]
        facts.append(sorted(self.plan.environment.items()))
        return sha256_hex(json.dumps(facts).encode())[:16]

    async def pristine(self, tree: TreeId) -> Pristine:
        """The prepared tree for `tree`, made when it is missing. Raises `SetupError` when the setup fails."""
        key = await self.key(tree)
        folder = self.plan.state / "prepared" / key
        done = load(folder / "done.json")
        if done is not None:
            return Pristine(key, folder, **done, cached=True)
        await self.setup.clear(folder / "setup")  # before the tree it works in goes
        await remove_tree(folder)
        folder.mkdir(parents=True)
        place = self.build_at or folder / "tree"
        index = folder / "index"
        Path(f"{place}.json").unlink(missing_ok=True)  # what was kept there is not what it was
        facts = await self._make(place, index, tree, folder / "setup")
        if place != folder / "tree":
            await copy_tree(self.store.git, place, folder / "tree")
        save(folder / "done.json", facts)
        return Pristine(key, folder, facts.setup_s, facts.made, facts.read_only)

    async def _make(self, place: Path, index: Path, tree: TreeId, logs: Path) -> _Made:
        await remove_tree(place)
        place.mkdir(parents=True)
        git = self.store.git.at(work_tree=place, index=index)
        await git("read-tree", "--reset", "-u", tree)
        if self.repository:
            await self._add_repository(place)
        await self._carry(place)
        took_s = await self.setup.run(place, logs)
        if self.plan.setup:
            await git("read-tree", "--reset", "-u", tree)
        made = fields(await git("ls-files", "-z", "-o", f"--exclude-from={self.exclude}"))
        read_only = tuple(sorted(_dependencies(place, self.plan.carry)))
        for path in read_only:
            _open_caches(place / path)
        return _Made(took_s, tuple(sorted(text(path) for path in made)), read_only)

    async def _add_repository(self, place: Path) -> None:
        await copy_tree(self.store.git, self.repository or place, place / ".git")
        (place / ".git" / "loopd-note").unlink()
        inside = self.store.git.at(git_dir=place / ".git", work_tree=place, index=place / ".git" / "index")
        await inside("read-tree", "HEAD")
        await inside("update-index", "-q", "--refresh", ok=(0, 1))

    async def _carry(self, place: Path) -> None:
        """Put the carried things in, with the owner's times: their caches compare them."""
        for path in self.plan.carry:
            source = self.plan.state / "carried" / path
            if os.path.lexists(source):
                (place / path).parent.mkdir(parents=True, exist_ok=True)
                await copy_tree(self.store.git, source, place / path)


async def take_carried(git: Git, plan: WorkspacePlan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Copy what the contract carries out of the owner's tree, once; (carried, notes). Idempotent."""
    carried, notes = [], []
    for path in plan.carry:
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise UsageError(f"environment.carry: {path!r} is not a path inside the workspace")
        target = plan.state / "carried" / path
        if not os.path.lexists(plan.root / path):
            notes.append(f"{path} is to be carried, but is not there")
            continue
        await remove_tree(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        await copy_tree(git, plan.root / path, target)
        carried.append(path)
    return tuple(carried), tuple(notes)


async def copy_tree(git: Git, source: Path, target: Path) -> None:
    """Copy with times, modes and links, sharing blocks where possible. Raises `BlockedError`."""
    inner = "/." if source.is_dir() and not source.is_symlink() else ""
    if inner:
        target.mkdir(exist_ok=True)
    argv = ["cp", "-a", "--reflink=auto", "-T", f"{source}{inner}", str(target)]
    env = {"PATH": git.search_path, "LC_ALL": "C"}
    done = await git.run_program(argv, cwd=git.cwd, env=env, stdin=None, timeout_s=git.timeout_s)
    if done.status:
        words = done.stderr.decode(errors="backslashreplace").strip()
        raise BlockedError(f"{source} cannot be copied to {target}: {words}")


def _dependencies(place: Path, carried: Iterable[str]) -> set[str]:
    """Virtual environments, node_modules, carried files: nobody writes there for a good reason."""
    found = {path for path in carried if (place / path).is_file() and not (place / path).is_symlink()}
    for here, names, _ in os.walk(place):
        inside = [name for name in names if _is_dependency(Path(here, name))]
        found |= {str(Path(here, name).relative_to(place)) for name in inside}
        names[:] = [name for name in names if name not in inside and name != ".git"]
    return found


def _is_dependency(folder: Path) -> bool:
    if folder.is_symlink():
        return False
    return folder.name == "node_modules" or (folder / "pyvenv.cfg").is_file()


def _open_caches(folder: Path) -> None:
    """Places for the caches of bundlers: a mount needs a folder to lie on."""
    if folder.name == "node_modules":
        for name in WRITABLE_IN_NODE_MODULES:
            (folder / name).mkdir(exist_ok=True)


def environment(plan: WorkspacePlan, home: Path) -> Mapping[str, str]:
    """Of setup commands; what the contract names wins."""
    return {"PATH": plan.search_path, "HOME": str(home), "LANG": "C.UTF-8", "CI": "true", **plan.environment}
