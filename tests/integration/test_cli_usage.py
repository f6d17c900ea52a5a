"""Command lines that cannot be meant, and the commands before there is a run."""

import json
import os
import subprocess
import sys

import pytest

from running import Project, contract

AGENT = "{command: [touch, ran]}"


@pytest.fixture
def ready(project: Project) -> Project:
    """A project with a contract whose agent leaves a mark."""
    files = {"a.txt": "", "goal.yaml": contract("mark", ["test -e ran"], AGENT)}
    return project.write(files).commit()


@pytest.mark.parametrize(
    "words",
    [
        ["--max-turn", "3"],
        ["--max-turns="],
        ["--attempts="],
        ["--attempts", "none"],
        ["-n"],
        ["other.yaml"],
        ["--atempts=3"],
    ],
)
def test_conf_4_an_option_that_does_not_exist_starts_nothing(ready: Project, words: list[str]) -> None:
    """A usage error is exit 2, one message, no run, no agent."""
    ran = ready.loopd("run", "goal.yaml", *words)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("loopd: ")
    assert "Traceback" not in ran.err
    assert ready.run_folders() == []
    assert not (ready.root / "ran").exists()


def test_bud_1_a_misspelt_budget_flag_is_named_with_the_right_one(ready: Project) -> None:
    """Whether before or after the path, with `=` or a space, the flag is never taken for something else."""
    for words in (["goal.yaml", "--attemps=3"], ["--attemps", "3", "goal.yaml"]):
        ran = ready.loopd("run", *words)
        assert ran.status == 2
        assert "did you mean --attempts?" in ran.err
    assert ready.run_folders() == []


def test_every_command_has_help_that_starts_nothing(ready: Project) -> None:
    for words in (["--help"], ["help"], [], ["run", "--help"], ["run", "goal.yaml", "--help"], ["status", "-h"]):
        ran = ready.loopd(*words)
        assert (ran.status, ran.err) == (0, "")
        assert "loopd" in ran.out
    assert ready.run_folders() == []


def test_check_tells_every_problem_with_its_place_and_exits_2(ready: Project) -> None:
    ready.write({"bad.yaml": "goal: x\nobjectiv: y\ncriteria:\n  - run: pytest -q\n    timeout: 8\n"})
    ran = ready.loopd("check", "bad.yaml")
    assert ran.status == 2
    places = [line.split(": ")[0] for line in ran.out.splitlines()]
    assert "bad.yaml:2:1" in places
    assert "bad.yaml:5:14" in places


def test_check_of_a_good_contract_tells_what_would_hold_and_starts_nothing(ready: Project) -> None:
    ran = ready.loopd("check", "goal.yaml")
    assert ran.status == 0
    assert "holds: goal mark, 1 criterion" in ran.out
    assert "budget.attempts" in ran.out
    assert "(warning)" in ran.out
    assert ready.loopd("check", "--strict", "goal.yaml").status == 2
    assert not (ready.root / "ran").exists()
    assert ready.run_folders() == []


def test_schema_is_json_and_agents_say_what_is_there_and_what_is_not(ready: Project) -> None:
    assert json.loads(ready.loopd("schema").out)["title"] == "loopd goal contract"
    said = ready.loopd("agents").out
    assert "{command: [PROGRAM, ARG]}" in said
    assert "not available by name yet" in said


def test_init_writes_a_contract_that_check_accepts_and_never_twice(project: Project) -> None:
    project.write({"go.mod": "module x\n"})
    assert project.loopd("init").status == 0
    [path] = (project.root / "goals").iterdir()
    assert project.loopd("check", str(path)).status == 0
    again = project.loopd("init")
    assert again.status == 2
    assert "exists already; nothing was written" in again.err


def test_a_failure_of_loopd_itself_is_one_message_with_a_report_and_the_way_on(project: Project) -> None:
    project.state.mkdir(mode=0o700)
    (project.state / "loopd.db").mkdir()
    ran = project.loopd("ps")
    assert ran.status == 70
    assert "Traceback" not in ran.text


def test_what_a_command_says_stands_in_the_order_it_was_said_in_one_pipe(project: Project) -> None:
    """Problems before their count, whatever buffers a pipe has."""
    project.write({"g.yaml": "gaol: x\n"})
    argv = [sys.executable, "-m", "loopd", "check", "g.yaml"]
    done = subprocess.run(
        argv,
        cwd=project.root,
        env=project.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1].endswith("problems; nothing would run")


@pytest.mark.parametrize("words", [["--help"], ["ps"], ["schema"]])
def test_a_reader_that_leaves_early_gets_no_traceback(project: Project, words: list[str]) -> None:
    """As in `loopd ps | true`: silent, with the exit status of SIGPIPE."""
    unread, pipe = os.pipe()
    os.close(unread)
    argv = [sys.executable, "-m", "loopd", *words]
    done = subprocess.run(
        argv, cwd=project.root, env=project.environment(), stdout=pipe, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(pipe)
    assert (done.returncode, done.stderr) == (141, "")
