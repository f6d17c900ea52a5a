"""What is installed: a wheel built from the sdist, outside the checkout, with one top-level name and all it needs."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from running import Project

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist of this checkout, and the wheel that is built from nothing but it."""
    folder = tmp_path_factory.mktemp("built")
    _must([sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(folder)], ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    (folder / "unpacked").mkdir()
    _must(["tar", "--no-same-owner", "-xf", str(sdist), "-C", str(folder / "unpacked")], ROOT)
    (source,) = (folder / "unpacked").iterdir()
    _must([sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)], source)
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the wheel's content and the command. The dependencies are those of this interpreter."""
    target = tmp_path_factory.mktemp("installed")
    words = ("install", "--quiet", "--no-deps", "--no-index", "--no-compile", "--target", str(target), str(built[1]))
    _must([sys.executable, "-m", "pip", "--disable-pip-version-check", *words], target)
    return target


def test_the_sdist_holds_what_the_wheel_is_made_of(built: tuple[Path, Path]) -> None:
    """The package, goals, verifiers and the texts; no tests, no state, nothing of this machine."""
    with tarfile.open(built[0]) as archive:
        tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    texts = {"README.md", "LICENSE", "CHANGELOG.md"}
    assert tops == {"supervisor", "goals", "verifiers", "pyproject.toml", "PKG-INFO", ".gitignore"} | texts


def test_the_only_top_level_name_of_the_wheel_is_loopd(built: tuple[Path, Path]) -> None:
    """`supervisor`, `goals` and `verifiers` belong to other distributions."""
    with zipfile.ZipFile(built[1]) as wheel:
        names = wheel.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"loopd"}
    assert [name for name in names if "__pycache__" in name or name.endswith(".pyc")] == []


def test_the_wheel_holds_goals_schema_help_and_templates(installed: Path) -> None:
    """Every file beside the code that the code reads."""
    package = installed / "loopd"
    for folder, source in (("bundled/goals", "goals"), ("templates", "supervisor/loopd/templates")):
        assert _files(package / folder) == _files(ROOT / source)
    assert _files(package / "cli" / "help") == _files(ROOT / "supervisor/loopd/cli/help")
    assert (package / "bundled/verifiers/README.md").is_file()


@pytest.mark.needs("git")
def test_a_bundled_goal_is_met_by_the_installed_loopd(installed: Path, tmp_path: Path) -> None:
    """Its command, its goal, and its own copy of every module: nothing comes from the checkout."""
    project = Project(tmp_path / "project", tmp_path / "state")
    goals = installed / "loopd" / "bundled" / "goals"
    shutil.copytree(goals / "quickstart", project.root)
    for path in goals.glob("quickstart*.yaml"):
        shutil.copy(path, project.root)
    project.commit()
    env = {**project.environment(), "PYTHONPATH": f"{installed}:{sysconfig.get_paths()['purelib']}"}
    where = "import loopd, loopd.cli.run as run; print(loopd.__file__, run.__file__)"
    assert _must([sys.executable, "-c", where], project.root, env).split() == [
        str(installed / "loopd" / "__init__.py"),
        str(installed / "loopd" / "cli" / "run.py"),
    ]
    loopd = str(installed / "bin" / "loopd")
    assert "met: all 2 criteria hold" in _must([loopd, "run", "quickstart.yaml"], project.root, env)
    assert _must([loopd, "--version"], project.root, env) == _must([loopd, "version"], project.root, env)
    assert project.git("diff", "--name-only") == "httpretry/header.py\n"


def _must(words: Sequence[str], folder: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(words, cwd=folder, env=env or dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def _files(folder: Path) -> set[str]:
    found = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return {name for name in found if "__pycache__" not in name}
