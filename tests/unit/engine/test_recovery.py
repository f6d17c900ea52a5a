"""A supervisor may die anywhere: the next one goes on from the ledger as if nothing had happened."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from engine_agents import Does, Life, PowerCutError, Script, works
from engine_fakes import World
from engine_trees import Seen, new, parts
from loopd.domain.decision import Policy, Rung
from loopd.domain.record import apply, load
from loopd.domain.run import State
from loopd.domain.verdict import Finding, Status, Verdict
from loopd.ports.requests import RequestKind

DONE = works({"a.py": "new"}, "cost 0.25", lasts_s=3.0)


def tries(number: int, *, edits: dict[str, str | None] | None = None, **more: Any) -> Script:
    """An attempt with an effect that meets nothing."""
    return works({f"try{number}": "x", **(edits or {})}, "cost 0.25", lasts_s=3.0, **more)


def errs_once(seen: Seen) -> Status | bool:
    """Errs with the change of attempt 1, which is no fault of the environment."""
    return Status.ERROR if "try1" in seen.files and "try2" not in seen.files else new(seen)


# --- the scenarios, by what happens in them ---------------------------------------------------------------------------


def met_after_three(folder: Path) -> World:
    return World(folder, tries(1), tries(2), DONE, checks={"new": new, "try1": lambda seen: "try1" in seen.files})


def layers_and_branch(folder: Path) -> World:
    scripts = [works({f"part{n}": "x"}, lasts_s=3.0) for n in (1, 2, 3)]
    return World(folder, *scripts, checks=parts(3), criteria={"p3": {"layer": "slow"}}, goal={"deliver": "branch"})


def exhausted(folder: Path) -> World:
    return World(folder, tries(1), tries(2), tries(3), checks={"new": new}, attempts=3)


def out_of_money(folder: Path) -> World:
    return World(folder, *[tries(n) for n in range(9)], checks={"new": new}, cost_usd=0.9)


def stuck(folder: Path) -> World:
    return World(folder, *[tries(n) for n in range(9)], checks={"new": new}, policy=Policy(ladder=(Rung.STOP,)))


def no_effect_with_waits(folder: Path) -> World:
    return World(folder, *[works({}, lasts_s=3.0)] * 4, DONE, checks={"new": new})


def verifier_errors(folder: Path) -> World:
    return World(folder, tries(1), tries(2, edits={"a.py": "new"}), checks={"new": errs_once})


def owner_edits(folder: Path) -> World:
    """The owner edits a protected file while the first attempt is verified."""

    def check(seen: Seen) -> bool:
        if "try1" in seen.files and "try2" not in seen.files:
            world.workspace.edit({"ci.yml": "owner's new", "README": "hello"})
        return new(seen)

    world = World(folder, tries(1), tries(2), DONE, checks={"new": check})
    return world


def restored_paths(folder: Path) -> World:
    """The same protected path three times in a row: it is put back each time, and the fourth is told otherwise."""
    scripts = [works({"ci.yml": f"mine {n}", f"part{n}": "x"}, lasts_s=3.0) for n in range(1, 5)]
    return World(folder, *scripts, checks=parts(4))


def only_protected_paths(folder: Path) -> World:
    """Attempts whose whole effect is put back again."""
    return World(folder, *[works({"ci.yml": f"mine {n}"}, lasts_s=3.0) for n in range(9)], checks={"new": new})


def tampering(folder: Path) -> World:
    return World(folder, *[tries(n, forges=("contract.yaml",)) for n in range(9)], checks={"new": new})


def steered_and_extended(folder: Path) -> World:
    def ask() -> None:
        world.requests.put(RequestKind.STEER, {"text": "look at a.py"})
        world.requests.put(RequestKind.EXTEND, {"attempts": 1})

    world = World(folder, checks={"new": new}, attempts=1)
    world.scripts = (Script((Does(1.0, {"b": "1"}, ("cost 0.25",), then=ask),), lasts_s=3.0), DONE)
    return world


def stopped(folder: Path) -> World:
    world = World(folder, checks={"new": new})
    stop = Does(1.0, {"b": "1"}, then=lambda: world.requests.put(RequestKind.STOP, {}))
    world.scripts = (Script((stop,), lasts_s=math.inf),)
    return world


def hanging(folder: Path) -> World:
    hangs = Script((Does(0.0, {"b": "1"}, ("cost 0.25",)),), lasts_s=math.inf)
    return World(folder, hangs, DONE, checks={"new": new}, attempt_time_s=30.0, attempt_idle_s=None)


def kept_green(folder: Path) -> World:
    old = {"old": lambda seen: seen.files["a.py"] == "old"}
    return World(folder, checks=old, criteria={"old": {"baseline": "any"}})


def not_reproducible(folder: Path) -> World:
    def fresh_needs_try2(seen: Seen) -> bool:
        return "try1" in seen.files and (seen.kind != "fresh" or "try2" in seen.files)

    return World(folder, tries(1), tries(2), checks={"new": fresh_needs_try2})


def refused(folder: Path) -> World:
    return World(folder, checks={"old": lambda seen: seen.files["a.py"] == "old"})


SCENARIOS: dict[str, Callable[[Path], World]] = {
    scenario.__name__: scenario
    for scenario in (
        met_after_three,
        layers_and_branch,
        exhausted,
        out_of_money,
        stuck,
        no_effect_with_waits,
        verifier_errors,
        owner_edits,
        restored_paths,
        only_protected_paths,
        tampering,
        steered_and_extended,
        stopped,
        hanging,
        kept_green,
        not_reproducible,
        refused,
    )
}


@dataclass(frozen=True)
class End:
    """How a scenario ends, numbers of attempts aside: one that never launched leaves a gap in them."""

    state: State
    exit_status: int
    attempts: int
    launches: int
    cost_usd: float
    files: tuple[tuple[str, str], ...]
    told: tuple[object, ...]  # what each launched attempt was told
    counters: tuple[object, ...]
    attention: tuple[str, ...]
    delivered: bool


def end_of(world: World, state: State, exit_status: int) -> End:
    record = world.record
    by_number = {briefing.attempt: briefing for briefing in world.instructions.briefings}
    launched = [by_number[int(marker.rpartition("/")[2])] for marker in world.launches]
    history = record.history
    return End(
        state,
        exit_status,
        record.spent.attempts,
        len(world.launches),
        round(record.spent.cost_usd, 6),
        tuple(sorted(world.workspace.files.items())),
        tuple((b.rephrase, b.notes, b.restored, b.rejected, b.changed, b.outcome) for b in launched),
        (history.no_effect, history.stalled, history.tampers, history.rungs, tuple(history.restored.values())),
        record.attention,
        bool(record.delivered),
    )


def nothing_was_done_twice(world: World) -> None:
    once = ("attempt.reserved", "attempt.ended", "attempt.captured", "attempt.assessed", "attempt.voided")
    for kind in once:
        assert max(Counter(event["attempt"] for event in world.events(kind)).values(), default=1) == 1, kind
    verdicts = Counter((e["attempt"], e["verdict"]["criterion"], e["fresh"]) for e in world.events("verdict"))
    assert max(verdicts.values(), default=1) == 1
    assert max(Counter(world.launches).values(), default=1) == 1
    heard = [e["request"] for kind in ("owner.steered", "owner.extended") for e in world.events(kind)]
    assert len(heard) == len(set(heard))
    assert world.at_work() == []


def pursued(world: World, life: Life) -> tuple[End, bool]:
    """The end, by a first supervisor that may die and a second that does not; whether the first one died."""
    died = False
    try:
        ending = world.supervise(life)
    except PowerCutError:
        died = True
        world.clock.asleep = lambda seconds: None
        world.clock.advance(5.0)
        ending = world.supervise()
    return end_of(world, ending.state, ending.exit_status), died


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
@pytest.mark.parametrize("when", ["before", "after"])
def test_j2_a_supervisor_that_dies_at_any_event_is_succeeded_by_one_that_reaches_the_same_end(
    tmp_path: Path, scenario: Callable[[Path], World], when: str
) -> None:
    """At every append, before and after it: same end, nothing done twice, never two agents, budgets right."""
    whole = scenario(tmp_path / "whole")
    expected, _ = pursued(whole, Life())
    spent_s = whole.record.spent.time_s
    for number in count(2):
        world = scenario(tmp_path / f"{number}")
        life = Life(dies_before=number) if when == "before" else Life(dies_after=number)
        end, died = pursued(world, life)
        if not died:
            break
        where = f"{when} event {number}, {whole.kinds()[number - 1]}"
        assert end == expected, where
        nothing_was_done_twice(world)
        assert spent_s - 3.0 <= world.record.spent.time_s <= spent_s + 8.0, where
    assert number > len(whole.kinds())


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_j2_a_supervisor_that_dies_in_its_sleep_is_succeeded_as_well(
    tmp_path: Path, scenario: Callable[[Path], World]
) -> None:
    """In the middle of an attempt, of a check, of a wait."""
    expected, _ = pursued(scenario(tmp_path / "whole"), Life())
    for number in count(1):
        world, life, sleeps = scenario(tmp_path / f"{number}"), Life(), count(1)

        def asleep(seconds: float, life: Life = life, sleeps: Any = sleeps, number: int = number) -> None:
            if next(sleeps) == number:
                life.end()

        world.clock.asleep = asleep
        end, died = pursued(world, life)
        if not died:
            break
        assert end == expected, f"sleep {number}"
        nothing_was_done_twice(world)


def test_j2_three_deaths_in_one_run_are_as_good_as_none(tmp_path: Path) -> None:
    """Each supervisor dies a few events after it began."""
    expected, _ = pursued(met_after_three(tmp_path / "whole"), Life())
    world = met_after_three(tmp_path / "cut")
    deaths = 0
    while True:
        try:
            ending = world.supervise(Life(dies_before=len(world.kinds()) + 6))
            break
        except PowerCutError:
            deaths += 1
            world.clock.advance(5.0)
    assert deaths >= 3
    assert end_of(world, ending.state, ending.exit_status) == expected
    nothing_was_done_twice(world)


def test_a_snapshot_and_the_events_after_it_give_the_record_that_all_events_give(tmp_path: Path) -> None:
    """Opening a run of hundreds of attempts does not replay them all."""

    def tests(seen: Seen) -> Verdict:
        left = 102 - seen.attempt
        found = tuple(Finding("red", rule=f"t::{n}") for n in range(left))
        return Verdict("tests", Status.FAIL if left else Status.PASS, findings=found)

    scripts = [works({"a.py": str(n)}, lasts_s=0.0) for n in range(1, 103)]
    world = World(tmp_path, *scripts, checks={"tests": tests}, attempts=200)
    assert world.supervise().state is State.MET
    snapshot = world.ledger.load_snapshot()
    assert snapshot is not None
    record = load(snapshot[1])
    for event in world.ledger.events(snapshot[0]):
        record = apply(record, event.kind, event.data, event.at)
    assert (record, record.number) == (world.record, 102)
