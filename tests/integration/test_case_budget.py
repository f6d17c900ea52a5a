"""BUD: what a run may spend, through the real command line."""

import json
import re
import signal

import pytest

from cases import attempts, before_attempt_1, launches, outcomes, prepare, told
from running import Project, ended, wait_for

METER = """{command: [sh, agent.sh], usage: {pattern: 'cost=(?P<cost_add>[0-9.]+)'}}"""
MISSPELT = [
    ["run", "goal.yaml", "--max-iterations=3"],
    ["run", "--max-iterations", "3", "goal.yaml"],
    ["run", "goal.yaml", "--attemps", "3"],
    ["run", "goal.yaml", "--attempts"],
    ["run", "--attempts=0", "goal.yaml"],
    ["run", "goal.yaml", "--time=30"],
]


@pytest.mark.parametrize("words", MISSPELT, ids=" ".join)
def test_bud_1_misspelt_option_starts_nothing(project: Project, words: list[str]) -> None:
    """An unknown or misplaced option, or a value without its unit: usage, status 2, and nothing was started."""
    project = prepare(project, "echo done > out.txt\n")
    ran = project.loopd(*words)
    assert ran.status == 2, ran.text
    assert ran.out == ""
    assert launches(project) == 0
    assert project.run_folders() == []
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("words", [["goal.yaml", "--attempts", "3"], ["--attempts=3", "goal.yaml"]], ids=" ".join)
def test_bud_1_effective_budget_is_printed_before_attempt_1(project: Project, words: list[str]) -> None:
    """With a space or `=`, before the contract or after it: the flag holds, and is named as the source."""
    project = prepare(project, "true\n")
    ran = project.loopd("run", *words)
    assert ran.status == 1, ran.text
    assert launches(project) == 3
    assert "setting budget.attempts: 3 (flag --attempts)" in before_attempt_1(ran.out)


def test_bud_2_without_a_budget_the_defaults_end_the_run(project: Project) -> None:
    """An agent that does nothing for ever, no budget written: named finite defaults, and the run ends."""
    project = prepare(project, "exit 0\n")
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 3, ran.text
    assert launches(project) == 5
    defaults = before_attempt_1(ran.out).partition("by default: ")[2]
    for name, value in (("attempts", "20"), ("time", "4h"), ("attempt.time", "45m"), ("attempt.idle", "20m")):
        assert f"budget.{name} {value} \u00b7" in defaults, ran.out
    assert "budget.cost unlimited" in defaults


@pytest.mark.parametrize("word", ["unlimited", "off", "0", ".inf", "~"])
def test_bud_2_nothing_lifts_all_limits_at_once(project: Project, word: str) -> None:
    """Attempts and time take no value that means "no limit"."""
    more = f"budget: {{attempts: {word}, time: {word}}}"
    ran = prepare(project, "true\n", more=more).loopd("run", "goal.yaml")
    assert ran.status == 2, ran.text
    assert "budget.attempts" in ran.err
    assert "budget.time" in ran.err


def test_bud_3_a_killed_attempt_costs_what_was_seen(project: Project) -> None:
    """Usage by message and never a final result: the sum of what was seen is booked, marked partial."""
    script = 'while :; do echo cost=0.10 | tee -a "$NOTES/spent"; sleep 0.3; done\n'
    more = "budget: {attempts: 1, cost: 5 USD, attempt: {time: 2s}}"
    project = prepare(project, script, agent=METER, more=more)
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 1, ran.text
    (end,) = attempts(project)
    assert end["outcome"] == "timed_out"
    seen = 0.10 * len(told(project, "spent").splitlines())
    assert seen >= 0.3
    assert end["usage"]["cost_usd"] == pytest.approx(seen)
    assert end["usage"]["partial"]
    cost = json.loads(project.loopd("status", "last", "--json").out)["budget"]["cost_usd"]
    assert cost == {"used": pytest.approx(seen), "allowed": 5.0, "partial": True, "estimated": False}


def test_bud_3_with_nothing_seen_the_reserve_is_booked(project: Project) -> None:
    """No usage at all: the reserved amount of each attempt is booked, marked estimated."""
    project = prepare(
        project, "sleep 600\n", agent=METER, more="budget: {attempts: 2, cost: 5 USD, attempt: {time: 1s}}"
    )
    assert project.loopd("run", "goal.yaml").status == 1
    reserves = [data["reserve"]["cost_usd"] for data in project.of_kind("attempt.reserved")]
    cost = json.loads(project.loopd("status", "last", "--json").out)["budget"]["cost_usd"]
    assert cost == {"used": pytest.approx(sum(reserves)), "allowed": 5.0, "partial": False, "estimated": True}
    assert sum(reserves) > 0


def test_bud_4_a_restart_counts_nothing_twice(project: Project) -> None:
    """0.60 of 1.00 spent, loopd stopped and started: attempt 2 runs, and 0.90 stands everywhere."""
    script = (
        'if [ $N = 1 ]; then echo cost=0.60; touch "$NOTES/up"; sleep 600; fi\necho cost=0.30\necho done > out.txt\n'
    )
    project = prepare(project, script, agent=METER, more="budget: {cost: 1 USD}")
    with ended(project.start("run", "goal.yaml")) as first:
        wait_for(lambda: told(project, "up") == "" and launches(project) == 1 and _printed(project))
        first.send_signal(signal.SIGTERM)
        assert first.wait(timeout=20) == 143
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    assert launches(project) == 2
    assert [end["usage"]["cost_usd"] for end in attempts(project)] == [0.60, 0.30]
    assert json.loads(project.loopd("status", "last", "--json").out)["budget"]["cost_usd"]["used"] == pytest.approx(0.9)
    for view in (project.loopd("status", "last").out, project.loopd("show", "last").out):
        assert re.search(r"0\.90? of 1(\.00)? USD", view), view


def test_bud_6_no_launch_below_the_cheapest_attempt(project: Project) -> None:
    """Each launch costs 0.12 whatever it does, the cap is 0.30: two launches, and the message says why no third."""
    project = prepare(project, 'echo cost=0.12; touch "part$N"\n', agent=METER, more="budget: {cost: 0.30 USD}")
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 1, ran.text
    assert launches(project) == 2
    assert outcomes(project) == ["finished", "finished"]
    assert "0.06 USD are left, less than the cheapest attempt so far (0.12 USD)" in ran.out


def _printed(project: Project) -> bool:
    log = project.run_folders()[-1] / "attempts" / "0001" / "stdout.log"
    return log.exists() and b"cost=0.60" in log.read_bytes()
