"""The record is a fold over the ledger: every event of an attempt, and nothing else."""

import pytest

from loopd.domain.attempt import Outcome
from loopd.domain.decision import Rung
from loopd.domain.progress import Score
from loopd.domain.record import Step, best_score, dump_value
from loopd.domain.run import State
from loopd.domain.verdict import Status, Verdict
from record_events import (
    ASSESSED,
    ASSESSED_ONCE,
    AT,
    AT_WORK,
    BASELINE,
    CAPTURED,
    CONTINUE,
    ENDED,
    OPENED,
    PREFLIGHT,
    READY,
    RED,
    RESERVED,
    STARTED,
    Events,
    assessed,
    but,
    fold,
)


def test_an_opened_run_is_ready_and_asks_for_preflight() -> None:
    record = fold(OPENED)
    assert (record.run, record.goal, record.contract_digest) == ("demo-1", "demo", "d1")
    assert (record.state, record.step, record.allowance.attempts) == (State.READY, Step.PREFLIGHT, 5)


def test_a_started_run_is_running_and_forgets_the_signal_that_ended_its_last_process() -> None:
    record = fold(OPENED, ("run.interrupted", {"signal": "SIGINT", "reason": "interrupted by SIGINT"}))
    assert (record.state, record.signal, record.reason) == (State.INTERRUPTED, "SIGINT", "interrupted by SIGINT")
    record = fold(STARTED, record=record)
    assert (record.state, record.signal, record.reason) == (State.RUNNING, "", "")


def test_a_run_resumed_in_a_wait_is_waiting() -> None:
    waiting = ("decision", {"decision": "wait", "reason": "nothing changed", "wait_until": AT})
    record = fold(*ASSESSED_ONCE, waiting, ("run.interrupted", {}), STARTED)
    assert (record.state, record.step, record.wait_until) == (State.WAITING, Step.WAIT, AT)


@pytest.mark.parametrize("state", [State.MET, State.EXHAUSTED])
def test_a_decided_end_survives_the_death_of_the_process_that_decided_it(state: State) -> None:
    decided = ("decision", {"decision": "stop", "state": state, "reason": "why"})
    record = fold(*ASSESSED_ONCE, decided, STARTED)
    assert (record.state, record.reason, record.step) == (state, "why", Step.CLOSE)


def test_the_baseline_is_kept_by_criterion_with_its_stable_tests() -> None:
    record = fold(OPENED, STARTED, BASELINE)
    assert record.baseline_verdicts["tests"].status is Status.FAIL
    assert record.stable_tests == {"tests": ("t::a",)}


def test_a_passed_preflight_asks_for_the_first_launch() -> None:
    record = fold(*READY)
    assert (record.step, record.baseline, record.base, record.last_after) == (Step.LAUNCH, "tree0", "tree0", "tree0")


def test_a_preflight_that_found_the_goal_met_is_done_again_unless_the_decision_follows() -> None:
    record = fold(OPENED, STARTED, BASELINE, but(PREFLIGHT, met=True))
    assert record.step is Step.PREFLIGHT
    record = fold(("decision", {"decision": "met", "state": "met", "reason": "already"}), record=record)
    assert (record.step, record.state) == (Step.CLOSE, State.MET)


def test_a_reserved_attempt_is_at_work_and_uses_up_notes_and_rung_but_no_budget() -> None:
    steered = ("owner.steered", {"text": "look at a.py"})
    climbed = ("decision", {"decision": "escalate", "rung": "rephrase", "reason": "r", "attention": "r"})
    record = fold(*READY, steered, steered, climbed, but(RESERVED, notes_used=1))
    assert (record.step, record.state, record.number) == (Step.WATCH, State.RUNNING, 1)
    assert (record.notes, record.rung) == (("look at a.py",), None)
    assert record.current is not None
    assert (record.current.rung, record.current.notes) == (Rung.REPHRASE, ("look at a.py",))
    assert record.spent.attempts == 0


def test_an_attempt_that_never_launched_uses_nothing_up_and_tells_the_next_what_it_would_have_told() -> None:
    steered = ("owner.steered", {"text": "look at a.py"})
    climbed = ("decision", {"decision": "escalate", "rung": "rephrase", "reason": "r"})
    later = ("owner.steered", {"text": "and at b.py"})
    record = fold(*READY, steered, climbed, but(RESERVED, notes_used=1), later, ("attempt.voided", {"attempt": 1}))
    assert (record.step, record.spent.attempts) == (Step.LAUNCH, 0)
    assert record.notes == ("look at a.py", "and at b.py")
    assert record.rung is Rung.REPHRASE


def test_an_attempt_that_never_launched_leaves_the_last_one_as_it_was() -> None:
    record = fold(*ASSESSED_ONCE, CONTINUE)
    again = fold(but(RESERVED, attempt=2), ("attempt.voided", {"attempt": 2}), record=record)
    assert again.current == record.current
    assert (again.number, again.spent.attempts) == (2, 1)


def test_an_ended_attempt_is_settled_once_and_asks_for_its_capture() -> None:
    record = fold(*AT_WORK, ENDED)
    assert (record.step, record.spent.attempts, record.spent.cost_usd) == (Step.CAPTURE, 1, 0.25)
    assert record.current is not None
    assert (record.current.outcome, record.current.ended) == (Outcome.FINISHED, ("python train.py",))


def test_a_limit_that_was_reached_is_known_before_the_agent_is_ended() -> None:
    ending = ("attempt.ending", {"attempt": 1, "outcome": "timed_out", "reason": "ended after 60 s"})
    record = fold(*AT_WORK, ending)
    assert record.step is Step.WATCH
    assert record.current is not None
    assert (record.current.outcome, record.current.reason) == (Outcome.TIMED_OUT, "ended after 60 s")


def test_an_ended_attempt_that_told_nothing_is_settled_at_its_reserve() -> None:
    record = fold(*AT_WORK, but(ENDED, usage=None))
    assert (record.spent.cost_usd, record.spent.estimated) == (1.0, True)


def test_a_capture_that_is_to_put_files_back_keeps_the_tree_it_found() -> None:
    record = fold(*AT_WORK, ENDED, ("attempt.restoring", {"attempt": 1, "after": "tree1", "paths": ["ci.yml"]}))
    assert record.step is Step.CAPTURE
    assert record.current is not None
    assert record.current.after == "tree1"


def test_a_captured_attempt_asks_for_verification() -> None:
    record = fold(*AT_WORK, ENDED, but(CAPTURED, restored=["ci.yml"], tampered="contract.yaml", workspace="tree2"))
    assert (record.step, record.last_after) == (Step.VERIFY, "tree2")
    assert record.current is not None
    assert (record.current.tree, record.current.changed) == ("tree1", ("a.py",))
    assert (record.current.restored, record.current.tampered) == (("ci.yml",), "contract.yaml")


def test_verdicts_of_the_kept_and_of_the_fresh_tree_are_kept_apart() -> None:
    green = ("verdict", {"attempt": 1, "verdict": dump_value(Verdict("tests", Status.PASS)), "fresh": True})
    record = fold(*AT_WORK, ENDED, CAPTURED, RED, green)
    assert record.current is not None
    assert record.current.verdicts["tests"].status is Status.FAIL
    assert record.current.fresh["tests"].status is Status.PASS


def test_an_assessed_attempt_asks_for_a_decision_and_is_remembered() -> None:
    record = fold(*ASSESSED_ONCE)
    assert (record.step, [summary.number for summary in record.recent]) == (Step.DECIDE, [1])
    assert record.best == record.recent[0]
    assert record.recent[0].failing == ("tests",)


def test_a_broken_environment_is_no_attempt_to_remember() -> None:
    record = fold(*AT_WORK, ENDED, CAPTURED, RED, but(ASSESSED, broken="no python"))
    assert (record.step, record.broken, record.recent, record.best) == (Step.DECIDE, "no python", (), None)


@pytest.mark.parametrize(
    ("attempts", "no_effect", "stalled", "best"),
    [
        ([assessed(0)], 0, 1, 1),
        ([assessed(0), assessed(0)], 0, 2, 1),
        ([assessed(0), assessed(1)], 0, 0, 2),
        ([assessed(1), assessed(0), assessed(1)], 0, 2, 1),
        ([assessed(0, effect=False)], 1, 0, None),
        ([assessed(0, effect=False), assessed(0, effect=False)], 2, 0, None),
        ([assessed(0, effect=False), assessed(0)], 0, 1, 2),
        ([assessed(0), assessed(0, outcome="interrupted")], 0, 1, 1),
        ([assessed(0, effect=False), assessed(0, effect=False, outcome="interrupted")], 1, 0, None),
        ([assessed(0), assessed(1, outcome="interrupted")], 0, 0, 2),
        ([assessed(5, tampered="forged")], 0, 1, None),
    ],
)
def test_stalls_and_attempts_without_effect_are_counted_by_verdicts(
    attempts: list[Events], no_effect: int, stalled: int, best: int | None
) -> None:
    numbered = [but(event, attempt=n) for n, events in enumerate(attempts, 1) for event in events]
    record = fold(*READY, *numbered)
    assert (record.history.no_effect, record.history.stalled) == (no_effect, stalled)
    assert (record.best.number if record.best else None) == best


def test_better_means_better_than_the_baseline_too() -> None:
    record = fold(OPENED, STARTED, BASELINE, but(PREFLIGHT, score={"met": 1, "spared": 0}))
    assert best_score(record) == Score(1, 0)
    record = fold(*assessed(1), record=record)
    assert (record.history.stalled, best_score(record)) == (1, Score(1, 0))
    record = fold(*assessed(2), record=record)
    assert (record.history.stalled, best_score(record)) == (0, Score(2, 0))


def test_the_same_protected_path_is_counted_only_in_a_row() -> None:
    record = fold(*READY, *assessed(restored=["ci.yml", "x"]), *assessed(restored=["ci.yml"]))
    assert record.history.restored == {"ci.yml": 2}
    record = fold(*assessed(restored=["x"]), record=record)
    assert record.history.restored == {"x": 1}


def test_tampering_is_counted() -> None:
    record = fold(*READY, *assessed(tampered="forged"), *assessed(), *assessed(tampered="forged"))
    assert record.history.tampers == 2


def test_a_decision_to_continue_asks_for_a_launch() -> None:
    record = fold(*ASSESSED_ONCE, CONTINUE)
    assert (record.step, record.state, record.reason) == (Step.LAUNCH, State.RUNNING, "1 of 1 criteria fail: tests")


def test_a_climbed_rung_clears_the_stall_and_is_said() -> None:
    climbed = ("decision", {"decision": "escalate", "rung": "rephrase", "reason": "r", "attention": "r"})
    record = fold(*READY, *assessed(), *assessed(), climbed)
    assert (record.rung, record.history.rungs, record.history.stalled) == (Rung.REPHRASE, (Rung.REPHRASE,), 0)
    assert record.attention == ("r",)


def test_a_rung_climbed_again_is_no_new_chance_and_does_not_grow_the_record() -> None:
    climbed = ("decision", {"decision": "escalate", "rung": "rephrase", "reason": "r"})
    record = fold(*READY, *assessed(), climbed, *assessed(), climbed)
    assert (record.rung, record.history.rungs, record.history.stalled) == (Rung.REPHRASE, (Rung.REPHRASE,), 1)


def test_a_better_verdict_gives_the_whole_ladder_back() -> None:
    climbed = ("decision", {"decision": "escalate", "rung": "rephrase", "reason": "r"})
    assert fold(*READY, *assessed(0), climbed, *assessed(1)).history.rungs == ()
