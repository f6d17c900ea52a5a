"""Before the first attempt: the baseline is measured, and a goal that cannot tell done from now is refused."""

from pathlib import Path

import pytest

from engine_agents import works
from engine_fakes import World
from engine_trees import Seen, new
from loopd.domain.run import State
from loopd.domain.verdict import Status, Verdict

DONE = works({"a.py": "new"})


def old(seen: Seen) -> bool:
    return seen.files["a.py"] == "old"


@pytest.mark.parametrize(
    ("checks", "criteria", "words"),
    [
        ({"old": old}, {}, "every criterion already holds: nothing here tells done from now"),
        ({"old": old, "new": new}, {"old": {"baseline": "fail"}}, "criterion old passes before any attempt"),
        ({"new": new}, {"new": {"baseline": "pass"}}, "criterion new fails before any attempt (new says fail)"),
        ({"old": old, "b": old}, {"b": {"baseline": "any"}}, "every criterion already holds"),
    ],
    ids=["all hold", "promised to fail", "promised to pass", "one of two may hold"],
)
def test_a_goal_that_cannot_tell_done_from_now_is_refused_before_anything_is_launched(
    tmp_path: Path, checks: dict[str, object], criteria: dict[str, dict[str, str]], words: str
) -> None:
    world = World(tmp_path, DONE, checks=checks, criteria=criteria)  # type: ignore[arg-type]
    ending = world.supervise()
    assert (ending.state, ending.exit_status, len(world.launches)) == (State.REFUSED, 2, 0)
    assert words in ending.reason
    assert "baseline: any" in ending.reason


@pytest.mark.parametrize("baseline", ["any", "pass"])
def test_a_goal_that_is_kept_green_is_met_without_an_attempt(tmp_path: Path, baseline: str) -> None:
    world = World(tmp_path, checks={"old": old}, criteria={"old": {"baseline": baseline}})
    ending = world.supervise()
    assert (ending.state, len(world.launches)) == (State.MET, 0)
    assert ending.reason == "all criteria hold already; no attempt was needed"


def test_a_goal_that_was_met_before_is_met_without_an_attempt(tmp_path: Path) -> None:
    world = World(tmp_path, checks={"old": old}, criteria={"old": {"baseline": "fail"}})
    world.met_before = True
    assert (world.supervise().state, len(world.launches)) == (State.MET, 0)


def test_a_goal_that_is_to_be_kept_green_and_is_red_is_pursued(tmp_path: Path) -> None:
    world = World(tmp_path, DONE, checks={"new": new}, criteria={"new": {"baseline": "any"}})
    assert (world.supervise().state, len(world.launches)) == (State.MET, 1)


@pytest.mark.parametrize("lacks", ["agent", "setup"])
def test_what_the_machine_lacks_blocks_before_the_first_attempt_and_can_be_mended(tmp_path: Path, lacks: str) -> None:
    world = World(tmp_path, DONE, checks={"new": new})
    world.missing, world.workspace.setup_fails = lacks == "agent", "pip" if lacks == "setup" else ""
    ending = world.supervise()
    assert (ending.state, ending.exit_status, world.record.spent.attempts) == (State.BLOCKED, 5, 0)
    assert world.events("run.ended")[0]["remedy"].endswith("loopd resume last")
    world.missing, world.workspace.setup_fails = False, ""
    world.reopen()
    assert world.supervise().state is State.MET


def test_a_program_that_goes_missing_at_launch_blocks_with_the_budget_unspent(tmp_path: Path) -> None:
    world = World(tmp_path, DONE, checks={"new": new})
    world.ledger.append("owner.steered", {"text": "look at a.py"})

    def uninstall(run: object, kind: str) -> None:
        world.missing = kind == "attempt.reserved"

    world.watchers.append(uninstall)
    assert (world.supervise().state, world.record.spent.attempts) == (State.BLOCKED, 0)
    world.missing = False
    world.watchers.clear()
    world.reopen()
    assert world.supervise().state is State.MET
    assert (world.record.spent.attempts, world.launches) == (1, ["demo-k3f9/2"])
    assert world.instructions.briefings[-1].notes == ("look at a.py",)


def test_a_verifier_that_errs_on_the_baseline_blocks_with_the_line_that_mends_it(tmp_path: Path) -> None:
    """Preflight explains itself by trying: one relaxation at a time."""

    def needs_env(seen: Seen) -> Verdict:
        status = Status.FAIL if seen.kind == "environment: {carry: [.env]}" else Status.ERROR
        return Verdict("new", status, reason="no .env")

    world = World(tmp_path, checks={"new": needs_env})
    world.workspace.relaxed = ("environment: {network: host}", "environment: {carry: [.env]}")
    ending = world.supervise()
    assert (ending.state, len(world.launches)) == (State.BLOCKED, 0)
    assert ending.reason == "criterion new cannot run on the baseline: no .env"
    remedy = world.events("run.ended")[0]["remedy"]
    assert remedy == "it runs with this line in the contract: environment: {carry: [.env]}"


def test_a_verifier_that_nothing_mends_blocks_and_says_where_its_output_lies(tmp_path: Path) -> None:
    world = World(tmp_path, checks={"new": lambda seen: Status.ERROR})
    assert world.supervise().state is State.BLOCKED
    remedy = world.events("run.ended")[0]["remedy"]
    assert remedy == f"see {tmp_path}/checks/baseline-again-new, mend it, then loopd resume demo-k3f9"


def test_a_criterion_that_compares_with_the_baseline_is_given_its_tree(tmp_path: Path) -> None:
    world = World(tmp_path, DONE, checks={"new": new}, criteria={"new": {"run": ["diff", "{baseline}", "."]}})
    assert world.supervise().state is State.MET
