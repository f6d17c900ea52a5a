"""The two trees: the agent's workspace, and the verification tree that it cannot reach."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from loopd.domain.errors import BlockedError
from loopd.ports.processes import Sandbox

TreeId = str  # hex digest of the content of a whole tree: paths, modes, bytes


class SetupError(BlockedError):
    """A setup command failed. In `prepare` the environment is broken; in `check_tree` the change broke it."""


class Snapshot(Struct, frozen=True):
    """The workspace at one moment, untracked files included."""

    tree: TreeId
    left_out: tuple[
        str, ...
    ] = ()  # paths that cannot be carried (`.GIT/x`, unreadable, sockets), each listed, never fatal


class Composed(Struct, frozen=True):
    """What of the agent's changes counts: the tree that is verified, cached by, referred to by "met", and lands.

    Paths are relative, POSIX separators, undecodable bytes as surrogates; sorted.
    """

    tree: TreeId
    changed: tuple[str, ...] = ()  # changed, added or deleted inside the scope: carried over
    restored: tuple[str, ...] = ()  # what `restore` puts back: baseline files that may not change, new protected ones
    unproven: tuple[str, ...] = ()  # files added outside the scope: they stay, and are no part of the proof
    refused: tuple[str, ...] = ()  # links that leave the tree, submodule moves; of baseline files they are restored too


class CheckTree(Struct, frozen=True):
    """A tree on which a verifier may run."""

    path: Path  # where it lies on the disk
    seen_at: Path  # where a verifier finds it: the workspace's own path under bubblewrap, else `path`
    sandbox: Sandbox | None  # None: bubblewrap is not used
    weak: bool = False  # True: this is the live workspace (`verification: workspace`)


class Prepared(Struct, frozen=True):
    """The outcome of preparing: the baseline, and how long the setup took."""

    baseline: TreeId
    setup_s: float
    setup_cached: bool
    files: int
    carried: tuple[str, ...] = ()
    notes: tuple[
        str, ...
    ] = ()  # said aloud before the first attempt: "3 uncommitted files are left out (--with-changes)"


class Relaxation(Struct, frozen=True):
    """One thing more for a verifier, tried by preflight to find out what it lacks."""

    line: str  # "environment: {carry: [.env]}"
    tree: CheckTree


class Workspace(Protocol):
    """Every tree of one run. Trees are immutable values; the methods that take a tree never change it."""

    @property
    def root(self) -> Path:
        """Where the agent works."""
        ...

    async def prepare(self) -> Prepared:
        """Take the baseline and make the prepared tree (carry, setup). Again after a crash: completes, never repeats.

        Raises `BlockedError` when a setup command fails or the machine lacks a means the contract needs, and when,
        without bubblewrap, a trusted program leads back into the workspace.
        """
        ...

    async def snapshot(self) -> Snapshot:
        """The workspace now, byte-exact; writes nothing into the workspace or the user's repository."""
        ...

    async def overlay(self, base: TreeId, before: TreeId, after: TreeId) -> TreeId:
        """`base` plus the changes that lead from `before` to `after`: how the owner's edits are taken over."""
        ...

    async def compose(self, base: TreeId, after: TreeId) -> Composed:
        """`base` plus the allowed changes of `after`. Pure: same trees, same answer."""
        ...

    async def restore(self, base: TreeId, after: TreeId, paths: Sequence[str], evidence: Path) -> None:
        """Put the content of `base` at `paths` in the workspace; what stood there goes to `evidence` first.

        A path that `base` does not have is taken away. `after` is the snapshot that was judged. Idempotent.
        """
        ...

    async def check_tree(self, tree: TreeId, *, fresh: bool = False) -> CheckTree:
        """The kept verification tree, reset to `tree` and cleaned; `fresh`: a new one from the pristine state.

        The fresh tree takes the place of the kept one. One check tree is in use at a time. Raises `SetupError` when
        `tree` changed a file of `setup_when` and the setup fails on it.
        """
        ...

    async def baseline_tree(self, base: TreeId) -> CheckTree:
        """A separate check tree that holds the baseline, for re-checks and for `{baseline}`."""
        ...

    async def disk_bytes(self) -> int:
        """What the trees of this run take on the disk now."""
        ...

    async def rebuild(self) -> None:
        """Throw the kept verification tree away; the next `check_tree` makes it anew from the pristine state."""
        ...

    async def release_locks(self) -> tuple[str, ...]:
        """Remove git lock files that a killed agent left and nobody has open; their paths."""
        ...

    async def relaxations(self, tree: CheckTree) -> Sequence[Relaxation]:
        """Ways to give a verifier more than the contract does, each with the one contract line that would mean it."""
        ...

    async def diff(self, old: TreeId, new: TreeId, *, limit: int = 0) -> str:
        """A unified diff as text with undecodable bytes escaped; at most `limit` bytes (0: whole).

        Works without `prepare` too, for views of a run that is at work elsewhere.
        """
        ...

    async def changed_paths(self, old: TreeId, new: TreeId) -> tuple[str, ...]:
        """Paths that differ, sorted."""
        ...

    async def write_tree(self, tree: TreeId, *, expected: TreeId | None) -> tuple[str, ...]:
        """Make the user's files equal to `tree` (ignored files untouched); returns the changed paths.

        With `expected`, raises `UsageError` naming the conflicts when a file to be written differs from `expected`.
        """
        ...

    async def commit(self, tree: TreeId, branch: str, message: str) -> str:
        """One commit of `tree` on the base commit, made by plumbing, on a new branch of the user's repository; its id.

        Checks out nothing. Idempotent for the same tree, branch and message. Raises `UsageError` when there is no
        repository or the branch exists with other content.
        """
        ...
