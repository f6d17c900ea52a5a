"""`verification: workspace`: checks in the live workspace; no git, no copy, said to be weak everywhere."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from loopd.adapters.workspace.composing import rule
from loopd.adapters.workspace.content_log import ContentLog
from loopd.adapters.workspace.furnished import Furnished
from loopd.adapters.workspace.git import RunProgram
from loopd.adapters.workspace.locks import release_stale_locks
from loopd.adapters.workspace.measure import size_on_disk
from loopd.adapters.workspace.plan import WorkspacePlan
from loopd.adapters.workspace.put_back import put_back, refuse_conflicts
from loopd.adapters.workspace.removing import remove_tree
from loopd.adapters.workspace.store import EXECUTABLE, LINK, Difference, Entry
from loopd.adapters.workspace.walk import Files, Walker, tree_id
from loopd.adapters.workspace.writing import FileContent, put, take_out
from loopd.domain.errors import UsageError
from loopd.domain.runner_settings import is_judged_by_settings, settings_kept
from loopd.domain.scope import Change, is_pinned
from loopd.ports.processes import Containers
from loopd.ports.workspace import CheckTree, Composed, Prepared, Relaxation, Snapshot, TreeId

# Contents kept for diffs and for going back; of protected files they are kept whatever their size.
_KEPT_BYTES = 256 << 10
_BASELINE, _TREE = "baseline", "tree:"


class WeakWorkspace:
    """The live workspace. Protected files are put back in place; nothing else is out of the agent's reach."""

    def __init__(self, plan: WorkspacePlan, containers: Containers, run_program: RunProgram) -> None:
        self._plan = plan
        self._containers = containers
        self._run_program = run_program
        self._trees: dict[TreeId, Files] = {}
        self._baseline: TreeId = ""
        self._log: ContentLog | None = None
        self._last: tuple[TreeId, Files] = ("", {})
        self._place = plan.state / "clone" if plan.isolation == "clone" else plan.root
        self._walker = self._new_walker()

    def _new_walker(self) -> Walker:
        return Walker(self._place, self._wants, lambda name, data: self._kept.add(name, data))

    @property
    def root(self) -> Path:
        """Where the agent works; final once prepared."""
        return self._place

    async def prepare(self) -> Prepared:
        """See the port."""
        self._log = self._log or ContentLog(self._plan.state / "contents.log")
        place = await self._workplace()
        if self._place != Path(place.root):
            self._place = Path(place.root)
            self._walker = self._new_walker()
        if _BASELINE not in self._log:
            taken = await self.snapshot()
            self._log.add(_BASELINE, taken.tree.encode())
            self._log.sync()
        self._baseline = self._log.get(_BASELINE).decode()
        files = self._files(self._baseline)
        return Prepared(self._baseline, place.setup_s, place.cached, len(files), place.carried, place.notes)

    async def _workplace(self) -> Furnished:
        """The owner's tree as it is, or a clone with carried things and setup."""
        plan = self._plan
        if plan.isolation == "clone":
            from loopd.adapters.workspace.furnish import (
                clone_workplace,
            )  # with all of git's trees, which inplace has not

            return await clone_workplace(plan, self._containers, self._run_program)
        skipped = [name for name, wanted in (("setup", plan.setup), ("carry", plan.carry)) if wanted]
        return Furnished(str(plan.root), notes=tuple(f"{name} is left to the owner" for name in skipped))

    async def snapshot(self) -> Snapshot:
        """See the port."""
        walked = self._walker.walk()
        last, files = self._last
        if not last or walked.files != files:
            last = self._known(walked.files)
            self._last = (last, walked.files)
        return Snapshot(last, walked.left_out)

    async def overlay(self, base: TreeId, before: TreeId, after: TreeId) -> TreeId:
        """See the port."""
        if before == after:
            return base
        files = dict(self._files(base))
        _apply(files, {change.path: change.new for change in self._differences(before, after)})
        return self._known(files)

    async def compose(self, base: TreeId, after: TreeId) -> Composed:
        """See the port."""
        found = self._differences(base, after)
        rulings = rule([self._change(change) for change in found], self._plan.scope)
        if not rulings.undone:
            return rulings.composed(after)
        old, files = self._files(base), dict(self._files(after))
        _apply(files, {path: old.get(path) for path in rulings.undone})
        return rulings.composed(self._known(files))

    async def restore(self, base: TreeId, after: TreeId, paths: Sequence[str], evidence: Path) -> None:
        """See the port."""
        del after
        files = self._files(base)
        for path in sorted(paths, key=lambda name: (name in files, -name.count("/"))):
            put_back(self.root, path, self._content(path, files.get(path)), evidence)

    async def check_tree(self, tree: TreeId, *, fresh: bool = False) -> CheckTree:
        """The live workspace, whatever is asked for."""
        del tree, fresh
        return CheckTree(self.root, self.root, None, weak=True)

    async def baseline_tree(self, base: TreeId) -> CheckTree:
        """See the port. Raises `UsageError` when a file was too large to be kept."""
        place = self._plan.state / "baseline"
        await remove_tree(place)
        place.mkdir()
        for path, entry in self._files(base).items():
            content = self._content(path, entry)
            if content:
                put(place, path, content, self._plan.state / "displaced")
        return CheckTree(place, place, None, weak=True)

    async def disk_bytes(self) -> int:
        """See the port."""
        return await size_on_disk(self._plan.state)

    async def rebuild(self) -> None:
        """Nothing is kept."""

    async def release_locks(self) -> tuple[str, ...]:
        """See the port."""
        return release_stale_locks(self.root)

    async def relaxations(self, tree: CheckTree) -> Sequence[Relaxation]:
        """None: nothing is withheld in the live workspace."""
        return ()

    async def diff(self, old: TreeId, new: TreeId, *, limit: int = 0) -> str:
        """See the port."""
        parts = (self._diff_of(change) for change in self._differences(old, new))
        whole = "".join(parts).encode(errors="backslashreplace")
        return (whole[:limit] if limit else whole).decode(errors="ignore")

    async def changed_paths(self, old: TreeId, new: TreeId) -> tuple[str, ...]:
        """See the port."""
        return tuple(change.path for change in self._differences(old, new))

    async def write_tree(self, tree: TreeId, *, expected: TreeId | None) -> tuple[str, ...]:
        """See the port."""
        now = (await self.snapshot()).tree
        changes = {change.path: change.new for change in self._differences(now, tree)}
        if expected is not None:
            differing = {change.path for change in self._differences(expected, now)}
            refuse_conflicts(sorted(differing & changes.keys()))
        contents = {path: self._content(path, entry) for path, entry in changes.items()}
        for path in sorted(changes, key=lambda name: (contents[name] is not None, name)):
            content = contents[path]
            if content is None:
                take_out(self.root, path, prune=True)
            else:
                put(self.root, path, content, self._plan.state / "displaced")
        return tuple(sorted(changes))

    async def commit(self, tree: TreeId, branch: str, message: str) -> str:
        """Refused: there is no git in this form."""
        del tree, branch, message
        raise UsageError("`deliver: branch` needs `verification: clean`: the weak form keeps no git objects")

    @property
    def _kept(self) -> ContentLog:
        if self._log is None:  # only looked at, never prepared: another process may be at work on it
            self._log = ContentLog(self._plan.state / "contents.log", read_only=True)
        return self._log

    def _wants(self, path: str, size: int) -> bool:
        """Small contents always, larger ones where a change would be put back."""
        return size <= _KEPT_BYTES or is_pinned(path, self._plan.scope) or is_judged_by_settings(path)

    def _known(self, files: Files) -> TreeId:
        """Remember a tree, on the disk as what differs from the baseline."""
        name = tree_id(files)
        if name not in self._trees:
            self._trees[name] = files
            base = self._files(self._baseline) if self._baseline else {}
            delta = {path: [e.mode, e.blob] for path, e in files.items() if base.get(path) != e}
            gone = [path for path in base if path not in files]
            self._kept.add(_TREE + name, json.dumps([self._baseline, delta, gone]).encode())
        return name

    def _files(self, tree: TreeId) -> Files:
        found = self._trees.get(tree)
        if found is None:
            base, delta, gone = json.loads(self._kept.get(_TREE + tree))
            found = dict(self._files(base)) if base else {}
            _apply(found, dict.fromkeys(gone))
            found.update({path: Entry(mode, blob) for path, (mode, blob) in delta.items()})
            self._trees[tree] = found
        return found

    def _differences(self, old: TreeId, new: TreeId) -> list[Difference]:
        if old == new:
            return []
        before, after = self._files(old), self._files(new)
        paths = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        return [Difference(path, before.get(path), after.get(path)) for path in paths]

    def _change(self, found: Difference) -> Change:
        link = os.fsdecode(self._bytes(found.new)) if found.new and found.new.mode == LINK else None
        if not is_judged_by_settings(found.path):
            return Change(found.path, found.kind, link)
        old, new = (self._bytes(side) if side else None for side in (found.old, found.new))
        return Change(found.path, found.kind, link, settings_kept(found.path, old, new))

    def _content(self, path: str, entry: Entry | None) -> FileContent | None:
        if entry is None:
            return None
        if entry.blob not in self._kept:
            raise UsageError(f"the earlier content of {path} was too large to be kept: use `verification: clean`")
        return FileContent(self._bytes(entry), entry.mode == EXECUTABLE, entry.mode == LINK)

    def _bytes(self, entry: Entry) -> bytes:
        return self._kept.get(entry.blob)

    def _diff_of(self, change: Difference) -> str:
        sides = [side for side in (change.old, change.new) if side]
        if any(side.blob not in self._kept for side in sides):
            return f"{change.path}: {change.kind}; too large to be kept\n"
        old, new = (self._bytes(side) if side else b"" for side in (change.old, change.new))
        if b"\0" in old or b"\0" in new:
            return f"{change.path}: {change.kind}; binary\n"
        import difflib

        before, after = (f"{side}/{change.path}" for side in "ab")
        lines = difflib.unified_diff(
            _lines(old),
            _lines(new),
            before if change.old else "/dev/null",
            after if change.new else "/dev/null",
        )
        return "".join(_ended(line) for line in lines)


def _apply(files: Files, changes: Mapping[str, Entry | None]) -> None:
    for path, entry in changes.items():
        if entry is None:
            files.pop(path, None)
        else:
            files[path] = entry


def _lines(data: bytes) -> list[str]:
    return data.decode(errors="backslashreplace").splitlines(keepends=True)


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
