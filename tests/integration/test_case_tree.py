"""TREE: what is left of an attempt's processes, and who gets which signal."""

import json
import signal
import time
from contextlib import suppress

import pytest

from cases import attempts, launches, marked, notes, prepare, told, with_env
from running import Project, ended, is_running, wait_for

WRITER = "trap '' INT\nwhile :; do date +%N >> \"$NOTES/beat\"; sleep 0.05; done\n"
QUICK_S = 6.0  # interrupt 0.5 s, terminate 0.5 s, and a machine with other things to do


def test_tree_1_three_children_are_gone_after_every_attempt(project: Project) -> None:
    """Ten attempts that each leave three servers behind: nothing lives after any of them, and all are counted."""
    script = 'for n in 1 2 3; do sleep 600 & echo $! >> "$NOTES/pids"; done\ntouch "part$N"\n'
    # The next attempt of the agent itself looks whether anything of the one before is alive.
    look = 'for p in $(cat "$NOTES/pids" 2>/dev/null); do kill -0 $p 2>/dev/null && echo $p >> "$NOTES/alive"; done\n'
    checks = [f"test -f part{number}" for number in range(1, 11)]
    project = prepare(project, look + script, checks=checks, more="budget: {attempts: 10}")
    assert project.loopd("run", "goal.yaml").status == 0
    assert told(project, "alive") == ""
    assert [len(end["strays"]) for end in attempts(project)] == [3] * 10
    pids = [int(pid) for pid in told(project, "pids").split()]
    assert len(pids) == 30
    assert not any(map(is_running, pids))


def test_tree_2_daemon_with_the_output_open_delays_nothing(project: Project) -> None:
    """A daemon that left its session and holds stdout open: the attempt ends with its agent all the same."""
    up = "until grep -qx sleep /proc/$!/comm; do :; done\n"
    project = prepare(project, f"setsid sleep 600 &\n{up}echo done > out.txt\n")
    began = time.monotonic()
    assert project.loopd("run", "goal.yaml").status == 0
    assert time.monotonic() - began < 20
    (end,) = attempts(project)
    assert end["outcome"] == "finished"
    assert [stray["command"] for stray in end["strays"]] == ["sleep 600"]
    assert marked(project) == []


def test_tree_3_second_ctrl_c_ends_at_once(project: Project) -> None:
    """The first Ctrl-C waits for the boundary, the second leaves within seconds; no beat after loopd is gone."""
    project = prepare(project, WRITER)
    with ended(project.start("run", "goal.yaml")) as loopd:
        wait_for(lambda: told(project, "beat"))
        loopd.send_signal(signal.SIGINT)
        known = len(told(project, "beat").split())
        wait_for(lambda: len(told(project, "beat").split()) > known + 5)  # polite: the attempt goes on
        loopd.send_signal(signal.SIGINT)
        began = time.monotonic()
        assert loopd.wait(timeout=20) == 130
        assert time.monotonic() - began < QUICK_S
        after = told(project, "beat")
        assert marked(project) == []
    assert told(project, "beat") == after
    assert project.of_kind("run.interrupted")[-1]["signal"] == "SIGINT"


def test_tree_3_first_ctrl_c_leaves_at_the_boundary(project: Project) -> None:
    """An agent that ends by itself is verified first; then loopd leaves with 130 and launches nothing more."""
    project = prepare(project, 'touch "$NOTES/up"; while [ ! -f "$NOTES/go" ]; do sleep 0.02; done; touch "part$N"\n')
    with ended(project.start("run", "goal.yaml")) as loopd:
        wait_for(lambda: (notes(project) / "up").exists())
        loopd.send_signal(signal.SIGINT)
        (notes(project) / "go").touch()
        assert loopd.wait(timeout=20) == 130
    assert launches(project) == 1
    assert [data["attempt"] for data in project.of_kind("attempt.assessed")] == [1]
    assert json.loads(project.loopd("status", "last", "--json").out)["state"] == "interrupted"


def _during_agent(project: Project) -> bool:
    return told(project, "beat") != ""


def _during_verifier(project: Project) -> bool:
    return bool(_kinds(project)) and _kinds(project)[-1] == "attempt.captured" and marked(project) != []


def _during_wait(project: Project) -> bool:
    return bool(_kinds(project)) and any(data.get("wait_until") for data in project.of_kind("decision"))


STEPS = {
    "agent": (WRITER, ["grep -qx done out.txt"], {}, _during_agent, "watch"),
    "verifier": ("touch slow\n", ["sh -c 'test ! -f slow || sleep 600'", "false"], {}, _during_verifier, "verify"),
    "wait": ("true\n", ["false"], {"LOOPD_BACK_OFF__BASE": "10m", "LOOPD_BACK_OFF__CAP": "10m"}, _during_wait, "wait"),
}


@pytest.mark.parametrize("step", STEPS)
def test_tree_4_sigterm_in_every_step(project: Project, step: str) -> None:
    """SIGTERM ends loopd with 143 within its grace and nothing is launched; the state says where it stood."""
    script, checks, env, reached, where = STEPS[step]
    project = with_env(prepare(project, script, checks=checks), env)
    with ended(project.start("run", "goal.yaml")) as loopd:
        wait_for(lambda: project.run_folders() and reached(project))
        before = launches(project)
        began = time.monotonic()
        loopd.send_signal(signal.SIGTERM)
        assert loopd.wait(timeout=20) == 143
        assert time.monotonic() - began < QUICK_S
    assert launches(project) == before
    assert marked(project) == []
    shown = json.loads(project.loopd("status", "last", "--json").out)
    assert shown["state"] == "interrupted"
    # An agent at work is ended and its changes are taken, so that run stands before its verification.
    assert shown["step"] == ("verify" if where == "watch" else where)
    assert project.of_kind("run.interrupted")[-1]["signal"] == "SIGTERM"


def test_tree_4_sigterm_between_attempts(project: Project) -> None:
    """Wherever between the attempts of a busy run the signal comes: 143, and no launch afterwards."""
    project = prepare(project, 'touch "part$N"\n', checks=["false", "test -f part40"], more="ladder: [rephrase, stop]")
    for number in range(4):
        with ended(project.start("run", "--new", "goal.yaml")) as loopd:
            wait_for(lambda: len(project.run_folders()) > number and _of_kind(project, "attempt.assessed"))  # noqa: B023
            loopd.send_signal(signal.SIGTERM)
            assert loopd.wait(timeout=20) == 143, number
            before = launches(project)
        assert launches(project) == before
        assert _kinds(project)[-1] == "run.interrupted"


def test_tree_5_an_agent_of_a_dead_loopd_is_adopted_or_ended(project: Project) -> None:
    """After kill -9 a new loopd goes on with the same agent; when the limit has passed meanwhile, it ends it."""
    script = 'echo $$ >> "$NOTES/agents"; trap "" TERM HUP\nwhile [ ! -f "$NOTES/go" ]; do sleep 0.05; done\n'
    project = prepare(project, script + "echo done > out.txt\n", more="budget: {attempt: {time: 60s}}")
    with ended(project.start("run", "goal.yaml")) as first:
        wait_for(lambda: told(project, "agents") and project.of_kind("attempt.started"))
        first.send_signal(signal.SIGKILL)
        first.wait()
    with ended(project.start("run", "goal.yaml")) as second:
        wait_for(lambda: len(project.of_kind("attempt.started")) == 2)
        (notes(project) / "go").touch()
        assert second.wait(timeout=30) == 0
    assert len(told(project, "agents").split()) == 1
    assert [end["outcome"] for end in attempts(project)] == ["finished"]


def test_tree_5_an_agent_past_its_limit_is_ended_before_the_next(project: Project) -> None:
    """The agent that a dead loopd left has used up its time: ended first, then the next attempt starts."""
    script = 'kill -0 $(cat "$NOTES/agent" 2>/dev/null) 2>/dev/null && touch "$NOTES/two"; echo $$ > "$NOTES/agent"\n'
    script += "trap '' TERM HUP INT\nif [ $N = 1 ]; then while :; do sleep 0.05; done; fi\necho done > out.txt\n"
    project = prepare(project, script, more="budget: {attempt: {time: 2s}}")
    with ended(project.start("run", "goal.yaml")) as first:
        wait_for(lambda: told(project, "agent"))
        agent = int(told(project, "agent"))
        first.send_signal(signal.SIGKILL)
        first.wait()
    began = time.monotonic()
    wait_for(lambda: time.monotonic() - began > 2.5)  # the limit passes while nobody looks
    assert is_running(agent)
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    assert not (notes(project) / "two").exists()
    assert not is_running(agent)
    assert [end["outcome"] for end in attempts(project)] == ["timed_out", "finished"]


def test_tree_7_a_stopped_run_stays_stopped(project: Project) -> None:
    """A wrapper that starts loopd again after a crash only does not start it again after `loopd stop`."""
    project = prepare(project, WRITER)
    # What a service manager with Restart=on-failure and the shipped RestartPreventExitStatus does: only 70 restarts.
    with ended(project.start("run", "goal.yaml")) as loopd:
        wait_for(lambda: told(project, "beat"))
        stopped = project.loopd("stop", "last")
        assert stopped.status == 0, stopped.text
        assert loopd.wait(timeout=20) == 143
    assert json.loads(project.loopd("status", "last", "--json").out)["state"] == "stopped"
    assert marked(project) == []
    resumed = project.loopd("resume", "last")
    assert resumed.status == 2
    assert "final" in resumed.err
    assert launches(project) == 1


def test_tree_11_a_verifier_past_its_limit_is_ended_with_its_children(project: Project) -> None:
    """A wrapper whose child sleeps: both are gone, the verdict is an error that says so, and memory is free."""
    hold = "python3 -c 'import time; x = bytearray(200_000_000); time.sleep(600)'"
    checks = [f"sh -c {json.dumps(f'test ! -f big || {hold}')}", "grep -qx done out.txt"]
    script = 'if [ $N = 1 ]; then touch big; else rm -f big; echo done > out.txt; fi\nls /proc > "$NOTES/ps$N"\n'
    project = prepare(project, script, checks=checks)
    path = project.root / "goal.yaml"
    path.write_text(path.read_text().replace("{name: check-1,", "{name: check-1, timeout: 2s,"))
    project.git("commit", "--quiet", "--all", "--message", "limit")
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    first = next(data["verdict"] for data in project.of_kind("verdict") if data["attempt"] == 1)
    assert first["status"] == "fail"  # the baseline runs fine, so the change broke it
    assert "timed out after 2 s" in first["reason"]
    assert "errs with the change, not without it" in first["flags"]
    during = set(told(project, "ps2").split())
    assert not [pid for pid in during if pid.isdigit() and _sleeps_with_memory(int(pid))]
    assert marked(project) == []


def _sleeps_with_memory(pid: int) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return b"bytearray(200_000_000)" in file.read()
    return False


def _of_kind(project: Project, kind: str) -> bool:
    return kind in _kinds(project)


def _kinds(project: Project) -> list[str]:
    with suppress(OSError, IndexError):
        return [event["kind"] for event in project.events()]
    return []
