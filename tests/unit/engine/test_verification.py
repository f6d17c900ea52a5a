"""From a captured tree to verdicts: cheap first, cached by tree, errors traced, confirmed on a fresh tree."""

from pathlib import Path

import pytest

from engine_agents import works
from engine_fakes import World
from engine_trees import Seen, new, parts
from loopd.domain.run import State
from loopd.domain.verdict import Finding, Status, Verdict

DONE = works({"a.py": "new"})


def checked(world: World, *, attempt: int, kind: str = "kept") -> list[str]:
    """The criteria that ran for an attempt, in order."""
    return [name for name, where, number in world.verifiers.ran if number == attempt and where == kind]


# --- errors ----------------------------------------------------------------------------------------------------------


def test_h7_an_error_is_tried_again_and_a_pass_then_is_a_pass(tmp_path: Path) -> None:
    """The first error may have been the machine's."""
    answers = [Status.ERROR]

    def flaky(seen: Seen) -> Status | bool:
        return answers.pop() if seen.attempt == 1 and answers else new(seen)

    world = World(tmp_path, DONE, checks={"new": flaky})
    assert world.supervise().state is State.MET
    assert checked(world, attempt=1) == ["new", "new"]


def test_h7_an_error_with_the_change_and_not_without_it_is_a_fail(tmp_path: Path) -> None:
    """The change broke the check: the agent is told, the loop goes on."""

    def breaks(seen: Seen) -> Status | bool:
        return Status.ERROR if "broken" in seen.files else new(seen)

    world = World(tmp_path, works({"broken": "x"}), works({"broken": None, "a.py": "new"}), checks={"new": breaks})
    assert world.supervise().state is State.MET
    verdict = world.events("verdict")[0]["verdict"]
    assert (verdict["status"], verdict["flags"]) == ("fail", ["errs with the change, not without it"])
    assert checked(world, attempt=1, kind="baseline") == ["new"]


def test_h7_an_error_without_the_change_too_blocks_with_the_budget_unspent(tmp_path: Path) -> None:
    """The environment broke: nobody is blamed, nothing more is launched, and the same attempt is verified again."""
    machine = {"broken": False}

    def needs_docker(seen: Seen) -> Verdict | bool:
        broken = Verdict("new", Status.ERROR, reason="no docker daemon")
        return broken if machine["broken"] and seen.attempt else new(seen)

    def breaks(run: object, kind: str) -> None:
        machine["broken"] = machine["broken"] or kind == "attempt.captured"

    world = World(tmp_path, DONE, checks={"new": needs_docker})
    world.watchers.append(breaks)
    ending = world.supervise()
    assert (ending.state, ending.exit_status) == (State.BLOCKED, 5)
    assert ending.reason == "new cannot run here: no docker daemon (on the baseline too)"
    assert (len(world.launches), world.record.spent.attempts, world.record.recent) == (1, 1, ())
    machine["broken"] = False
    world.watchers.clear()
    world.reopen()
    assert world.supervise().state is State.MET
    assert (len(world.launches), world.record.spent.attempts) == (1, 1)


def test_h7_an_error_in_the_confirmation_is_traced_as_well(tmp_path: Path) -> None:
    """Only there, and not on the baseline: it is the change's, and not reproducible."""

    def errs_fresh(seen: Seen) -> Status | bool:
        return Status.ERROR if seen.kind == "fresh" else new(seen)

    world = World(tmp_path, DONE, checks={"new": errs_fresh}, attempts=1)
    assert world.supervise().state is State.EXHAUSTED
    verdict = world.events("verdict")[-1]["verdict"]
    assert verdict["flags"] == ["errs with the change, not without it", "not reproducible"]


@pytest.mark.parametrize("status", [Status.ERROR, Status.SKIP, Status.FAIL])
def test_h7_nothing_but_a_pass_is_ever_met(tmp_path: Path, status: Status) -> None:
    """A skip never counts as met, nor does an error that only the change has."""
    world = World(
        tmp_path,
        DONE,
        checks={"new": lambda seen: status if seen.attempt and new(seen) and seen.kind == "kept" else False},
        attempts=1,
    )
    assert world.supervise().state is State.EXHAUSTED


def test_a_change_that_breaks_the_setup_is_a_fail_that_says_so(tmp_path: Path) -> None:
    scripts = [works({"requirements.txt": "nonsense"}), works({"requirements.txt": None, "a.py": "new"})]
    world = World(tmp_path, *scripts, checks={"new": new})
    world.workspace.setup_breaks_on = "requirements.txt"
    assert world.supervise().state is State.MET
    verdict = world.events("verdict")[0]["verdict"]
    assert (verdict["status"], verdict["summary"]) == ("fail", "the setup fails with this change: pip install fails")


# --- layers, needs, cache --------------------------------------------------------------------------------------------


def layered(**layers: str) -> dict[str, dict[str, str]]:
    return {name: {"layer": layer} for name, layer in layers.items()}


def test_a_later_layer_does_not_run_while_an_earlier_one_fails(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        works({"part1": "x"}),
        works({"part2": "x"}),
        works({"part3": "x", "b": "x"}),
        checks=parts(3),
        criteria=layered(p3="slow", p1="fast"),
    )
    assert world.supervise().state is State.MET
    assert [checked(world, attempt=n) for n in (1, 2, 3)] == [["p1", "p2"], ["p1", "p2", "p3"], ["p1", "p2", "p3"]]


def test_all_criteria_of_one_layer_run_even_when_one_fails(tmp_path: Path) -> None:
    world = World(tmp_path, works({"part3": "x"}), checks=parts(3), attempts=1)
    world.supervise()
    assert checked(world, attempt=1) == ["p1", "p2", "p3"]


def test_a_criterion_waits_for_those_it_needs_in_whatever_order_they_are_written(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        works({"part1": "x"}),
        works({"part2": "x"}),
        checks=parts(2),
        criteria={"p1": {"needs": ["p2"]}},
    )
    assert world.supervise().state is State.MET
    assert [checked(world, attempt=n) for n in (1, 2)] == [["p2"], ["p2", "p1"]]


def test_a_step_forward_counts_although_the_baseline_held_in_a_layer_that_was_not_reached(tmp_path: Path) -> None:
    """The baseline is scored as an attempt would be: what a failing layer hides does not outshine real progress."""
    checks = {**parts(2), "slow1": lambda seen: True, "slow2": lambda seen: "part1" in seen.files}
    world = World(
        tmp_path,
        *[works({f"part{n}": "x"}) for n in (1, 2)],
        checks=checks,
        criteria=layered(slow1="slow", slow2="slow"),
    )
    assert world.supervise().state is State.MET
    assert world.events("preflight.passed")[0]["score"] == {"met": 0, "spared": 0}
    assert [briefing.rephrase for briefing in world.instructions.briefings] == [False, False]
    assert world.record.recent[0].score.met == 1
    assert world.record.history.stalled == 0


def test_a_verdict_is_not_asked_for_again_on_the_same_tree(tmp_path: Path) -> None:
    world = World(tmp_path, works({"b": "1"}), works({}), works({"b": None}), DONE, checks={"new": new})
    assert world.supervise().state is State.MET
    assert [checked(world, attempt=n) for n in (1, 2, 3)] == [["new"], [], []]
    cached = [event["verdict"]["cached"] for event in world.events("verdict") if not event["fresh"]]
    assert cached == [False, True, True, False]


def test_the_final_confirmation_is_never_taken_from_the_cache(tmp_path: Path) -> None:
    world = World(tmp_path, works({"part1": "x"}), works({"part2": "x"}), checks=parts(2))
    assert world.supervise().state is State.MET
    assert checked(world, attempt=2, kind="fresh") == ["p1", "p2"]


def test_weak_verification_looks_at_the_live_workspace_and_says_so(tmp_path: Path) -> None:
    world = World(tmp_path, works({"b": "1"}), works({}), DONE, checks={"new": new}, goal={"verification": "workspace"})
    world.workspace.weak = True
    assert world.supervise().state is State.MET
    assert {kind for _, kind, _ in world.verifiers.ran} == {"live"}
    assert checked(world, attempt=2, kind="live") == ["new"]
    assert world.record.delivered.endswith("(weak boundary)")


# --- confirmation ----------------------------------------------------------------------------------------------------


def poisoned(seen: Seen) -> bool:
    """Green in a tree where an earlier check left something, whatever the code."""
    green = new(seen) or "cache" in seen.left
    if "poison" in seen.files:
        seen.left["cache"] = "green"
    return green


def test_what_holds_in_the_used_tree_only_is_not_reproducible_and_the_tree_is_rebuilt(tmp_path: Path) -> None:
    poisons, waits = works({"poison": "x"}), works({"poison": None, "b": "x"})
    world = World(tmp_path, poisons, waits, DONE, checks={"new": poisoned})
    assert world.supervise().state is State.MET
    assert world.workspace.rebuilds == 1
    second = [event for event in world.events("verdict") if event["attempt"] == 2]
    assert [(event["fresh"], event["verdict"]["status"]) for event in second] == [(False, "pass"), (True, "fail")]
    assert second[1]["verdict"]["flags"] == ["not reproducible"]
    assert [event["met"] for event in world.events("attempt.assessed")] == [False, False, True]


def test_a_confirmation_stops_at_the_first_criterion_that_does_not_hold(tmp_path: Path) -> None:
    checks = {"first": lambda seen: new(seen) and seen.kind != "fresh", "second": new}
    world = World(tmp_path, DONE, checks=checks, attempts=1)
    assert world.supervise().state is State.EXHAUSTED
    assert checked(world, attempt=1, kind="fresh") == ["first"]


def test_a_red_confirmation_is_no_cached_verdict(tmp_path: Path) -> None:
    """An attempt that finds nothing to change is judged again on the rebuilt tree, in full."""
    fails_once = [False]

    def once(seen: Seen) -> bool:
        return fails_once.pop() if seen.kind == "fresh" and fails_once else new(seen)

    world = World(tmp_path, DONE, works({}), checks={"new": once})
    assert world.supervise().state is State.MET
    assert (checked(world, attempt=2), checked(world, attempt=2, kind="fresh")) == (["new"], ["new"])


# --- tests of the baseline -------------------------------------------------------------------------------------------


def suite(*tests: str, skipped: tuple[str, ...] = (), holds: bool = True) -> Verdict:
    return Verdict("new", Status.PASS if holds else Status.FAIL, tests=tests, skipped=skipped)


REPORT = {"new": {"report": "{out}/junit.xml"}}


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (suite("t::a"), "t::b ran on the baseline and is missing now"),
        (suite("t::a", skipped=("t::b",)), "t::b is skipped now"),
    ],
)
def test_a_green_suite_that_lost_a_test_of_the_baseline_is_red(tmp_path: Path, now: Verdict, message: str) -> None:
    def tests(seen: Seen) -> Verdict:
        return now if new(seen) else suite("t::a", "t::b", holds=False)

    world = World(tmp_path, DONE, checks={"new": tests}, criteria=REPORT, attempts=1)
    assert world.supervise().state is State.EXHAUSTED
    verdict = world.events("verdict")[0]["verdict"]
    assert (verdict["status"], verdict["summary"]) == ("fail", message)


def test_a_green_suite_with_every_stable_test_is_green(tmp_path: Path) -> None:
    """What ran in one of the two baseline runs only was never stable; what may go may go; new tests may come."""
    baseline = [suite("t::a", "t::old", holds=False), suite("t::a", "t::once", "t::old", holds=False)]

    def tests(seen: Seen) -> Verdict:
        return suite("t::a", "t::added") if new(seen) else baseline.pop()

    criteria = {"new": {"report": {"file": "{out}/junit.xml", "may_go": ["t::old"]}}}
    world = World(tmp_path, DONE, checks={"new": tests}, criteria=criteria)
    assert world.supervise().state is State.MET
    measured = world.events("baseline.verdict")[0]
    assert (measured["stable_tests"], measured["unstable_tests"]) == (["t::a", "t::old"], ["t::once"])


def test_a_second_baseline_run_that_errs_does_not_disarm_the_rule(tmp_path: Path) -> None:
    """An error would leave no stable test at all; so it is tried again, and if it stays, the run is blocked."""
    answers = [suite("t::a", holds=False), *[Verdict("new", Status.ERROR, reason="killed")] * 9]
    world = World(tmp_path, DONE, checks={"new": lambda seen: answers.pop(0)}, criteria=REPORT)
    ending = world.supervise()
    assert (ending.state, len(world.launches)) == (State.BLOCKED, 0)
    assert "new cannot run on the baseline: killed" in ending.reason


def test_fewer_failing_tests_are_a_step_forward(tmp_path: Path) -> None:
    def tests(seen: Seen) -> Verdict:
        left = [n for n in range(8) if f"fix{n}" not in seen.files]
        found = tuple(Finding("red", rule=f"t::{n}") for n in left)
        return Verdict("tests", Status.FAIL if left else Status.PASS, findings=found)

    world = World(tmp_path, *[works({f"fix{n}": "x"}) for n in range(8)], checks={"tests": tests})
    assert world.supervise().state is State.MET
    assert not any(briefing.rephrase for briefing in world.instructions.briefings)
