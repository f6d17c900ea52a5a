"""STATE: whose run it is, where its files lie, and how it goes on."""

import json
import os
import signal
import subprocess
from contextlib import suppress

import pytest

from cases import launches, marked, notes, outcomes, picture, prepare, told, with_env
from running import Project, ended, wait_for

HELD = 'touch "$NOTES/up"; while [ -z "$FREE" ] && [ ! -f "$NOTES/go" ]; do sleep 0.02; done\n'


def test_state_3_an_agent_that_deletes_everything_hidden(project: Project) -> None:
    """`git clean -fdx` and `rm -rf` on every folder with a dot: the run goes on, nothing of loopd's was in the tree."""
    script = 'git clean -fdxq; for d in .[a-z]*; do rm -rf "$d"; done\n[ $N = 2 ] && echo done > out.txt; exit 0\n'
    project = prepare(project, script, files={".hidden/file": "x\n", "sub/.dot": "y\n"})
    before = {path for path in picture(project.root) if not path.startswith(".git")}
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    assert launches(project) == 2
    assert set(picture(project.root)) - before == {"out.txt"}  # and no folder of loopd's
    assert json.loads(project.loopd("status", "last", "--json").out)["state"] == "met"


def test_state_5_the_same_goal_twice(project: Project) -> None:
    """Two starts 0 to 200 ms apart, again and again: one runs, the other names it with status 6 and leaves no trace."""
    project = prepare(project, HELD + "echo done > out.txt\n")
    times = 20 if "LOOPD_CHAOS" in os.environ else 4
    for number in range(times):
        for name in ("up", "go", "count"):
            (notes(project) / name).unlink(missing_ok=True)
        (project.root / "out.txt").unlink(missing_ok=True)
        first = project.start("run", "--new", "goal.yaml")
        with ended(first):
            with suppress(subprocess.TimeoutExpired):  # the delay is the case
                first.wait(timeout=0.2 * number / times or 0.0001)
            with ended(project.start("run", "--new", "goal.yaml")) as second:
                two = (first, second)
                wait_for(lambda: [one for one in two if one.poll() is not None])  # noqa: B023
                (loser,) = [one for one in two if one.returncode is not None]
                (winner,) = [one for one in two if one.returncode is None]
                assert loser.returncode == 6, loser.stderr.read() if loser.stderr else ""
                assert str(winner.pid) in (loser.stderr.read() if loser.stderr else "")
                wait_for(lambda: (notes(project) / "up").exists())
                (notes(project) / "go").touch()
                assert winner.wait(timeout=30) == 0
        assert launches(project) == 1
        assert len(project.run_folders()) == number + 1
    assert not (project.state / "crashes").exists()


def test_state_5_two_goals_in_one_tree(project: Project) -> None:
    """Another goal in the same tree is refused with status 6, naming the holder; nothing changed. A clone is fine."""
    project = prepare(project, HELD + "echo done > out.txt\n")
    text = (project.root / "goal.yaml").read_text()
    (project.root / "other.yaml").write_text(text.replace("goal: case", "goal: other"))
    project.git("add", "--all")
    project.git("commit", "--quiet", "--message", "another goal")
    with ended(project.start("run", "goal.yaml")) as first:
        wait_for(lambda: (notes(project) / "up").exists())
        (holder,) = project.run_folders()
        before, ledger = picture(project.root), (holder / "ledger.ndjson").read_bytes()
        refused = project.loopd("run", "other.yaml")
        assert refused.status == 6
        assert holder.name in refused.err
        assert str(first.pid) in refused.err
        assert "--clone" in refused.err
        assert project.run_folders() == [holder]
        assert picture(project.root) == before
        assert (holder / "ledger.ndjson").read_bytes() == ledger
        cloned = with_env(project, {"FREE": "1"}).loopd("run", "--clone", "other.yaml")
        assert cloned.status == 0, cloned.text
        assert first.poll() is None
        (notes(project) / "go").touch()
        assert first.wait(timeout=30) == 0


def test_state_6_interrupted_and_resumed_three_times(project: Project) -> None:
    """The same run, numbers that go on, the evidence of every part kept."""
    script = 'touch "$NOTES/up$N"; [ $N -ge 4 ] && echo done > out.txt; touch "part$N"\n'
    wait = 'while [ ! -f "$NOTES/go$N" ]; do sleep 0.02; done\n'
    project = prepare(project, script + wait)
    for number, word in enumerate(("run", "resume", "run"), start=1):
        with ended(project.start(word, *(["goal.yaml"] if word == "run" else []))) as loopd:
            wait_for(lambda: (notes(project) / f"up{number}").exists())  # noqa: B023
            (notes(project) / f"go{number}").touch()
            loopd.send_signal(signal.SIGINT)
            assert loopd.wait(timeout=30) == 130, number
    (notes(project) / "go4").touch()
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    assert "resuming" in ran.err
    (folder,) = project.run_folders()
    assert [data["attempt"] for data in project.of_kind("attempt.reserved")] == [1, 2, 3, 4]
    assert [data["attempt"] for data in project.of_kind("attempt.assessed")] == [1, 2, 3, 4]
    for number in range(1, 5):
        assert (folder / "attempts" / f"{number:04d}" / "instruction.md").is_file()
        assert (folder / "attempts" / f"{number:04d}" / "stdout.log").is_file()
    assert outcomes(project) == ["finished"] * 4


ENDS = {
    "interrupted": (HELD, "", 143, True),
    "exhausted": ('touch "part$N"\n', "budget: {attempts: 1}", 1, False),
    "met": ("echo done > out.txt\n", "", 0, False),
}


@pytest.mark.parametrize("end", ENDS)
def test_state_7_only_an_interrupted_run_is_resumed(project: Project, end: str) -> None:
    """After a signal the next start goes on with the run; after an end of any kind it starts anew. It never asks."""
    script, more, status, resumes = ENDS[end]
    project = prepare(project, script, more=more)
    with ended(project.start("run", "goal.yaml")) as loopd:
        if end == "interrupted":
            wait_for(lambda: (notes(project) / "up").exists())
            loopd.send_signal(signal.SIGTERM)
        assert loopd.wait(timeout=30) == status
    assert marked(project) == []
    offered = json.loads(project.loopd("status", "last", "--json").out)
    assert (offered["next"].startswith("loopd resume")) == resumes
    (notes(project) / "go").touch()
    (project.root / "out.txt").unlink(missing_ok=True)
    again = project.loopd("run", "goal.yaml")  # its stdin is closed: a question would end it
    assert ("resuming" in again.err) == resumes
    assert len(project.run_folders()) == (1 if resumes else 2)
    assert "?" not in again.text
    assert told(project, "count") != ""


def test_state_7_the_last_end_is_said_and_not_held_against_the_next(project: Project) -> None:
    """A new start after "stuck" runs without any flag, and says how the last one ended."""
    project = prepare(project, '[ "$WORKS" ] && echo done > out.txt; exit 0\n')
    assert project.loopd("run", "goal.yaml").status == 3
    ran = with_env(project, {"WORKS": "1"}).loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    assert "stuck" in ran.err
