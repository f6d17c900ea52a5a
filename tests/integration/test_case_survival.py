"""J2: loopd dies by SIGKILL at every ledger write, and at random moments. What it was doing still ends the same."""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from cases import attempts, launches, leftovers, notes, prepare, told
from running import Project, ledger, wait_for

DRIVER = Path(__file__).parent / "programs" / "killed_at_every_write.py"
METER = "{command: [sh, agent.sh], usage: {pattern: 'cost=(?P<cost_add>[0-9.]+)'}}"
# Tells the test from outside of loopd when an agent is at work: at no time may there be two.
AGENT = """
last=$(tail -n 1 "$NOTES/agents" 2>/dev/null | cut -d' ' -f2)
[ -n "$last" ] && kill -0 "$last" 2>/dev/null && echo "$$ met $last" >> "$NOTES/two"
echo "start $$" >> "$NOTES/agents"
sleep 0.05
touch "part$N"
echo cost=0.10
echo "end $$" >> "$NOTES/agents"
"""
CHECKS = ["sh -c 'test $(ls part* | wc -l) -ge 3'", "sh -c 'test $(ls part* | wc -l) -ge 5'"]
ATTEMPTS = 5


def five_attempts(project: Project) -> Project:
    """A run that takes five attempts of 0.10 USD to be met."""
    return prepare(project, AGENT, checks=CHECKS, agent=METER, more="budget: {attempts: 8, cost: 3 USD}")


def assert_nothing_was_lost_or_repeated(project: Project) -> None:
    """One ledger, five attempts, each launched once and judged once, each with its price, nothing left alive."""
    # A start that is killed while it makes its folder leaves one without a ledger, which no index knows.
    assert len([folder for folder in project.run_folders() if ledger(folder)]) == 1
    assert launches(project) == ATTEMPTS
    assert told(project, "two") == ""
    words = [line.split()[0] for line in told(project, "agents").splitlines()]
    assert words == ["start", "end"] * ATTEMPTS
    numbers = [end["attempt"] for end in attempts(project)]  # one that was never launched leaves a gap
    assert len(numbers) == ATTEMPTS
    assert numbers == sorted(set(numbers))
    assert [end["outcome"] for end in attempts(project)] == ["finished"] * ATTEMPTS
    verdicts = Counter(
        (data["attempt"], data["verdict"]["criterion"], data["fresh"]) for data in project.of_kind("verdict")
    )
    assert set(verdicts.values()) == {1}
    assert len([key for key in verdicts if not key[2]]) == 2 * ATTEMPTS
    assert [data["attempt"] for data in project.of_kind("attempt.assessed")] == numbers
    for kind in ("run.opened", "preflight.passed", "delivered", "run.ended"):
        assert len(project.of_kind(kind)) == 1, kind
    elapsed = [event["data"]["elapsed_s"] for event in project.events() if "elapsed_s" in event["data"]]
    assert elapsed == sorted(elapsed)
    shown = json.loads(project.loopd("status", "last", "--json").out)
    assert shown["state"] == "met"
    assert shown["budget"]["attempts"] == {"used": ATTEMPTS, "allowed": 8}
    assert shown["budget"]["cost_usd"]["used"] == pytest.approx(0.10 * ATTEMPTS)
    assert not shown["budget"]["cost_usd"]["partial"]
    assert sorted(path.name for path in project.root.glob("part*")) == [f"part{n}" for n in range(1, ATTEMPTS + 1)]
    wait_for(lambda: not leftovers(project))


def killed_at_every_write(project: Project, when: str) -> int:
    """The status of the first process that was not killed."""
    kills = notes(project) / "kills"
    with (notes(project) / "output").open("w") as output:
        done = subprocess.run(
            [sys.executable, str(DRIVER), when, str(kills), "run", "goal.yaml"],
            cwd=project.root,
            env=project.environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=280,
            check=False,
        )
    return done.returncode


@pytest.mark.timeout(300)
@pytest.mark.parametrize("when", ["before", "after"])
def test_j2_killed_at_every_ledger_write(project: Project, when: str) -> None:
    """SIGKILL right before, or right after, every single write of a run of five attempts: the same end."""
    project = five_attempts(project)
    assert killed_at_every_write(project, when) == 0, told(project, "output")[-3000:]
    killed = told(project, "kills").splitlines()
    # Every write of an undisturbed run is among them, and more: those of going on.
    assert {"run.opened", "run.started", "tree.prepared", "preflight.passed", "delivered", "run.ended"} <= set(killed)
    for number in range(1, ATTEMPTS + 1):
        begins = (f"attempt.{part} {number - 1}" for part in ("reserved", "started", "ended"))
        goes_on = (f"{kind} {number}" for kind in ("attempt.captured", "verdict", "attempt.assessed", "decision"))
        for name in (*begins, *goes_on):
            assert any(line.startswith(name) for line in killed), name
    assert_nothing_was_lost_or_repeated(project)


@pytest.mark.timeout(300)
def test_j2_killed_at_every_write_an_exhausted_run_ends_once(project: Project) -> None:
    """Killed between the end and its being told, a run is told as it ended: not reopened, and none is begun anew."""
    project = prepare(project, 'touch "part$N"\n', checks=["false"], more="budget: {attempts: 1}")
    assert killed_at_every_write(project, "after") == 1, told(project, "output")[-3000:]
    assert "run.ended" in told(project, "kills").splitlines()
    assert len(project.run_folders()) == 1
    assert launches(project) == 1
    assert project.of_kind("run.reopened") == []
    assert [data["state"] for data in project.of_kind("run.ended")] == ["exhausted"]
    assert json.loads(project.loopd("status", "last", "--json").out)["state"] == "exhausted"


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_j2_killed_at_random_moments(project: Project, tmp_path: Path) -> None:
    """SIGKILL from outside at random moments; runs that end are examined, and new ones begin."""
    kills, number = int(os.environ.get("LOOPD_CHAOS", "20")), 0
    seed = int(os.environ.get("CHAOS_SEED", "1"))
    moments = random.Random(seed)
    one = project
    while kills > 0:
        number += 1
        root = tmp_path / f"chaos-{number}"
        root.mkdir()
        one = five_attempts(Project(root, tmp_path / f"chaos-{number}-state"))
        kills = _until_met(one, kills, moments)
        assert_nothing_was_lost_or_repeated(one)


def _until_met(project: Project, kills: int, moments: random.Random) -> int:
    """Kill and restart until the run ends by itself; how many kills are left."""
    while True:
        process = project.start("run", "goal.yaml")
        try:
            out, err = process.communicate(timeout=moments.uniform(0.3, 1.8) if kills > 0 else 100)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills -= 1
            if _told_as_met(project):  # killed on its way out
                return kills
            continue
        assert process.returncode == 0, out + err
        return kills


def _told_as_met(project: Project) -> bool:
    """Whether the run has ended for everybody: another start would rightly begin a new one."""
    if not project.run_folders() or not project.of_kind("run.ended"):
        return False
    return bool(json.loads(project.loopd("status", "last", "--json").out)["state"] == "met")
