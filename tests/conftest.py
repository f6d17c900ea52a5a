"""What every test may use."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from running import Project


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of loopd, for every test that awaits."""
    return "asyncio"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty project with a state folder beside it."""
    root = tmp_path / "project"
    root.mkdir()
    return Project(root, tmp_path / "state")


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    mount = tmp_path / "tiny"
    mount.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", mount], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    try:
        yield mount
    finally:
        subprocess.run(["umount", mount], check=True)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip by name what a missing program forbids; where skips are forbidden, fail instead."""
    for marker in item.iter_markers("needs"):
        missing = [name for name in marker.args if shutil.which(name) is None]
        if missing and os.environ.get("LOOPD_NO_SKIP"):
            pytest.fail(f"needs {', '.join(missing)}, and skips are not allowed here")
        if missing:
            pytest.skip(f"needs {', '.join(missing)}")
