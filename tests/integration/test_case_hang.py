"""HANG: agents that do not end by themselves, and agents that only look as if they hung."""

import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

from cases import attempts, before_attempt_1, launches, marked, notes, outcomes, prepare, with_env
from running import Project, ended, ledger, wait_for

TWICE = 'if [ "$N" = 1 ]; then {first}; fi\necho done > out.txt\n'


def test_hang_1_reading_stdin_to_its_end(project: Project) -> None:
    """The prompt goes by argument and the agent reads stdin first: it is at its end at once."""
    agent = "{command: [sh, agent.sh], prompt: argument}"
    project = prepare(project, "cat > /dev/null\necho done > out.txt\n", agent=agent)
    assert project.loopd("run", "goal.yaml").status == 0
    (end,) = attempts(project)
    assert end["exit"]["duration_s"] < 2


def test_hang_2_stays_after_its_final_event(project: Project) -> None:
    """Ended within the grace after the final event; class, cost and work are kept, and the goal is met."""
    agent = "{command: [sh, agent.sh], final: '\"type\":\"result\"', usage: {pattern: 'cost=(?P<cost>[0-9.]+)'}}"
    script = 'echo done > out.txt\necho cost=5.57\necho \'{"type":"result"}\'\nsleep 600\n'
    project = prepare(project, script, agent=agent, more="budget: {cost: 20 USD}")
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    (end,) = attempts(project)
    assert (end["outcome"], end["reason"]) == ("finished", "finished, did not exit")
    assert end["usage"]["cost_usd"] == 5.57
    assert not end["usage"]["partial"]
    assert end["exit"]["duration_s"] < 8
    assert marked(project) == []


def test_hang_4_stalled_stream_is_ended_at_the_idle_limit(project: Project) -> None:
    """Three events and then nothing, with a socket open: ended as idle, the next attempt is told, and works."""
    stall = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); time.sleep(600)"
    script = TWICE.format(first=f'echo 1; echo 2; echo 3; exec python3 -c "{stall}"')
    project = prepare(project, script, more="budget: {attempt: {idle: 1s}}")
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    first, second = attempts(project)
    assert (first["outcome"], second["outcome"]) == ("idle", "finished")
    assert 1 <= first["exit"]["duration_s"] < 12
    told_next = (project.run_folders()[-1] / "attempts" / "0002" / "instruction.md").read_text()
    assert "nothing happened for too long" in told_next
    assert marked(project) == []


def test_hang_5_six_goals_at_once(project: Project, tmp_path: Path) -> None:
    """Two of six agents hang: the other four are met meanwhile, and in the end all six."""
    script = TWICE.format(first='if [ -n "$HANGS" ]; then echo tool_result; exec sleep 600; fi')
    goals = []
    for number in range(6):
        root = tmp_path / f"goal-{number}"
        root.mkdir()
        one = Project(root, project.state)  # six runs, one state folder
        one = prepare(one, script, goal=f"goal-{number}", more="budget: {attempt: {idle: 12s}}")
        goals.append(with_env(one, {"HANGS": "yes" if number < 2 else ""}))
    processes = [one.start("run", "goal.yaml") for one in goals]
    try:
        assert [process.wait(timeout=90) for process in processes] == [0] * 6
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    folders = {folder.name[: len("goal-0")]: folder for folder in project.run_folders()}
    ends = {name: [e for e in ledger(folder) if e["kind"] == "attempt.ended"] for name, folder in folders.items()}
    hung = [ends[name][0] for name in ("goal-0", "goal-1")]
    assert [end["data"]["outcome"] for end in hung] == ["idle", "idle"]
    for number in range(2, 6):
        (healthy,) = ends[f"goal-{number}"]
        assert healthy["data"]["outcome"] == "finished"
        assert _at(healthy) < min(map(_at, hung))


def test_hang_6_silent_agent_that_changes_files_is_not_idle(project: Project) -> None:
    """No output and no processor time, but a new file now and then: alive beyond the idle limit."""
    script = "for n in 1 2 3 4 5; do sleep 0.6; : > file$n; done\necho done > out.txt\n"
    project = prepare(project, script, more="budget: {attempt: {idle: 1s}}")
    assert project.loopd("run", "goal.yaml").status == 0
    (end,) = attempts(project)
    assert end["outcome"] == "finished"
    assert end["exit"]["duration_s"] >= 3


def test_hang_6_commits_and_files_of_an_ended_attempt_stay(project: Project) -> None:
    """Ended at the hard limit: what the agent committed and wrote until then is there, and counted."""
    commit = "git add one && git -c user.name=a -c user.email=a@b commit --quiet -m work"
    script = f"echo 1 > one; {commit}; echo 2 > two; while [ $N = 1 ]; do sleep 0.1; done; echo done > out.txt\n"
    project = prepare(project, script, more="budget: {attempt: {time: 2s}}")
    assert project.loopd("run", "goal.yaml").status == 0
    assert outcomes(project) == ["timed_out", "finished"]
    assert project.of_kind("attempt.captured")[0]["changed"] == ["one", "two"]
    assert project.git("log", "--format=%s").splitlines() == ["work", "start"]
    assert (project.root / "two").read_text() == "2\n"


def test_hang_7_silence_is_death_only_after_the_limit_set(project: Project) -> None:
    """Thinking for 3 s: ended under an idle limit of 1 s, left alone under the default of 20 minutes."""
    think = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection("
    think += "s.getsockname()); time.sleep(3); open('out.txt', 'w').write('done\\n')"
    project = prepare(project, f'exec python3 -c "{think}"\n', more="budget: {attempts: 1, attempt: {idle: 1s}}")
    assert project.loopd("run", "goal.yaml").status == 1
    assert outcomes(project) == ["idle"]
    path = project.root / "goal.yaml"
    path.write_text(path.read_text().replace(", attempt: {idle: 1s}", ""))
    ran = project.loopd("run", "--new", "goal.yaml")
    assert ran.status == 0, ran.text
    assert outcomes(project) == ["finished"]
    assert "budget.attempt.idle 20m" in before_attempt_1(ran.out).partition("by default: ")[2]


def test_hang_8_no_controlling_terminal(project: Project) -> None:
    """loopd runs on a terminal; its agent has none to ask, says so, and cannot block anybody."""
    script = '(exec < /dev/tty) 2> /dev/null && { touch "$NOTES/tty"; read answer < /dev/tty; }\n'
    project = prepare(project, script + "echo 'permission denied'; exit 1\n", more="budget: {attempts: 1}")
    ours, theirs = os.openpty()
    loopd = subprocess.Popen(
        [sys.executable, "-m", "loopd", "run", "--json", "goal.yaml"],
        cwd=project.root,
        env=project.environment(),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: _own_terminal(theirs),
        start_new_session=True,
    )
    os.close(theirs)
    with ended(loopd):
        assert wait_for(lambda: loopd.poll() is not None)
    os.close(ours)
    assert loopd.returncode == 1
    assert launches(project) == 1
    assert not (notes(project) / "tty").exists()
    (end,) = attempts(project)
    assert end["exit"]["duration_s"] < 2
    assert (end["outcome"], end["exit"]["status"]) == ("crashed", 1)
    assert "permission denied" in project.loopd("logs", "last").out


def _own_terminal(terminal: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


def _at(event: dict[str, str]) -> datetime:
    return datetime.fromisoformat(event["at"])
