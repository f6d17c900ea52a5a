"""The record as it is kept: whole after dump and load, and bounded."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from loopd.domain.record import KEPT, Record, apply, dump, dump_value, load
from loopd.domain.verdict import Finding, Metric, Status, Verdict
from record_events import ASSESSED, AT, AT_WORK, BASELINE, CAPTURED, CONTINUE, ENDED, READY, RESERVED, Events, but, fold

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
