"""What the README and the tutorial tell a reader to type works, and prints what they say it prints."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from documents import File, Typed, follow, steps
from running import GIT_IDENTITY

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The environment of a reader: `loopd` on the PATH, a git identity, a state folder of its own."""
    programs = tmp_path / "bin"
    programs.mkdir()
    loopd = programs / "loopd"
    loopd.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT / "supervisor"} exec {sys.executable} -m loopd "$@"\n')
    loopd.chmod(0o755)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("LOOPD_", "GIT_", "PYTHONUNBUFFERED"))
    }
    names = dict(word.split("=") for word in GIT_IDENTITY if "=" in word)
    identity = {
        f"GIT_{who}_{what.upper()}": names[f"user.{what}"]
        for who in ("AUTHOR", "COMMITTER")
        for what in ("name", "email")
    }
    return {**kept, **identity, "PATH": f"{programs}:{kept['PATH']}", "LOOPD_STATE": str(tmp_path / "state")}


@pytest.mark.needs("git")
@pytest.mark.parametrize("document", ["README.md", "docs/tutorial.md", "docs/adding-an-agent.md", "goals/README.md"])
def test_every_command_of_a_document_does_what_it_says(document: str, tmp_path: Path, env: dict[str, str]) -> None:
    """In the order of the document, beginning beside a copy of goals/."""
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT / "goals", folder / "goals")
    assert follow((ROOT / document).read_text(encoding="utf-8"), folder, env) > 0


@pytest.mark.needs("git", "make")
def test_make_demo_runs_to_met_and_shows_the_result(tmp_path: Path, env: dict[str, str]) -> None:
    """The recipe of the Makefile, with this interpreter's loopd in the place of the one it would install."""
    words = ["make", "demo", "--old-file=.venv/.ready", f"BIN={tmp_path / 'bin'}", f"DEMO={tmp_path / 'demo'}"]
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "met: all 2 criteria hold" in done.stdout
    assert "+    return max(0.0, seconds)" in done.stdout


def test_a_console_block_is_read_as_commands_and_what_they_print() -> None:
    """Continued commands, statuses, and files to write."""
    text = (
        "Write `a/b.txt`:\n\n```text\nhello\n```\n\n```console\n$ cat <<X\n> $ 1\n> X\n$ 1\n$ false\n[exit 1]\n…\n```\n"
    )
    assert list(steps(text)) == [
        File("a/b.txt", "hello\n"),
        Typed("cat <<X\n$ 1\nX", (), 0),
        Typed("1", (), 0),
        Typed("false", (), 1),
    ]


def test_a_document_that_says_what_is_not_printed_is_found_out(tmp_path: Path, env: dict[str, str]) -> None:
    """A wrong line, a wrong order and a wrong status are all failures."""
    for wrong in ("$ echo one\ntwo", "$ printf 'a\\nb\\n'\nb\na", "$ false", "$ true\n[exit 1]"):
        with pytest.raises(AssertionError):
            follow(f"```console\n{wrong}\n```\n", tmp_path, env)
    assert follow("```console\n$ cd / && echo now it is 12:30 s\nnow … s\n$ pwd\n/\n```\n", tmp_path, env) == 2
