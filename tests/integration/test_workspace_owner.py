"""What differs when loopd is not run by root: permissions an agent takes away."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = """
import os, sys
from pathlib import Path
from loopd.adapters.workspace.writing import FileContent, found_at, put, take_out
root = Path(sys.argv[1])
(root / "a/b").mkdir(parents=True)
(root / "a/b/t").write_text("1")
(root / "a/b/t").chmod(0)
assert found_at(root, "a/b/t") == FileContent(b"1")
(root / "a/b/t").chmod(0)
(root / "a/b").chmod(0)
(root / "a").chmod(0o500)
put(root, "a/b/t", FileContent(b"2"), root / "displaced")
assert found_at(root, "a/b/t") == FileContent(b"2")
(root / "a").chmod(0o500)
put(root, "a/new/t", FileContent(b"3"), root / "displaced")
(root / "a/new").chmod(0o500)
take_out(root, "a/new/t", prune=True)
assert not (root / "a/new").exists()
print("done")
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user can reach; pytest's own are private."""
    with tempfile.TemporaryDirectory(prefix="loopd-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_folders_that_an_agent_locked_are_opened_again(open_folder: Path) -> None:
    """Run as nobody where the tests run as root: root is stopped by nothing."""
    shutil.copytree(Path(__file__).parents[2] / "supervisor/loopd", open_folder / "package/loopd")
    place = open_folder / "place"
    place.mkdir()
    place.chmod(0o777)
    python = "/usr/bin/python3" if os.geteuid() == 0 else sys.executable
    env = {"PYTHONPATH": f"{open_folder}/package:{sysconfig.get_path('purelib')}"}
    can = [python, "-c", "import tomllib, anyio"]
    if not Path(python).exists() or subprocess.run(can, env=env, stderr=subprocess.DEVNULL).returncode:
        pytest.skip(f"{python} cannot import anyio")
    who = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    argv = [python, "-B", "-c", SCRIPT, str(place)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, **who)
    assert done.stdout == "done\n", done.stderr
