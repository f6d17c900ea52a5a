"""An in-memory workspace and the verifiers that look at it, for tests of the engine."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
from msgspec.structs import replace

from loopd.domain.contract import Criterion
from loopd.domain.errors import BlockedError, UsageError
from loopd.domain.verdict import Status, Verdict
from loopd.ports.verifier import CheckContext
from loopd.ports.workspace import CheckTree, Composed, Prepared, Relaxation, SetupError, Snapshot, TreeId

if TYPE_CHECKING:
    from engine_fakes import World

Files = Mapping[str, str]


class FakeWorkspace:
    """Trees as contents, named by their hash. Scope: `protected` and `allowed` are globs."""

    def __init__(self, files: Files, protected: Sequence[str], allowed: Sequence[str] = ("*",)) -> None:
        self.files = dict(files)
        self.owners: dict[str, str] | None = None  # the owner's own tree, where the agent works in a clone
        self.root = Path("/workspace")
        self.protected, self.allowed = tuple(protected), tuple(allowed)
        self.trees: dict[TreeId, dict[str, str]] = {}
        self.kept: dict[str, str] = {}  # what checks left behind in the kept tree, beside its files
        self.evidence: dict[str, str] = {}
        self.locks: tuple[str, ...] = ()
        self.setup_fails = ""
        self.relaxed: tuple[str, ...] = ()  # contract lines that preflight may try
        self.branches: dict[str, tuple[TreeId, str]] = {}
        self.rebuilds = 0
        self.weak = False
        self.setup_breaks_on = ""  # a path with which setup fails
        self._baseline: TreeId = ""

    def edit(self, edits: Mapping[str, str | None]) -> None:
        """Somebody writes and deletes files."""
        for path, content in edits.items():
            if content is None:
                self.files.pop(path, None)
            else:
                self.files[path] = content

    def keep(self, files: Files) -> TreeId:
        """The name of a tree with this content."""
        tree = hashlib.sha256(json.dumps(sorted(files.items())).encode()).hexdigest()[:12]
        self.trees[tree] = dict(files)
        return tree

    async def prepare(self) -> Prepared:
        await anyio.lowlevel.checkpoint()
        self._baseline = self._baseline or self.keep(self.files)
        if self.setup_fails:
            raise BlockedError(f"setup failed: {self.setup_fails}", "mend it, then loopd resume last")
        return Prepared(self._baseline, 1.0, False, len(self.files))

    async def snapshot(self) -> Snapshot:
        await anyio.lowlevel.checkpoint()
        return Snapshot(self.keep(self.files))

    async def overlay(self, base: TreeId, before: TreeId, after: TreeId) -> TreeId:
        changed = await self.changed_paths(before, after)
        return self.keep(_with(self.trees[base], self.trees[after], changed))

    async def compose(self, base: TreeId, after: TreeId) -> Composed:
        old = self.trees[base]
        touched = await self.changed_paths(base, after)
        inside = tuple(path for path in touched if self._may_change(path))
        outside = [path for path in touched if path not in inside]
        back = tuple(path for path in outside if path in old or self._is_protected(path))
        return Composed(
            tree=self.keep(_with(old, self.trees[after], inside)),
            changed=inside,
            restored=back,
            unproven=tuple(path for path in outside if path not in back),
        )

    async def restore(self, base: TreeId, after: TreeId, paths: Sequence[str], evidence: Path) -> None:
        for path in paths:
            self.evidence.setdefault(path, self.trees[after].get(path, "(deleted)"))
        self.files = _with(self.files, self.trees[base], paths)

    async def check_tree(self, tree: TreeId, *, fresh: bool = False) -> CheckTree:
        await anyio.lowlevel.checkpoint()
        if self.setup_breaks_on in self.trees[tree]:
            raise SetupError("pip install fails", "mend it, then loopd resume last")
        if fresh:  # it takes the place of the kept one
            self.kept.clear()
        kind = "live" if self.weak else "fresh" if fresh else "kept"
        return CheckTree(Path("/checks", kind, tree), self.root, None, weak=self.weak)

    async def baseline_tree(self, base: TreeId) -> CheckTree:
        return CheckTree(Path("/checks/baseline", base), self.root, None)

    async def disk_bytes(self) -> int:
        return sum(len(content) for files in self.trees.values() for content in files.values())

    async def rebuild(self) -> None:
        self.kept.clear()
        self.rebuilds += 1

    async def release_locks(self) -> tuple[str, ...]:
        locks, self.locks = self.locks, ()
        return locks

    async def relaxations(self, tree: CheckTree) -> Sequence[Relaxation]:
        return [Relaxation(line, replace(tree, path=Path("/checks", line, tree.path.name))) for line in self.relaxed]

    async def diff(self, old: TreeId, new: TreeId, *, limit: int = 0) -> str:
        before, after = self.trees[old], self.trees[new]
        lines: list[str] = []
        for path in await self.changed_paths(old, new):
            lines += unified_diff(before.get(path, "").split("\n"), after.get(path, "").split("\n"), path, path)
        text = "\n".join(lines)
        return text[:limit] if limit else text

    async def changed_paths(self, old: TreeId, new: TreeId) -> tuple[str, ...]:
        before, after = self.trees[old], self.trees[new]
        return tuple(sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path)))

    async def write_tree(self, tree: TreeId, *, expected: TreeId | None) -> tuple[str, ...]:
        target = self.files if self.owners is None else self.owners
        changed = await self.changed_paths(self.keep(target), tree)
        if expected and (conflicts := [x for x in changed if target.get(x) != self.trees[expected].get(x)]):
            raise UsageError(f"changed meanwhile: {', '.join(conflicts)}")
        target.clear()
        target.update(self.trees[tree])
        return changed

    async def commit(self, tree: TreeId, branch: str, message: str) -> str:
        if self.branches.setdefault(branch, (tree, message)) != (tree, message):
            raise UsageError(f"branch {branch} exists with other content")
        return f"c0ffee{tree}"

    def _may_change(self, path: str) -> bool:
        return any(fnmatchcase(path, glob) for glob in self.allowed) and not self._is_protected(path)

    def _is_protected(self, path: str) -> bool:
        return any(fnmatchcase(path, glob) for glob in self.protected)


def _with(files: Files, source: Files, paths: Iterable[str]) -> dict[str, str]:
    """`files` with what `source` has, or lacks, at `paths`."""
    changed = dict(files)
    for path in paths:
        if path in source:
            changed[path] = source[path]
        else:
            changed.pop(path, None)
    return changed


@dataclass(frozen=True)
class Seen:
    """What a check is given: the files of its tree, and what earlier checks left there."""

    files: Files
    left: dict[str, str]
    kind: str  # "kept" | "fresh" | "baseline" | "live" | a relaxation's line
    attempt: int


Answer = Verdict | Status | bool
Check = Callable[[Seen], Answer]


def new(seen: Seen) -> bool:
    """The goal of most tests: a.py is new."""
    return seen.files.get("a.py") == "new"


def parts(count: int) -> dict[str, Check]:
    """Criteria p1, p2, …: the nth holds when the file part<n> is there."""
    return {f"p{n}": partial(_has, f"part{n}") for n in range(1, count + 1)}


def _has(path: str, seen: Seen) -> bool:
    return path in seen.files


class FakeVerifiers:
    """Checks as functions of a tree; each takes `lasts_s` of the world's time."""

    def __init__(self, world: "World", checks: Mapping[str, Check]) -> None:
        self._world, self.checks = world, dict(checks)
        self.ran: list[tuple[str, str, int]] = []  # (criterion, kind of tree, attempt)
        self.lasts_s = 1.0

    def locate(self, criterion: Criterion) -> str:
        return f"/usr/bin/{criterion.name}"

    async def check(self, criterion: Criterion, context: CheckContext) -> Verdict:
        workspace, path = self._world.workspace, context.tree.path
        kind = path.parent.name
        files = workspace.files if kind == "live" else workspace.trees[path.name]
        self.ran.append((criterion.name, kind, context.attempt))
        await self._world.clock.sleep(self.lasts_s)
        left = workspace.kept if kind in ("kept", "fresh") else {}
        answer = self.checks[criterion.name](Seen(dict(files), left, kind, context.attempt))
        if isinstance(answer, bool):
            answer = Status.PASS if answer else Status.FAIL
        if isinstance(answer, Status):
            answer = Verdict(criterion.name, answer, summary=f"{criterion.name} says {answer}")
        return replace(answer, criterion=criterion.name, duration_s=self.lasts_s)
