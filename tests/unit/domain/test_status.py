"""One look at a run, as JSON."""

import json

from msgspec.structs import replace

from loopd.domain.attempt import Outcome
from loopd.domain.budget import Allowance, Reserve, Spent
from loopd.domain.progress import Score
from loopd.domain.record import Current, Record, Step, Summary
from loopd.domain.run import State
from loopd.domain.status import standing, status
from loopd.domain.verdict import Status, Verdict

RED = Verdict("tests", Status.FAIL, summary="3 failed")
GREEN = Verdict("tests", Status.PASS)
NEW = Record(run="demo-1", goal="demo", allowance=Allowance(attempts=5, time_s=600.0))
AT_WORK = replace(
    NEW,
    number=2,
    state=State.RUNNING,
    baseline_verdicts={"tests": RED},
    current=Current(2, "t0", Reserve(60.0), "", 0.0, verdicts={"tests": RED}),
    best=Summary(1, Outcome.FINISHED, "t1", Score(1, 0), "f", True, verdicts={"tests": GREEN}),
    spent=Spent(
        attempts=1, time_s=61.26, cost_usd=0.1 + 0.2, cost_known=True, tokens=7, tokens_known=True, partial=True
    ),
)


def look(record: Record, active_s: float = 0.0) -> dict[str, object]:
    return status(record, ("tests",), active_s=active_s, contract="goals/demo.yaml", workspace="/w")


def test_a_new_run_knows_nothing_yet_and_says_so() -> None:
    seen = look(NEW)
    assert seen["criteria"] == [
        {"name": "tests", "now": None, "baseline": None, "best": None, "summary": "", "holds": False}
    ]
    assert (seen["state"], seen["attempt"], seen["best"], seen["next"]) == ("ready", 0, None, "loopd resume demo-1")


def test_unknown_cost_and_tokens_are_null_and_never_zero() -> None:
    budget = look(NEW)["budget"]
    assert isinstance(budget, dict)
    assert budget["cost_usd"] == {"used": None, "allowed": None, "partial": False, "estimated": False}
    assert budget["tokens"] == {"used": None, "allowed": None}


def test_a_run_at_work_shows_each_criterion_now_before_and_at_best() -> None:
    seen = look(AT_WORK)
    assert seen["criteria"] == [
        {"name": "tests", "now": "fail", "baseline": "fail", "best": "pass", "summary": "3 failed", "holds": False}
    ]
    assert seen["best"] == {"attempt": 1, "met": 1, "of": 1}
    assert seen["next"] == "loopd logs demo-1 -f"


def test_a_verdict_of_the_fresh_tree_outranks_that_of_the_kept_one() -> None:
    assert AT_WORK.current is not None
    seen = look(replace(AT_WORK, current=replace(AT_WORK.current, fresh={"tests": GREEN})))["criteria"]
    assert isinstance(seen, list)
    assert (seen[0]["now"], seen[0]["holds"]) == ("pass", True)


def test_bud_4_what_is_used_is_shown_once_and_rounded_for_people() -> None:
    """The total of the record, neither forgotten nor counted twice; the clock of a live process may be ahead."""
    budget = look(AT_WORK)["budget"]
    assert isinstance(budget, dict)
    assert budget["attempts"] == {"used": 1, "allowed": 5}
    assert budget["time_s"] == {"used": 61.3, "allowed": 600.0}
    assert budget["cost_usd"] == {"used": 0.3, "allowed": None, "partial": True, "estimated": False}
    assert budget["tokens"] == {"used": 7, "allowed": None}
    ahead = look(AT_WORK, active_s=70.0)["budget"]
    assert isinstance(ahead, dict)
    assert ahead["time_s"]["used"] == 70.0


def test_a_status_is_json() -> None:
    assert json.loads(json.dumps(look(AT_WORK))) == look(AT_WORK)


def test_j2_a_decided_end_counts_once_it_is_recorded() -> None:
    """Between the decision and `run.ended` a run is still at work: a crash there must leave it open to resume."""
    decided = replace(AT_WORK, state=State.MET, step=Step.CLOSE)
    assert standing(decided) is State.RUNNING
    assert look(decided)["state"] == "running"
    over = replace(decided, step=Step.OVER)
    assert standing(over) is State.MET
    assert look(over)["state"] == "met"
