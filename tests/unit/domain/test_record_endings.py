"""The record at the end of a run and after it: waits, endings, reopening, amending, and the owner's words."""

import pytest

from loopd.domain.budget import Allowance
from loopd.domain.record import Step, dump_value, load
from loopd.domain.run import State
from record_events import (
    ASSESSED,
    ASSESSED_ONCE,
    AT,
    AT_WORK,
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
    stop,
)


def test_a_wait_is_counted_apart_from_the_time_spent() -> None:
    waiting = ("decision", {"decision": "wait", "reason": "r", "wait_until": AT, "elapsed_s": 5.0})
    record = fold(*ASSESSED_ONCE, waiting)
    assert (record.step, record.state, record.wait_until) == (Step.WAIT, State.WAITING, AT)
    record = fold(("wait.ended", {"waited_s": 30.0, "elapsed_s": 5.0}), record=record)
    assert (record.step, record.state, record.wait_until) == (Step.LAUNCH, State.RUNNING, "")
    assert (record.waited_s, record.spent.time_s) == (30.0, 5.0)


@pytest.mark.parametrize(
    ("before", "state", "resumes_at"),
    [
        ([OPENED, STARTED], State.BLOCKED, Step.PREFLIGHT),
        (AT_WORK, State.BLOCKED, Step.WATCH),
        ([*AT_WORK, ENDED, CAPTURED], State.BLOCKED, Step.VERIFY),
        ([*ASSESSED_ONCE, stop("blocked")], State.BLOCKED, Step.VERIFY),
        ([*ASSESSED_ONCE, stop("stuck")], State.STUCK, Step.LAUNCH),
        ([*READY, stop("exhausted")], State.EXHAUSTED, Step.LAUNCH),
    ],
)
def test_an_ended_run_is_over_and_a_reopened_one_goes_on_where_it_stopped(
    before: Events, state: State, resumes_at: Step
) -> None:
    record = fold(*before, ("run.ended", {"state": state, "reason": "why"}))
    assert (record.step, record.state, record.reason) == (Step.OVER, state, "why")
    assert fold(STARTED, record=record).state is state
    record = fold(("run.reopened", {}), STARTED, record=record)
    assert (record.step, record.state, record.reason) == (resumes_at, State.RUNNING, "")


def test_a_run_reopened_at_verification_verifies_the_same_attempt_anew() -> None:
    broken = [*AT_WORK, ENDED, CAPTURED, RED, but(ASSESSED, broken="no python")]
    blocked = [("decision", {"decision": "stop", "state": "blocked", "reason": "no python"})]
    record = fold(*broken, *blocked, ("run.ended", {"state": "blocked", "reason": "no python"}), ("run.reopened", {}))
    assert (record.step, record.broken, record.spent.attempts) == (Step.VERIFY, "", 1)
    assert record.current is not None
    assert record.current.verdicts == record.current.fresh == {}


def test_reopening_is_a_new_decision_so_the_counters_begin_anew_and_history_and_best_stay() -> None:
    stuck = ("run.ended", {"state": "stuck", "reason": "s"})
    record = fold(*READY, *assessed(1), *assessed(1, tampered="forged"), stuck, ("run.reopened", {}))
    assert (record.history.stalled, record.history.tampers, record.history.rungs) == (0, 0, ())
    assert len(record.recent) == 2
    assert record.best is not None
    assert (record.best.number, record.spent.attempts) == (1, 2)


def test_a_block_that_is_mended_forgives_the_agent_nothing() -> None:
    blocked = ("run.ended", {"state": "blocked", "reason": "no agent"})
    record = fold(*READY, *assessed(tampered="forged"), CONTINUE, blocked, ("run.reopened", {}))
    assert (record.history.tampers, record.history.stalled) == (1, 1)


def test_the_owners_words_are_kept_once() -> None:
    more = dump_value(Allowance(attempts=15, time_s=600.0))
    record = fold(
        *READY,
        ("owner.steered", {"text": "note", "request": 1}),
        ("owner.extended", {"allowance": more, "by": {"attempts": 10}, "request": 2}),
        ("attention", {"text": "look here", "request": 3}),
        ("delivered", {"text": "branch loopd/demo-1"}),
    )
    assert (record.notes, record.heard, record.attention) == (("note",), (1, 2, 3), ("look here",))
    assert (record.allowance.attempts, record.delivered) == (15, "branch loopd/demo-1")


def test_an_amended_contract_is_measured_anew_and_no_earlier_verdict_counts_for_it() -> None:
    edited = but(RESERVED, base="tree0+owner")
    amended = ("owner.amended", {"contract_digest": "d2", "allowance": dump_value(Allowance(attempts=9, time_s=9.0))})
    ended = ("run.ended", {"state": "stuck", "reason": "s"})
    record = fold(*READY, edited, ENDED, CAPTURED, RED, ASSESSED, ended, amended, ("run.reopened", {}))
    assert (record.step, record.contract_digest, record.allowance.attempts) == (Step.PREFLIGHT, "d2", 9)
    assert (record.best, record.baseline_verdicts, record.stable_tests) == (None, {}, {})
    assert [summary.tree for summary in record.recent] == [""]
    record = fold(PREFLIGHT, record=record)
    assert (record.base, record.last_after) == ("tree0+owner", "tree1")


AMENDED = ("owner.amended", {"contract_digest": "d2", "allowance": dump_value(Allowance(attempts=9, time_s=9.0))})


@pytest.mark.parametrize("before", [[*READY], [*AT_WORK, ENDED, CAPTURED], ASSESSED_ONCE, [*AT_WORK, ENDED]])
def test_a_run_that_is_amended_while_it_is_interrupted_measures_the_baseline_first(before: Events) -> None:
    """No verdict of the new contract is ever compared with a baseline that nobody measured."""
    record = fold(*before, ("run.interrupted", {"signal": "SIGINT"}), AMENDED, STARTED)
    if record.step is Step.CAPTURE:
        record = fold(CAPTURED, record=record)
    assert record.step is Step.PREFLIGHT


def test_time_only_ever_grows_whatever_the_order_of_processes() -> None:
    record = fold(OPENED, ("anything", {"elapsed_s": 7.0}), ("anything", {"elapsed_s": 3.0}))
    assert record.spent.time_s == 7.0


def test_an_unknown_event_changes_nothing() -> None:
    assert fold(("tree.prepared", {"files": 3}), record=fold(OPENED)) == fold(OPENED)


def test_an_event_about_an_attempt_before_any_was_reserved_is_refused() -> None:
    with pytest.raises(ValueError, match="before it reserved one"):
        fold(*READY, ENDED)


def test_a_dump_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="step"):
        load({"step": "dancing"})
