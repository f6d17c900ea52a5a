"""Finding programs, and running loopd's own short ones."""

import os
import sys
import time
from pathlib import Path

import anyio
import pytest

from containers_under_test import eventually
from loopd.adapters.containment.programs import find_program, require_program, run_program
from loopd.domain.errors import BlockedError, StateError

pytestmark = pytest.mark.anyio

ENV = {"PATH": "/usr/bin:/bin", "LANG": "de_DE.UTF-8"}


def tool(folder: Path, first_line: str, mode: int = 0o755) -> Path:
    """A script."""
    file = folder / "tool"
    file.write_text(f"{first_line}\nexit 0\n")
    file.chmod(mode)
    return file


@pytest.mark.parametrize(
    ("first_line", "mode", "fault"),
    [
        ("#!/bin/sh", 0o755, ""),
        ("#! /bin/sh -e", 0o755, ""),
        ("#!/usr/bin/env sh", 0o755, ""),
        ("#!/usr/bin/env -S sh -e", 0o755, ""),
        ("#!/usr/bin/env -S A=1 sh", 0o755, ""),
        ("#!/bin/sh", 0o644, "not executable"),
        ("#!/opt/none/bin/python3", 0o755, "interpreter /opt/none/bin/python3 is not there"),
        ("#!/usr/bin/env no-such-node", 0o755, "interpreter no-such-node is not there"),
        ("#!/opt/none/env node", 0o755, "interpreter /opt/none/env is not there"),
    ],
)
def test_conf_6_a_program_is_found_with_its_interpreter_or_the_reason_is_told(
    tmp_path: Path, first_line: str, mode: int, fault: str
) -> None:
    """By an explicit PATH and nothing else; the PATH searched is named."""
    file, path = tool(tmp_path, first_line, mode), f"/nowhere:{tmp_path}:/usr/bin:/bin"
    if not fault:
        assert find_program("tool", path) == require_program("tool", path) == file
        assert find_program(str(file), path) == file
        return
    assert find_program("tool", path) is None
    with pytest.raises(BlockedError, match=fault) as raised:
        require_program("tool", path)
    assert path in str(raised.value)


def test_a_later_folder_is_used_when_an_earlier_one_has_a_file_that_cannot_run(tmp_path: Path) -> None:
    """As execvp does."""
    (tmp_path / "first").mkdir()
    tool(tmp_path / "first", "#!/bin/sh", 0o644)
    good = tool(tmp_path, "#!/bin/sh")
    assert find_program("tool", f"{tmp_path}/first:{tmp_path}") == good


def test_the_working_folder_is_never_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty or relative entry of PATH would be the agent's own tree."""
    tool(tmp_path, "#!/bin/sh")
    monkeypatch.chdir(tmp_path)
    assert find_program("tool", ":.:/usr/bin") is None
    assert require_program("./tool", "/usr/bin", cwd=tmp_path) == tmp_path / "tool"


async def test_a_short_tool_is_run_in_the_c_locale_with_a_complete_environment(tmp_path: Path) -> None:
    """Status, both streams, input and folder; nothing inherited."""
    script = "pwd; cat; env | sort; echo bad >&2; exit 3"
    done = await run_program(["sh", "-c", script], cwd=tmp_path, env=ENV, stdin=b"in\n", timeout_s=10)
    lines = done.stdout.decode().splitlines()
    assert (done.status, done.stderr) == (3, b"bad\n")
    assert lines[:2] == [str(tmp_path), "in"]
    assert {"LC_ALL=C", "LANG=de_DE.UTF-8", "PATH=/usr/bin:/bin"} <= set(lines)
    assert not any(line.startswith("HOME=") for line in lines)


async def test_much_input_and_output_do_not_block_each_other(tmp_path: Path) -> None:
    """Ten megabytes through a pipe in both directions; and a program need not read what it is given."""
    data = os.urandom(10 << 20)
    assert (await run_program(["cat"], cwd=tmp_path, env=ENV, stdin=data, timeout_s=60)).stdout == data
    assert (await run_program(["true"], cwd=tmp_path, env=ENV, stdin=data, timeout_s=60)).status == 0


async def test_a_program_over_its_time_is_killed_with_its_group(tmp_path: Path) -> None:
    """Said with the command; nothing of it is left."""
    script = "sleep 678 & echo $! >pid; sleep 678"
    with pytest.raises(StateError, match=r"sleep 678.* did not finish in 0\.3 s"):
        await run_program(["sh", "-c", script], cwd=tmp_path, env=ENV, stdin=None, timeout_s=0.3)
    pid = int((tmp_path / "pid").read_text())
    await eventually(lambda: _gone(pid))


async def test_a_cancelled_program_is_killed(tmp_path: Path) -> None:
    """Cancelling waits until it is gone."""
    with anyio.move_on_after(0.3):
        await run_program(["sh", "-c", "echo $$ >pid; sleep 678"], cwd=tmp_path, env=ENV, stdin=None, timeout_s=60)
    pid = int((tmp_path / "pid").read_text())
    await eventually(lambda: _gone(pid))


async def test_a_grandchild_that_holds_the_pipe_delays_only_a_moment(tmp_path: Path) -> None:
    """The output so far is returned."""
    begun = time.monotonic()
    script = "setsid sleep 5 & echo done"
    done = await run_program(["sh", "-c", script], cwd=tmp_path, env=ENV, stdin=None, timeout_s=60)
    assert (done.status, done.stdout) == (0, b"done\n")
    assert time.monotonic() - begun < 4


async def test_a_program_that_is_missing_or_killed_is_told(tmp_path: Path) -> None:
    """Blocked, or a negative status."""
    with pytest.raises(BlockedError, match="no-such-tool"):
        await run_program(["no-such-tool"], cwd=tmp_path, env=ENV, stdin=None, timeout_s=5)
    done = await run_program(["sh", "-c", "kill -9 $$"], cwd=tmp_path, env=ENV, stdin=None, timeout_s=5)
    assert done.status == -9
    done = await run_program([sys.executable, "-V"], cwd=tmp_path, env=ENV, stdin=None, timeout_s=5)
    assert done.stdout.startswith(b"Python 3")


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] in "ZX"
    except FileNotFoundError:
        return True
