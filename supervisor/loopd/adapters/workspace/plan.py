"""What a run wants of its trees."""

import shlex
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from loopd.domain.scope import Scope


class WorkspacePlan(Struct, frozen=True):
    """Everything decided before the first attempt. Paths are absolute and resolved."""

    root: Path  # the owner's tree
    state: Path  # the run's folder for trees; private to the run, outside `root`
    run: str
    goal: str
    search_path: str  # the trusted PATH, fixed at the start of the run
    isolation: str = "inplace"  # "inplace" | "clone"
    verification: str = "clean"  # "clean" | "workspace"
    with_changes: bool = False  # clone: take uncommitted files along
    scope: Scope = field(default_factory=Scope)
    carry: tuple[str, ...] = ()  # relative paths, copied once from the owner's tree
    setup: tuple[tuple[str, ...], ...] = ()
    setup_when: tuple[str, ...] = ()  # patterns of files; the setup runs again when these change
    setup_timeout_s: float = 3600.0  # of one command
    environment: Mapping[str, str] = field(default_factory=dict)  # of the setup; PATH and HOME are filled in
    mounts: tuple[Path, ...] = ()  # visible read-only at their own paths
    hide: tuple[Path, ...] = ()  # more of loopd's own state, invisible to verifiers
    network: bool = False  # for verifiers; the setup always has it
    bubblewrap: bool | None = None  # None: found out by trying

    def command_to_get_back(self, tree: str, folder: Path) -> str:
        """A shell command for a person that puts the files of a tree of this run into `folder`."""
        store = shlex.quote(str(self.state / "store.git"))
        return f"git --git-dir={store} archive {tree} | tar -x -C {shlex.quote(str(folder))}"

    @property
    def branch(self) -> str:
        """The branch of a clone, and of a delivery."""
        return f"loopd/{self.goal}-{self.run}"
