"""What follows an attempt: one table, each row a sentence."""

import pytest
from msgspec.structs import replace

from loopd.domain.budget import Allowance, Spent
from loopd.domain.criteria import Assessment
from loopd.domain.decision import (
    Continue,
    Decision,
    Escalate,
    History,
    Met,
    Policy,
    Rung,
    Stop,
    Wait,
    decide,
    next_rung,
)
from loopd.domain.run import State
from loopd.domain.verdict import Status, Verdict

GREEN = {name: Verdict(name, Status.PASS) for name in ("lint", "tests")}
MET = Assessment("t1", ("lint", "tests"), GREEN, confirmed=True)
RED = replace(MET, confirmed=False, verdicts={**GREEN, "tests": Verdict("tests", Status.FAIL)})
UNCONFIRMED = replace(MET, confirmed=False)
BROKEN = replace(RED, broken="tests cannot run here: no python (on the baseline too)")
TAMPERED = replace(MET, tampered="contract.yaml was changed")

ALLOWED = Allowance(attempts=10, time_s=3600.0)
SOME = Spent(attempts=4, time_s=60.0)
LAST = Spent(attempts=10, time_s=60.0)

POLICY = Policy()
KEEPS = Policy(keeps_context=True)
SHORT = Policy(ladder=(Rung.STOP,))
NEVER_STOPS = Policy(ladder=(Rung.REPHRASE,))

ONE_FAILS = "1 of 2 criteria fail: tests"
THRICE = "3 attempts in a row changed nothing"
STALLED = "3 attempts brought no better verdict"
TOUCHED = "ci.yml changed 3 times in a row without effect"

TABLE: dict[str, tuple[History, Assessment, Spent, Policy, Decision]] = {
    "a failing criterion leads to another attempt": (History(), RED, SOME, POLICY, Continue(ONE_FAILS)),
    "all criteria confirmed is met": (History(), MET, SOME, POLICY, Met("all 2 criteria hold")),
    "met on the last allowed attempt is met": (History(), MET, LAST, POLICY, Met("all 2 criteria hold")),
    "met outranks a stall": (History(stalled=9), MET, SOME, POLICY, Met("all 2 criteria hold")),
    "held in the kept tree only is not met": (
        History(),
        UNCONFIRMED,
        SOME,
        POLICY,
        Continue("all criteria hold in the kept tree, not in a fresh one"),
    ),
    "a broken environment blocks, and blames nobody": (
        History(),
        BROKEN,
        SOME,
        POLICY,
        Stop(State.BLOCKED, BROKEN.broken),
    ),
    "a broken environment outranks a spent budget": (
        History(),
        BROKEN,
        LAST,
        POLICY,
        Stop(State.BLOCKED, BROKEN.broken),
    ),
    "tampering within the allowance goes on, and is said": (
        History(tampers=2),
        TAMPERED,
        SOME,
        POLICY,
        Continue("rejected for tampering: contract.yaml was changed"),
    ),
    "tampering over the allowance halts": (
        History(tampers=3),
        TAMPERED,
        SOME,
        POLICY,
        Stop(State.HALTED, "3 attempts tampered with the proof: contract.yaml was changed"),
    ),
    "tampering halts at once where none is allowed": (
        History(tampers=1),
        TAMPERED,
        SOME,
        Policy(tamper=0),
        Stop(State.HALTED, "1 attempts tampered with the proof: contract.yaml was changed"),
    ),
    "a spent budget ends a red run": (
        History(),
        RED,
        LAST,
        POLICY,
        Stop(State.EXHAUSTED, "10 of 10 attempts are used"),
    ),
    "a spent budget outranks a stall": (
        History(stalled=3),
        RED,
        LAST,
        POLICY,
        Stop(State.EXHAUSTED, "10 of 10 attempts are used"),
    ),
    "two attempts without effect go on": (History(no_effect=2), RED, SOME, POLICY, Continue(ONE_FAILS)),
    "three without effect rephrase after a pause": (
        History(no_effect=3),
        RED,
        SOME,
        POLICY,
        Escalate(Rung.REPHRASE, THRICE, 30.0),
    ),
    "three without effect wait when the ladder is used up": (
        History(no_effect=3, rungs=(Rung.REPHRASE,)),
        RED,
        SOME,
        POLICY,
        Wait(30.0, THRICE),
    ),
    "four without effect wait twice as long": (
        History(no_effect=4, rungs=(Rung.REPHRASE,)),
        RED,
        SOME,
        POLICY,
        Wait(60.0, "4 attempts in a row changed nothing"),
    ),
    "a pause is never longer than its cap": (
        History(no_effect=4),
        RED,
        SOME,
        Policy(back_off_cap_s=45.0),
        Wait(45.0, "4 attempts in a row changed nothing"),
    ),
    "five without effect are stuck": (
        History(no_effect=5),
        RED,
        SOME,
        POLICY,
        Stop(State.STUCK, "5 attempts in a row changed nothing"),
    ),
    "two attempts without a better verdict go on": (History(stalled=2), RED, SOME, POLICY, Continue(ONE_FAILS)),
    "three without a better verdict climb to the first rung": (
        History(stalled=3),
        RED,
        SOME,
        POLICY,
        Escalate(Rung.REPHRASE, STALLED),
    ),
    "a fresh start is no rung where every attempt starts fresh": (
        History(stalled=3, rungs=(Rung.REPHRASE,)),
        RED,
        SOME,
        POLICY,
        Stop(State.STUCK, f"{STALLED}, and the ladder is used up"),
    ),
    "a fresh start is the second rung where context is kept": (
        History(stalled=3, rungs=(Rung.REPHRASE,)),
        RED,
        SOME,
        KEEPS,
        Escalate(Rung.FRESH, STALLED),
    ),
    "a ladder of stop is stuck at once": (
        History(stalled=3),
        RED,
        SOME,
        SHORT,
        Stop(State.STUCK, f"{STALLED}, and the ladder is used up"),
    ),
    "a ladder without stop ends all the same": (
        History(stalled=3, rungs=(Rung.REPHRASE,)),
        RED,
        SOME,
        NEVER_STOPS,
        Stop(State.STUCK, f"{STALLED}, and the ladder is used up"),
    ),
    "a protected path touched three times in a row rephrases, and is named": (
        History(restored={"ci.yml": 3, "other": 1}),
        RED,
        SOME,
        POLICY,
        Escalate(Rung.REPHRASE, TOUCHED),
    ),
    "a protected path is named when the run is stalled as well": (
        History(stalled=3, restored={"ci.yml": 3}),
        RED,
        SOME,
        POLICY,
        Escalate(Rung.REPHRASE, f"{STALLED}; {TOUCHED}"),
    ),
    "of many protected paths the first five are named": (
        History(restored={f"f{n}": 3 for n in range(7)}),
        RED,
        SOME,
        POLICY,
        Escalate(Rung.REPHRASE, "f0, f1, f2, f3, f4 and 2 more changed 3 times in a row without effect"),
    ),
    "a fourth time is not said again": (History(restored={"ci.yml": 4}), RED, SOME, POLICY, Continue(ONE_FAILS)),
    "a protected path does not stand in the way of met": (
        History(restored={"ci.yml": 3}),
        MET,
        SOME,
        POLICY,
        Met("all 2 criteria hold"),
    ),
}


@pytest.mark.parametrize(("history", "assessment", "spent", "policy", "decision"), TABLE.values(), ids=TABLE.keys())
def test_what_follows_an_attempt(
    history: History, assessment: Assessment, spent: Spent, policy: Policy, decision: Decision
) -> None:
    assert decide(history, assessment, ALLOWED, spent, policy) == decision


@pytest.mark.parametrize(
    ("ladder", "used", "keeps_context", "rung"),
    [
        ((Rung.REPHRASE, Rung.FRESH, Rung.STOP), (), False, Rung.REPHRASE),
        ((Rung.REPHRASE, Rung.FRESH, Rung.STOP), (Rung.REPHRASE,), True, Rung.FRESH),
        ((Rung.FRESH, Rung.REPHRASE), (), False, Rung.REPHRASE),
        ((Rung.REPHRASE, Rung.STOP, Rung.FRESH), (Rung.REPHRASE,), True, None),
        ((Rung.REPHRASE,), (Rung.REPHRASE,), True, None),
        ((), (), True, None),
    ],
)
def test_the_next_rung_is_the_first_unused_one_that_changes_something(
    ladder: tuple[Rung, ...], used: tuple[Rung, ...], keeps_context: bool, rung: Rung | None
) -> None:
    assert next_rung(ladder, used, keeps_context=keeps_context) is rung
