"""Four trials written out, each line of what must hold asserted. The agents lie in tests/data/trials."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from cases import DATA, DONE, QUICK, attempts, before_attempt_1, marked, with_env
from running import Project, contract, ended, is_running, ledger, wait_for

TRIALS = DATA / "trials"


def trial(project: Project, agent: str, more: str, checks: list[str], command: str) -> Project:
    """An empty repository but for the agent and the contract."""
    shutil.copy(TRIALS / agent, project.root / f"agent{Path(agent).suffix}")
    (project.root / "goal.yaml").write_text(contract("trial", checks, command, more))
    return with_env(project, QUICK).commit()


def test_trial_01_grandchild_holds_stdout(project: Project) -> None:
    """The attempt ends with its agent, its server is ended and named before the verifier runs, the output is kept."""
    more = "sandbox: none\nbudget: {attempts: 3, time: 120s, attempt: {time: 60s}}"
    # `kill -0` in the verifier itself: in a sandbox it could not see the process, so this trial runs without.
    gone = "sh -c 'test ! -f bg.pid || ! kill -0 $(cat bg.pid)'"
    project = trial(project, "01_agent.sh", more, [*DONE, gone], "{command: [sh, agent.sh]}")
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    (end,) = attempts(project)
    assert end["outcome"] == "finished"
    assert end["exit"]["status"] == 0
    assert end["exit"]["duration_s"] < 6
    pid = int((project.root / "bg.pid").read_text())
    assert not is_running(pid)
    assert [(stray["pid"], stray["command"]) for stray in end["strays"]] == [(pid, "sleep 600")]
    assert "sleep 600" in ran.out
    log = project.run_folders()[-1] / "attempts" / "0001" / "stdout.log"
    assert log.read_text() == "dev server started\n"
    ends = next(event["at"] for event in project.events() if event["kind"] == "attempt.ended")
    reserved = next(event["at"] for event in project.events() if event["kind"] == "attempt.reserved")
    assert _seconds(ends) - _seconds(reserved) < 6 + 5


def test_trial_04_huge_line_split_utf8_escapes(project: Project) -> None:
    """One attempt, the exact bytes kept, the cost found behind an escape, the view whole and harmless."""
    pattern = r"""'"total_cost_usd":(?P<cost>[0-9.]+)'"""
    agent = f"{{command: [python3, agent.py], usage: {{pattern: {pattern}}}}}"
    more = "budget: {attempts: 2, attempt: {time: 30s}, cost: 1 USD}"
    project = trial(project, "04_agent.py", more, DONE, agent)
    began = time.monotonic()
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    assert time.monotonic() - began < 10
    (end,) = attempts(project)
    assert end["usage"]["cost_usd"] == pytest.approx(0.05)
    folder = project.run_folders()[-1] / "attempts" / "0001"
    raw = (folder / "stdout.log").read_bytes()
    assert raw == _what_agent_04_writes()
    assert (folder / "stderr.log").read_bytes() == b"E" * 400_000
    view = project.loopd("logs", "last").out
    assert "\U0001f600\u00e9\u4e2d" in view
    assert "\ufffd\ufffd not utf-8" in view
    assert view.count("\ufffd") == 2
    assert view.endswith("last line, no newline\n")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]", view + ran.text)
    assert len(view) < 1_000_000
    assert re.search(r"[\d,. ]+ ?(bytes|characters|MB|MiB|kB)[^\n]*(left out|omitted|more|cut)|\[…|… ?\[?\d", view), (
        view[:300]
    )


def test_trial_04_a_line_of_three_megabytes_costs_little_memory(project: Project, tmp_path: Path) -> None:
    """loopd's own peak grows by less than 20 MB over a run with a short line."""
    peaks = []
    for name, size in (("short", 10), ("long", 3_000_000)):
        root = tmp_path / name
        root.mkdir()
        one = Project(root, tmp_path / f"{name}-state")
        script = f"import os\nos.write(1, b'A' * {size} + b'\\n')\nopen('out.txt', 'w').write('done\\n')\n"
        (root / "agent.py").write_text(script)
        (root / "goal.yaml").write_text(contract("trial", DONE, "{command: [python3, agent.py]}"))
        process = one.commit().start("run", "goal.yaml")
        with process.stdout, process.stderr:  # type: ignore[union-attr]
            _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        peaks.append(used.ru_maxrss)
    assert peaks[1] - peaks[0] < 20 * 1024, peaks


def test_trial_05_kill_9_and_restart(project: Project) -> None:
    """One agent at a time, budgets go on, a third loopd is refused, the final SIGTERM leaves nothing behind."""
    project = trial(project, "05_agent.sh", "budget: {attempts: 3, time: 300s}", DONE, "{command: [sh, agent.sh]}")
    first = project.start("run", "goal.yaml")
    with ended(first):
        wait_for(lambda: project.run_folders() and project.of_kind("attempt.started"))
        agent = int(wait_for(lambda: _beats(project))[-1][0])
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert is_running(agent)  # it has a shim of its own, so that two hours of work are not lost with the supervisor
    second = project.start("run", "goal.yaml")
    with ended(second):
        wait_for(lambda: len(project.of_kind("attempt.started")) == 2)
        told_before = project.events()
        third = project.loopd("run", "goal.yaml")
        assert third.status == 6
        assert str(second.pid) in third.err
        assert [e for e in project.events() if e["kind"] != "host.paused"][: len(told_before)] == told_before
        assert len(project.run_folders()) == 1
        known = len(_beats(project))
        wait_for(lambda: len(_beats(project)) >= known + 3)
        assert {pid for pid, _ in _beats(project)[known:]} == {str(agent)}
        second.send_signal(signal.SIGTERM)
        assert second.wait(timeout=15) == 143
    assert not is_running(agent)
    assert marked(project) == []
    reserved = project.of_kind("attempt.reserved")
    assert [data["attempt"] for data in reserved] == [1]
    adopted = [data["adopted"] for data in project.of_kind("attempt.started")]
    assert adopted == [False, True]
    (end,) = attempts(project)
    assert end["outcome"] == "interrupted"
    assert end["exit"]["duration_s"] >= 3
    shown = json.loads(project.loopd("status", "last", "--json").out)
    assert shown["state"] == "interrupted"
    assert shown["budget"]["attempts"]["used"] == 1, shown
    elapsed = [event["data"]["elapsed_s"] for event in project.events() if "elapsed_s" in event["data"]]
    assert elapsed[-1] >= end["exit"]["duration_s"]
    assert elapsed == sorted(elapsed)


def test_trial_05_the_state_parses_after_kills_at_any_moment(project: Project) -> None:
    """kill -9 at ten random delays: every line of the ledger but a torn last one parses, status.json always does."""
    script = "trap '' TERM HUP\nwhile :; do date >> beat.log; sleep 0.02; done\n"
    project.write({"agent.sh": script})
    (project.root / "goal.yaml").write_text(contract("trial", DONE, "{command: [sh, agent.sh]}"))
    project = with_env(project, QUICK).commit()
    delays = random.Random(5)
    for _ in range(10):
        with ended(project.start("run", "goal.yaml")) as process:
            wait_for(project.run_folders)  # a start takes its time; the first of all has to get that far
            with pytest.raises(subprocess.TimeoutExpired):  # the delay is the trial, not a wait for something
                process.wait(timeout=delays.uniform(0.0, 1.5))
            process.send_signal(signal.SIGKILL)
            process.wait()
        for folder in project.run_folders():
            ledger(folder)
            for name in ("status.json", "run.json", "agreement.json"):
                assert not (folder / name).exists() or json.loads((folder / name).read_bytes())
    assert len(project.run_folders()) == 1
    before = len(project.of_kind("attempt.started"))
    with ended(project.start("run", "goal.yaml")) as last:
        wait_for(lambda: len(project.of_kind("attempt.started")) > before)
        last.send_signal(signal.SIGTERM)
        assert last.wait(timeout=20) == 143
    assert len({data["attempt"] for data in project.of_kind("attempt.reserved")}) == 1
    assert marked(project) == []


# The contract's names stand for those of the trial: attempts for turns.
CASES = [
    ("attempts: true", "budget.attempts", "true", "whole number"),
    ("attempts: false", "budget.attempts", "false", "whole number"),
    ("attempts: 0", "budget.attempts", "0", "1"),
    ("attempts: -1", "budget.attempts", "-1", "1"),
    ("attempts: 2.5", "budget.attempts", "2.5", "whole number"),
    ('attempts: "5"', "budget.attempts", "5", "whole number"),
    ("attempts: none", "budget.attempts", "none", "whole number"),
    ("attempts: .inf", "budget.attempts", ".inf", "finite number"),
    ("cost: .nan", "budget.cost", ".nan", "finite number"),
    ("cost: .inf", "budget.cost", ".inf", "finite number"),
    ("cost: no", "budget.cost", "no", "USD"),
    ("time: 1:30", "budget.time", "1:30", "h"),
    ("time: 30", "budget.time", "30", "unit"),
    ("time: 0755", "budget.time", "0755", "unit"),
    ("attepmts: 3", "budget.attepmts", "attepmts", "attempts"),
    ("turns: 3", "budget.turns", "turns", "attempts"),
    ("attempts: 3\n  attempts: 300", "budget.attempts", "attempts", "line 7"),
]


@pytest.mark.parametrize(("line", "field", "value", "mend"), CASES, ids=[case[0] for case in CASES])
def test_trial_07_line_that_removes_the_cap(project: Project, line: str, field: str, value: str, mend: str) -> None:
    """Nothing is started, and one message has the place, the field, the value as written and what would be right."""
    project = trial(project, "07_agent.sh", f"budget:\n  {line}", DONE, "{command: [sh, agent.sh]}")
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 2, ran.text
    assert not (project.root / "AGENT_WAS_STARTED").exists()
    assert project.run_folders() == []
    number = 1 + (project.root / "goal.yaml").read_text().splitlines().index(f"  {line.splitlines()[-1].strip()}")
    (said,) = [row for row in ran.err.splitlines() if f"goal.yaml:{number}:" in row]
    assert field in said
    assert value in said
    assert mend in said
    assert "Traceback" not in ran.text


def test_trial_07_all_problems_in_one_go(project: Project) -> None:
    """Three wrong values are three messages; `loopd check` has the same text and status."""
    more = "budget:\n  attempts: true\n  cost: .nan\n  time: 30"
    project = trial(project, "07_agent.sh", more, DONE, "{command: [sh, agent.sh]}")
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 2
    said = re.findall(r"goal\.yaml:\d+:\d+: budget\..*", ran.err)
    assert len(said) == 3, ran.err
    checked = project.loopd("check", "goal.yaml")
    assert checked.status == 2
    assert all(line in checked.text for line in said), checked.text


def test_trial_07_no_budget_means_the_documented_one(project: Project) -> None:
    """Every effective number of the budget is printed with its source before attempt 1."""
    project.write({"agent.sh": "echo done > out.txt\n"})
    (project.root / "goal.yaml").write_text(contract("trial", DONE, "{command: [sh, agent.sh]}"))
    ran = project.commit().loopd("run", "goal.yaml")
    defaults = before_attempt_1(ran.out).partition("by default: ")[2]
    for text in ("budget.attempts 20", "budget.time 4h", "budget.cost unlimited"):
        assert f"{text} \u00b7" in defaults, ran.out


def _what_agent_04_writes() -> bytes:
    text = "\U0001f600\u00e9\u4e2d".encode()
    event = b'\x1b]0;title\x07{"type":"result","subtype":"success","total_cost_usd":0.05}\n'
    first = b'{"type":"user","content":"' + b"A" * 3_000_000 + b'"}\n'
    return first + text + b"\n" + event + b"\xc0\xff not utf-8\r\x1b[2J\x1b[31mred\nlast line, no newline"


def _beats(project: Project) -> list[list[str]]:
    path = project.root / "beat.log"
    rows = path.read_text().split("\n")[:-1] if path.exists() else []
    return [row.split() for row in rows]


def _seconds(at: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(at).timestamp()
