"""Events of a ledger, for the tests of what they make of a record."""

from collections.abc import Mapping
from typing import Any

from loopd.domain.budget import Allowance, Reserve
from loopd.domain.record import Record, apply, dump_value
from loopd.domain.verdict import Status, Verdict

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
