"""Repositories, workspaces and verifiers for tests of trees."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from loopd.adapters.workspace import WorkspacePlan, open_workspace
from loopd.ports.workspace import CheckTree, Workspace
from plain_containers import PlainContainers, bwrap_words

SEARCH_PATH = os.environ["PATH"]
USER = {
    "PATH": SEARCH_PATH,
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{role}_{key}": "someone" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")},
}
TEST = "from calc import add\ndef test_add():\n    assert add(2, 3) == 5\n"
WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = "def add(a, b):\n    return a + b\n"
PYTHON = {
    "calc.py": WRONG,
    "tests/test_add.py": TEST,
    "goals/g.yaml": "goal: g\n",
    ".gitignore": "__pycache__/\n",
}


def bubblewrap() -> bool:
    """Whether namespaces work here."""
    argv = ["bwrap", "--ro-bind", "/", "/", "--unshare-pid", "true"]
    return shutil.which("bwrap") is not None and subprocess.run(argv).returncode == 0


needs_bubblewrap = pytest.mark.skipif(not bubblewrap(), reason="bubblewrap does not work here")


def git(folder: Path, *words: str, **env: str) -> str:
    """git as a user or an agent runs it."""
    argv = ["git", "-c", "init.defaultBranch=main", *words]
    done = subprocess.run(argv, cwd=folder, env={**USER, **env}, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


def write(root: Path, files: dict[str, str | bytes]) -> None:
    """Write files below a folder."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def project(root: Path, files: dict[str, str | bytes] | None = None) -> Path:
    """A repository with one commit."""
    root.mkdir(parents=True)
    git(root, "init", "-q")
    write(root, files or {"calc.py": "def add(a, b):\n    return a - b\n", "tests/test_add.py": "assert 1\n"})
    git(root, "add", "-A", "-f")
    git(root, "commit", "-q", "-m", "base")
    return root


@dataclass
class Bench:
    """A workspace under test, with what it was made from."""

    plan: WorkspacePlan
    containers: PlainContainers = field(default_factory=PlainContainers)

    def open(self, **changes: Any) -> Workspace:
        """A new workspace object on the same state, as after a restart."""
        self.plan = replace(self.plan, **changes)
        return open_workspace(self.plan, self.containers)


def bench(root: Path, state: Path, **more: Any) -> Bench:
    """A plan for `root` with its state in `state`."""
    return Bench(WorkspacePlan(root, state, "k3f9", "retry", more.pop("search_path", SEARCH_PATH), **more))


def verify(tree: CheckTree, *argv: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run a verifier the way the engine does, only simpler."""
    view = bwrap_words(tree.sandbox, tree.seen_at) if tree.sandbox else []
    cwd = None if tree.sandbox else tree.path
    environment = {"PATH": SEARCH_PATH, "HOME": os.environ.get("HOME", "/root"), **env}
    return subprocess.run([*view, *argv], cwd=cwd, env=environment, capture_output=True, text=True)


def files_of(root: Path) -> dict[str, bytes]:
    """Every file below a folder by path, `.git` left out."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        if ".git" not in name.parts and (path.is_file() or path.is_symlink()):
            found[str(name)] = os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()
    return found


async def composed(workspace: Workspace, baseline: str) -> str:
    """The tree to judge: what stands in the workspace, put together with the baseline."""
    return (await workspace.compose(baseline, (await workspace.snapshot()).tree)).tree


def state_of_repository(root: Path) -> dict[str, bytes]:
    """Every file of the repository itself."""
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted((root / ".git").rglob("*")) if p.is_file()}


def hand_made_environment(folder: Path, python: str, leads_to: Path) -> None:
    """A virtual environment with an editable install, without the seconds that a real one takes."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    write(folder, {"pyvenv.cfg": f"home = {Path(python).parent}\n"})
    write(folder, {f"lib/{version}/site-packages/__editable__.calc.pth": f"{leads_to}\n"})
    (folder / "bin").mkdir()
    os.symlink(python, folder / "bin/python")
