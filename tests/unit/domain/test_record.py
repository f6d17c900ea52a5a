"""The record is a fold over the ledger: every event kind, nothing else, and bounded."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from loopd.domain.attempt import Outcome
from loopd.domain.budget import Allowance, Reserve
from loopd.domain.decision import Rung
from loopd.domain.progress import Score
from loopd.domain.record import KEPT, Record, Step, apply, best_score, dump, dump_value, load
from loopd.domain.run import State
from loopd.domain.verdict import Finding, Metric, Status, Verdict

AT = "2026-01-02T03:04:05.000Z"
Events = list[tuple[str, dict[str, Any]]]

OPENED = (
    "run.opened",
    {
        "run": "demo-1",
        "goal": "demo",
        "contract_digest": "d1",
        "allowance": dump_value(Allowance(attempts=5, time_s=600.0, cost_usd=10.0)),
    },
)
STARTED = ("run.started", {"resumed": False})
BASELINE = ("baseline.verdict", {"verdict": dump_value(Verdict("tests", Status.FAIL)), "stable_tests": ["t::a"]})
PREFLIGHT = ("preflight.passed", {"baseline": "tree0", "score": {"met": 0, "spared": 0}, "met": False})
RESERVED = (
    "attempt.reserved",
    {
        "attempt": 1,
        "before": "tree0",
        "base": "tree0",
        "reserve": dump_value(Reserve(60.0, cost_usd=1.0)),
        "instruction": "attempts/0001/instruction.md",
        "digest": "x",
        "notes_used": 0,
    },
)
ENDED = (
    "attempt.ended",
    {
        "attempt": 1,
        "outcome": "finished",
        "reason": "",
        "exit": {"status": 0},
        "usage": {"cost_usd": 0.25},
        "ended": ["python train.py"],
    },
)
CAPTURED = (
    "attempt.captured",
    {
        "attempt": 1,
        "after": "tree1",
        "workspace": "tree1",
        "tree": "tree1",
        "effect": True,
        "outcome": "finished",
        "changed": ["a.py"],
        "restored": [],
        "unproven": ["notes.txt"],
        "tampered": "",
    },
)
RED = ("verdict", {"attempt": 1, "verdict": dump_value(Verdict("tests", Status.FAIL)), "fresh": False})
ASSESSED = (
    "attempt.assessed",
    {
        "attempt": 1,
        "score": {"met": 0, "spared": -1},
        "fingerprint": "f",
        "failing": ["tests"],
        "met": False,
        "broken": "",
        "tampered": "",
    },
)
CONTINUE = ("decision", {"decision": "continue", "reason": "1 of 1 criteria fail: tests"})
READY = [OPENED, STARTED, BASELINE, PREFLIGHT]
AT_WORK = [*READY, RESERVED]
ASSESSED_ONCE = [*AT_WORK, ENDED, CAPTURED, RED, ASSESSED]


def fold(*events: tuple[str, Mapping[str, Any]], record: Record | None = None) -> Record:
    record = record or Record()
    for kind, data in events:
        record = apply(record, kind, data, AT)
    return record


def but(event: tuple[str, dict[str, Any]], **changed: Any) -> tuple[str, dict[str, Any]]:
    return event[0], {**event[1], **changed}


def stop(state: str) -> tuple[str, dict[str, Any]]:
    return "decision", {"decision": "stop", "state": state, "reason": "why"}


def assessed(score: int = 0, **changed: Any) -> Events:
    """One more attempt, from its reservation to its assessment."""
    captured = {key: changed.pop(key) for key in ("effect", "outcome", "restored") if key in changed}
    met = {"met": score, "spared": 0}
    return [RESERVED, ENDED, but(CAPTURED, **captured), RED, but(ASSESSED, score=met, **changed)]


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


RICH = Verdict(
    "tests",
    Status.FAIL,
    summary="2 failed \udcff",
    exit=1,
    metrics={"line_percent": Metric(81.5, "%", "higher")},
    findings=(Finding("boom", rule="t::a", file="a.py", line=3),),
    tests=("t::a", "t::b"),
    flags=("flaky",),
)
HALF = ("decision", {"decision": "escalate", "rung": "rephrase", "reason": "r", "wait_until": AT, "attention": "r"})
ONE_OF_EACH: Events = [
    *READY,
    ("owner.steered", {"text": "note", "request": 1}),
    RESERVED,
    ("attempt.ending", {"attempt": 1, "outcome": "finished", "reason": "finished, did not exit"}),
    ENDED,
    ("attempt.restoring", {"attempt": 1, "after": "tree1", "paths": []}),
    but(CAPTURED, restored=["ci.yml"]),
    ("verdict", {"attempt": 1, "verdict": dump_value(RICH), "fresh": False}),
    ("verdict", {"attempt": 1, "verdict": dump_value(RICH), "fresh": True}),
    ASSESSED,
    HALF,
    ("wait.ended", {"waited_s": 3.0, "elapsed_s": 12.5}),
    ("run.interrupted", {"signal": "SIGTERM", "reason": "r"}),
]


def test_a_record_survives_dump_and_load_at_every_event() -> None:
    record = Record()
    for kind, data in ONE_OF_EACH:
        record = apply(record, kind, data, AT)
        assert load(json.loads(json.dumps(dump(record)))) == record


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*ONE_OF_EACH, CONTINUE]), max_size=30), st.integers(0, 30))
def test_going_on_from_a_snapshot_gives_what_replaying_everything_gives(later: Events, cut: int) -> None:
    """Whatever the events and wherever the snapshot was taken."""
    events = [*AT_WORK, *later]
    whole = fold(*events)
    snapshot = load(json.loads(json.dumps(dump(fold(*events[:cut])))))
    assert fold(*events[cut:], record=snapshot) == whole


def size(record: Record) -> int:
    return len(json.dumps(dump(record)))


def test_the_record_does_not_grow_with_the_number_of_attempts() -> None:
    """A run of thousands of attempts is held in the same few kilobytes."""
    climbed = ("decision", {"decision": "escalate", "rung": "rephrase", "reason": "r", "attention": "r"})
    one = [
        ("owner.steered", {"text": "note", "request": 1}),
        but(RESERVED, notes_used=1),
        ENDED,
        but(CAPTURED, restored=["ci.yml"]),
        ("verdict", {"attempt": 1, "verdict": dump_value(RICH), "fresh": False}),
        ASSESSED,
        climbed,
    ]
    record = fold(*READY)
    for _ in range(KEPT):
        record = fold(*one, record=record)
    full = size(record)
    for _ in range(200):
        record = fold(*one, record=record)
    assert size(record) < full + 100  # a few more digits
    assert len(record.recent) == len(record.attention) == len(record.heard) == KEPT


def test_a_verdict_survives_its_event() -> None:
    again = fold(but(BASELINE, verdict=json.loads(json.dumps(dump_value(RICH))))).baseline_verdicts["tests"]
    assert again == replace(RICH, criterion="tests")
