"""Looking at runs as a person does: `ps`, `status`, `show`, `logs`, `diff`, as processes."""

import json
import os
import signal
import subprocess
import sys

import pytest

from loopd.adapters.liveness import start_time
from running import SOURCE, Project, contract, ended, wait_for
from sample_runs import SampleRun, typical, verdict

HEAVY = (
    "anyio",
    "click",
    "dataclasses",
    "jinja2",
    "loguru",
    "msgspec",
    "pathlib",
    "pydantic",
    "psutil",
    "rich",
    "ruamel",
    "typer",
)
CHECK = "sh -c 'grep -q new *.txt'"  # a file that a check names would be protected
SLOW = "import time; time.sleep(1)\n"
EDIT = "import pathlib; pathlib.Path('a.txt').write_text('new\\n')"


@pytest.fixture
def worked(project: Project) -> Project:
    """A project with one run that was met in its only attempt."""
    agent = f"{{command: [{sys.executable}, -c, {json.dumps(EDIT)}]}}"
    project.write({"a.txt": "old\n", "goal.yaml": contract("edit", [CHECK], agent)}).commit()
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    return project


def test_show_offers_the_tree_of_before_only_where_there_is_one(project: Project) -> None:
    """The weak form has no store: a command that cannot work is not offered."""
    agent = f"{{command: [{sys.executable}, -c, {json.dumps(EDIT)}]}}"
    project.write({"a.txt": "old\n", "weak.yaml": contract("weak", [CHECK], agent, "verification: workspace")})
    assert project.loopd("run", "weak.yaml").status == 0
    assert "restore" not in project.loopd("show", "last").out


def test_status_tells_of_a_long_check_however_quickly_it_came(project: Project) -> None:
    """What follows quickly on something told is told a moment later, not never."""
    check = "sh -c 'test ! -f done.txt || exec sleep 600; false'"
    agent = f"{{command: [{sys.executable}, -c, {json.dumps(EDIT.replace('a.txt', 'done.txt'))}]}}"
    project.write({"a.txt": "old\n", "goal.yaml": contract("edit", [check], agent)}).commit()
    with ended(project.start("run", "goal.yaml")) as loopd:
        wait_for(lambda: project.run_folders() and any(project.run_folders()[0].glob("checks/0001-*")))
        wait_for(lambda: json.loads(project.loopd("status", "--json").out)["step"] == "verify")
        loopd.send_signal(signal.SIGTERM)
        assert loopd.wait(timeout=60) == 143


@pytest.mark.parametrize(
    "words", [["--version"], ["--help"], ["ps"], ["status"], ["status", "--json"], ["run", "--help"]]
)
def test_a_cheap_question_imports_none_of_the_heavy_libraries(project: Project, words: list[str]) -> None:
    typical(project.state).publish()
    asked = (
        "import sys, loopd.main\n"
        f"status = loopd.main.main({words!r})\n"
        f"heavy = sorted(set({HEAVY!r}) & set(sys.modules))\n"
        "sys.exit(f'imported: {heavy}' if heavy else status)\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", asked], env=project.environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_the_source_of_these_tests_is_this_checkout() -> None:
    assert (SOURCE / "loopd" / "main.py").is_file()


def test_status_and_ps_agree_about_every_run_in_text_and_in_json(project: Project) -> None:
    typical(project.state).publish()
    SampleRun(project.state, run="other-aaaa").baseline(a=verdict("tests", "pass")).over("met", "all hold").publish()
    told = json.loads(project.loopd("ps", "--json").out)
    assert told["format"] == "loopd.ps/1"
    assert told["total"] == 2
    for run in told["runs"]:
        one = json.loads(project.loopd("status", run["run"], "--json").out)
        assert one["format"] == "loopd.status/1"
        assert {name: one[name] for name in ("state", "reason", "next", "crashed")} == {
            name: run[name] for name in ("state", "reason", "next", "crashed")
        }
        assert f"{run['run']}  {run['state']}" in project.loopd("status", run["run"]).out


def test_output_that_is_no_terminal_has_no_colour(project: Project) -> None:
    typical(project.state).publish()
    for words in (["ps"], ["status"], ["show"]):
        assert "\x1b" not in project.loopd(*words).text


def test_conf_4_a_misspelt_option_of_status_is_a_usage_error(project: Project) -> None:
    """The lean commands refuse what they do not know, like all others."""
    typical(project.state).publish()
    for words in (["status", "--jsn"], ["ps", "last"], ["status", "a", "b"], ["status", "nothing-like-it"]):
        ran = project.loopd(*words)
        assert (ran.status, ran.out) == (2, "")
        assert ran.err.startswith("loopd: ")


def test_a_reader_that_leaves_early_is_no_error_worth_a_word(project: Project) -> None:
    for number in range(3):
        typical(project.state, run=f"goal-{number}aaa").publish()
    process = project.start("ps")
    assert process.stdout
    process.stdout.close()
    assert process.stderr
    assert "Traceback" not in process.stderr.read()
    process.wait(timeout=30)
    process.stderr.close()


def test_state_7_only_an_interrupted_run_offers_to_resume(worked: Project) -> None:
    """After success there is nothing to resume; after kill -9 there is."""
    assert "loopd resume" not in worked.loopd("status").text
    sleeper = f"{{command: [{sys.executable}, -c, 'import time; time.sleep(4)']}}"
    worked.write({"slow.yaml": contract("slow", ["test -e never"], sleeper, "budget: {attempts: 1}")})
    with ended(worked.start("run", "slow.yaml")) as process:
        wait_for(lambda: worked.loopd("status", "slow").out.count("the agent is at work"))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    text = worked.loopd("status", "slow").out
    assert "interrupted" in text
    assert "crashed; loopd resume slow-" in text
    assert worked.loopd("resume", "slow").status == 1
    text = worked.loopd("status", "slow").out
    assert "exhausted" in text
    assert "loopd resume" not in text


def test_show_logs_and_diff_tell_a_real_run(worked: Project) -> None:
    shown = worked.loopd("show").out
    assert "1  finished" in shown
    assert "1 of 1: check-1" in shown
    assert "grep" not in worked.loopd("logs").text
    patch = worked.loopd("diff", "--best").out
    assert "-old\n+new\n" in patch
    assert worked.loopd("diff", "--stat").out == "a.txt  +1 -1\n"
    worked.git("stash")
    (worked.root / "p.patch").write_text(patch)
    worked.git("apply", "p.patch")
    assert (worked.root / "a.txt").read_text() == "new\n"


def test_logs_follow_a_run_to_its_end(project: Project) -> None:
    talk = "import time, pathlib\nfor n in range(8): print('line', n, flush=True); time.sleep(0.2)\n" + EDIT
    project.write({"a.txt": "old\n", "agent.py": talk}).commit()
    agent = f"{{command: [{sys.executable}, agent.py]}}"
    project.write({"goal.yaml": contract("talk", [CHECK], agent)})
    with ended(project.start("run", "goal.yaml")) as process:
        wait_for(lambda: list(project.state.glob("runs/*/attempts/0001/stdout.log")))
        followed = project.loopd("logs", "-f", timeout_s=60)
        process.communicate(timeout=60)
    assert followed.out == "".join(f"line {number}\n" for number in range(8))


def test_pipe_5_a_verifier_that_paints_the_screen_paints_nothing(project: Project) -> None:
    """Alternate screen, bracketed paste and OSC 52 of a check reach neither run, show, status nor logs."""
    paint = "printf '\\033[?1049h\\033[?2004h\\033]52;c;QUFB\\007painted\\n'"
    agent = f"{{command: [sh, -c, {json.dumps(paint)}]}}"
    checks = json.dumps(["sh", "-c", f"{paint}; exit 1"])
    head = f"goal: paint\nobjective: x\nagent: {agent}\nbudget: {{attempts: 1}}\n"
    text = f"{head}criteria:\n  - {{name: a, run: {checks}}}\n"
    project.write({"a.txt": "", "goal.yaml": text}).commit()
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 1
    said = ran.text + "".join(
        project.loopd(*words).text for words in (["show"], ["status"], ["logs"], ["show", "--json"])
    )
    assert "painted" in said
    assert not set(said) & {"\x1b", "\x07"}
    assert "\x1b]52" in project.loopd("logs", "--raw").out


def test_json_of_a_run_is_its_ledger_line_by_line(worked: Project) -> None:
    worked.git("checkout", "--quiet", "a.txt")
    ran = worked.loopd("run", "--new", "--json", "goal.yaml")
    told = [json.loads(line) for line in ran.out.splitlines()]
    assert [(event["seq"], event["kind"]) for event in told] == [
        (event["seq"], event["kind"]) for event in worked.events()
    ]


def test_a_supervisor_whose_terminal_dies_goes_on_to_the_end(project: Project) -> None:
    agent = f"{{command: [{sys.executable}, -c, {json.dumps(SLOW + EDIT)}]}}"
    project.write({"a.txt": "old\n", "goal.yaml": contract("edit", [CHECK], agent)}).commit()
    process = project.start("run", "goal.yaml")
    assert process.stdout
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr
    assert "Traceback" not in process.stderr.read()
    assert process.wait(timeout=60) == 0
    process.stderr.close()


def test_a_run_of_this_very_process_is_alive(project: Project) -> None:
    me = os.getpid()
    typical(project.state, pid=me, pid_start=start_time(me) or 0).publish()
    told = json.loads(project.loopd("status", "--json").out)
    assert (told["alive"], told["crashed"], told["state"], told["pid"]) == (True, False, "running", me)
