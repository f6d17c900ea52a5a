"""The strong form of the port: a private store, composed trees, checks where no agent can write."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from loopd.adapters.workspace.baseline import Ready, make_ready
from loopd.adapters.workspace.composing import rule
from loopd.adapters.workspace.deliver import Base, commit_tree
from loopd.adapters.workspace.git import RunProgram, find_git
from loopd.adapters.workspace.locks import release_stale_locks
from loopd.adapters.workspace.measure import size_on_disk
from loopd.adapters.workspace.plan import WorkspacePlan
from loopd.adapters.workspace.put_back import put_back, refuse_conflicts
from loopd.adapters.workspace.relaxing import relaxations
from loopd.adapters.workspace.store import LINK, Difference, Entry, Store, open_store
from loopd.adapters.workspace.writing import FileContent, found_at, put, take_out
from loopd.domain.errors import StateError, UsageError
from loopd.domain.runner_settings import is_judged_by_settings, settings_kept
from loopd.domain.scope import Change
from loopd.ports.processes import Containers
from loopd.ports.workspace import CheckTree, Composed, Prepared, Relaxation, Snapshot, TreeId


class CleanWorkspace:
    """`verification: clean`. Every method but `prepare`, `root` and `diff` needs `prepare` first, after a crash too."""

    def __init__(self, plan: WorkspacePlan, containers: Containers, run_program: RunProgram) -> None:
        self._plan = plan
        self._containers = containers
        self._run_program = run_program
        self._ready: Ready | None = None

    @property
    def root(self) -> Path:
        """Where the agent works; final once prepared."""
        if self._ready:
            return self._ready.root
        return self._plan.state / "clone" if self._plan.isolation == "clone" else self._plan.root

    async def prepare(self) -> Prepared:
        """See the port."""
        self._ready = await make_ready(self._plan, self._containers, self._run_program)
        pristine, record = self._ready.pristine, self._ready.record
        return Prepared(
            record.baseline,
            pristine.setup_s,
            pristine.cached,
            record.files,
            record.carried,
            self._ready.notes,
        )

    async def snapshot(self) -> Snapshot:
        """See the port."""
        return await self._open.snapshots.take()

    async def overlay(self, base: TreeId, before: TreeId, after: TreeId) -> TreeId:
        """See the port."""
        if before == after or base == before:
            return base if before == after else after
        changes = await self._store.differences(before, after)
        return await self._store.with_entries(base, {change.path: change.new for change in changes})

    async def compose(self, base: TreeId, after: TreeId) -> Composed:
        """See the port."""
        found = await self._store.differences(base, after)
        scope = replace(self._plan.scope, submodules=self._open.record.submodules)
        rulings = rule(await _facts(self._store, found), scope)
        old = {change.path: change.old for change in found}
        undone = {path: old[path] for path in rulings.undone}
        return rulings.composed(await self._store.with_entries(after, undone))

    async def restore(self, base: TreeId, after: TreeId, paths: Sequence[str], evidence: Path) -> None:
        """See the port."""
        del after  # what stands there is read from the disk: the owner may have edited it since
        entries = await self._store.entries(base)
        wanted = {path: entries.get(path) for path in paths}
        contents = await _contents(self._store, wanted)
        # deepest removals first, so that a file can take the place of a folder
        for path in sorted(wanted, key=lambda name: (wanted[name] is not None, -name.count("/"))):
            put_back(self.root, path, contents[path], evidence)

    async def check_tree(self, tree: TreeId, *, fresh: bool = False) -> CheckTree:
        """See the port."""
        return await self._open.check_tree("tree", tree, fresh=fresh)

    async def baseline_tree(self, base: TreeId) -> CheckTree:
        """See the port."""
        return await self._open.check_tree("baseline", base)

    async def disk_bytes(self) -> int:
        """See the port."""
        return await size_on_disk(self._plan.state)

    async def rebuild(self) -> None:
        """See the port."""
        (self._plan.state / "tree.json").unlink(missing_ok=True)

    async def release_locks(self) -> tuple[str, ...]:
        """See the port."""
        return release_stale_locks(self.root)

    async def relaxations(self, tree: CheckTree) -> Sequence[Relaxation]:
        """See the port."""
        return tuple(relaxations(tree, self._plan.root))

    async def diff(self, old: TreeId, new: TreeId, *, limit: int = 0) -> str:
        """See the port."""
        words = ("diff-tree", "-r", "-p", "-M", "--no-color", "--no-ext-diff", "--no-textconv")
        store = self._ready.store if self._ready else await self._store_to_look_at()
        output = await store.git(*words, old, new)
        return (output[:limit] if limit else output).decode(errors="backslashreplace")

    async def changed_paths(self, old: TreeId, new: TreeId) -> tuple[str, ...]:
        """See the port."""
        return tuple(change.path for change in await self._store.differences(old, new))

    async def write_tree(self, tree: TreeId, *, expected: TreeId | None) -> tuple[str, ...]:
        """See the port. In a clone it is the owner's tree that is written, and compared file by file."""
        inplace = self._plan.isolation == "inplace"
        base = expected or ((await self.snapshot()).tree if inplace else self._open.record.baseline)
        found = await self._store.differences(base, tree)
        old = await _contents(self._store, {change.path: change.old for change in found})
        new = await _contents(self._store, {change.path: change.new for change in found})
        owners = self.root if inplace else self._plan.root
        there = {path: found_at(owners, path) for path in new}
        if expected is not None:
            refuse_conflicts(sorted(path for path in new if there[path] not in (old[path], new[path])))
        changes = [path for path in new if there[path] != new[path]]
        for path in sorted(changes, key=lambda name: (new[name] is not None, name)):
            content = new[path]
            if content is None:
                take_out(owners, path, prune=True)
            else:
                put(owners, path, content, self._plan.state / "displaced")
        return tuple(sorted(changes))

    async def commit(self, tree: TreeId, branch: str, message: str) -> str:
        """See the port."""
        record = self._open.record
        if not record.top:
            raise UsageError(f"{self._plan.root} is no git repository: there is no branch to deliver to")
        kept = {path: Entry(mode, blob) for path, mode, blob in record.kept}
        top, git_dir = Path(record.top), Path(record.git_dir)
        base = Base(top, git_dir, record.prefix, record.head, kept, record.submodules)
        return await commit_tree(self._store.git, self._store, base, tree, branch, message)

    async def _store_to_look_at(self) -> Store:
        """The store of a run that another process may be at work on: a view must not prepare anything."""
        git = find_git(self._run_program, self._plan.search_path, self._plan.state)
        return await open_store(git, self._plan.state / "store.git", "sha1")

    @property
    def _open(self) -> Ready:
        if self._ready is None:
            raise StateError("the workspace was used before it was prepared")
        return self._ready

    @property
    def _store(self) -> Store:
        return self._open.store


async def _facts(store: Store, found: Sequence[Difference]) -> list[Change]:
    """What a ruling needs to know: targets of new links, contents of files that also hold runner settings."""
    links = [change.new.blob for change in found if change.new and change.new.mode == LINK]
    judged = [change for change in found if is_judged_by_settings(change.path)]
    sides = [side.blob for change in judged for side in (change.old, change.new) if side]
    return [_change(change, blobs) for blobs in [await store.blobs([*links, *sides])] for change in found]


def _change(found: Difference, blobs: Mapping[str, bytes]) -> Change:
    link = os.fsdecode(blobs[found.new.blob]) if found.new and found.new.mode == LINK else None
    if not is_judged_by_settings(found.path):
        return Change(found.path, found.kind, link)
    old, new = (blobs[side.blob] if side else None for side in (found.old, found.new))
    return Change(found.path, found.kind, link, settings_kept(found.path, old, new))


async def _contents(store: Store, entries: Mapping[str, Entry | None]) -> dict[str, FileContent | None]:
    blobs = await store.blobs(entry.blob for entry in entries.values() if entry)
    return {path: _content(entry, blobs) for path, entry in entries.items()}


def _content(entry: Entry | None, blobs: Mapping[str, bytes]) -> FileContent | None:
    if entry is None:
        return None
    return FileContent(blobs[entry.blob], entry.mode == "100755", entry.mode == LINK)
