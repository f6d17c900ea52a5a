"""Limits of the run and of one attempt: which ends first, what is booked, and what is silence."""

import math
from pathlib import Path
from typing import Any

import pytest

from engine_agents import HANGS, Does, Script, works
from engine_fakes import World
from engine_trees import new, parts
from loopd.domain.attempt import Outcome
from loopd.domain.run import State
from loopd.domain.terms import BudgetTerms
from loopd.engine.run import Run


def busy_with(number: int, *says: str, lasts_s: float = 60.0) -> Script:
    """An attempt with an effect that meets nothing."""
    return works({f"try{number}": "x"}, *says, lasts_s=lasts_s)


def outcomes(world: World) -> list[str]:
    return [event["outcome"] for event in world.events("attempt.captured")]


# --- the budget of the run -------------------------------------------------------------------------------------------

ENDS: dict[str, tuple[dict[str, Any], int, str]] = {
    "attempts": ({"attempts": 2}, 2, "2 of 2 attempts are used"),
    "time": ({"time_s": 150.0}, 3, "of 150 s are used"),
    "cost": ({"cost_usd": 0.5}, 2, "0.10 USD are left, less than the cheapest attempt so far (0.20 USD)"),
    "tokens": ({"tokens": 200}, 2, "200 of 200 tokens are used"),
}


@pytest.mark.parametrize(("allowance", "launches", "words"), ENDS.values(), ids=ENDS.keys())
def test_g7_whichever_budget_ends_first_stops_the_run(
    tmp_path: Path, allowance: dict[str, Any], launches: int, words: str
) -> None:
    """Attempts, time, cost, tokens: each of them ends it, and is named."""
    scripts = [busy_with(number, "cost 0.20", "tokens 100") for number in range(3)]
    world = World(tmp_path, *scripts, checks={"new": new}, **allowance)
    ending = world.supervise()
    assert (ending.state, len(world.launches)) == (State.EXHAUSTED, launches)
    assert words in ending.reason


def test_g7_a_verification_at_work_is_finished_when_the_time_is_over(tmp_path: Path) -> None:
    """Limits stop the run, never mid-verify: what was done in time is judged, and may be met."""
    world = World(tmp_path, works({"a.py": "new"}), checks={"new": new}, time_s=700.0)
    world.verifiers.lasts_s = 600.0
    assert world.supervise().state is State.MET
    assert world.record.spent.time_s > 700.0


def test_g7_an_attempt_gets_no_more_time_than_the_run_has_left(tmp_path: Path) -> None:
    world = World(tmp_path, busy_with(1), HANGS, checks={"new": new}, time_s=100.0, attempt_idle_s=None)
    assert world.supervise().state is State.EXHAUSTED
    assert [event["reserve"]["time_s"] for event in world.events("attempt.reserved")] == pytest.approx(
        [99.0, 38.0], abs=1
    )
    assert world.record.spent.time_s == pytest.approx(100.0, abs=3.0)


def test_g7_the_cost_never_passes_the_limit_by_more_than_one_attempts_cap(tmp_path: Path) -> None:
    """An attempt at work is ended when it reaches its cap, or when the run reaches its limit."""
    spends = Script(tuple(Does(float(n), {"log": str(n)}, ("cost 0.30",)) for n in range(1, 100)), lasts_s=200.0)
    world = World(tmp_path, spends, checks={"new": new}, cost_usd=5.0, attempt_cost_usd=2.0)
    ending = world.supervise()
    assert (ending.state, set(outcomes(world))) == (State.EXHAUSTED, {Outcome.OVER_BUDGET})
    costs = [event["usage"]["cost_usd"] for event in world.events("attempt.ended")]
    assert all(cost < 2.0 + 0.30 + 1e-9 for cost in costs)
    assert 5.0 - 0.30 <= world.record.spent.cost_usd < 5.0 + 2.0
    assert "USD reached the 2.00 USD of one attempt" in world.events("attempt.ended")[0]["reason"]


def test_g7_tokens_end_an_attempt_at_work(tmp_path: Path) -> None:
    """The run's tokens are looked at while the agent works."""
    talks = Script(tuple(Does(float(n), {}, ("tokens 100",)) for n in range(1, 100)), lasts_s=200.0)
    world = World(tmp_path, talks, checks={"new": new}, tokens=1000)
    assert world.supervise().state is State.EXHAUSTED
    assert (outcomes(world), world.record.spent.tokens) == ([Outcome.OVER_BUDGET], 1000)


def test_bud_2_a_goal_without_any_budget_ends_by_a_finite_default(tmp_path: Path) -> None:
    """Attempts and time are always finite, whatever is said of cost and tokens; an endless agent is ended."""
    terms = BudgetTerms()
    assert (terms.attempts, terms.time_s, terms.cost_usd, terms.tokens) == (20, 14400.0, None, None)
    scripts = [works({f"part{n}": "x"}, lasts_s=0.0) for n in range(1, 31)]
    world = World(tmp_path, *scripts, checks=parts(30), attempts=terms.attempts, time_s=terms.time_s)
    ending = world.supervise()
    assert (ending.state, len(world.launches)) == (State.EXHAUSTED, 20)
    assert ending.reason.startswith("20 of 20 attempts are used")


def test_bud_3_an_attempt_that_times_out_is_booked_at_what_was_seen(tmp_path: Path) -> None:
    """Usage told message by message is kept, flagged partial, when there was no final result."""
    spends = Script(tuple(Does(float(n), {}, ("cost 0.10",)) for n in range(1, 10)), lasts_s=math.inf)
    world = World(tmp_path, spends, checks={"new": new}, attempts=1, attempt_time_s=5.0)
    world.supervise()
    spent = world.record.spent
    assert outcomes(world) == [Outcome.TIMED_OUT]
    assert spent.cost_usd == pytest.approx(0.5, abs=0.11)
    assert (spent.partial, spent.estimated) == (True, False)


def test_bud_3_an_attempt_that_told_nothing_is_booked_at_its_reserve(tmp_path: Path) -> None:
    """Flagged estimated; never at zero."""
    world = World(tmp_path, busy_with(1), checks={"new": new}, attempts=1, cost_usd=10.0, attempt_cost_usd=2.0)
    world.supervise()
    spent = world.record.spent
    assert (spent.cost_usd, spent.partial, spent.estimated) == (2.0, False, True)


def test_bud_3_what_an_agent_says_after_the_first_signal_is_booked(tmp_path: Path) -> None:
    """Some agents tell their usage only when they are interrupted."""
    tells = Script(lasts_s=math.inf, last_words=("cost 1.25",))
    world = World(tmp_path, tells, checks={"new": new}, attempts=1, attempt_time_s=5.0, attempt_idle_s=None)
    world.supervise()
    assert world.record.spent.cost_usd == 1.25


def test_bud_3_the_agents_own_sum_outranks_what_was_seen_on_the_way(tmp_path: Path) -> None:
    """Reported in the way the contract names."""
    world = World(tmp_path, busy_with(1, "cost 0.10", "total 0.35"), checks={"new": new}, attempts=1)
    world.supervise()
    assert world.record.spent.cost_usd == 0.35


def test_bud_4_a_resumed_run_counts_its_earlier_spend_once(tmp_path: Path) -> None:
    """Budget 1.00; 0.60 in one process, 0.30 in the next: the second attempt runs, and the total is 0.90."""
    scripts = [busy_with(1, "cost 0.60"), busy_with(2, "cost 0.30")]
    world = World(tmp_path, *scripts, checks={"new": new}, attempts=2, cost_usd=1.0)

    def interrupt(run: Run, kind: str) -> None:
        if kind == "decision" and len(world.launches) == 1:
            run.interrupt("SIGTERM", at_once=True)

    world.watchers.append(interrupt)
    assert world.supervise().state is State.INTERRUPTED
    assert world.record.spent.cost_usd == pytest.approx(0.60)
    assert world.supervise().state is State.EXHAUSTED
    assert len(world.launches) == 2
    assert world.record.spent.cost_usd == pytest.approx(0.90)


def test_bud_6_what_is_left_does_not_buy_the_cheapest_launch(tmp_path: Path) -> None:
    """0.12 a launch, 0.30 in all: two launches; the third is refused, and the message says why."""
    world = World(tmp_path, *[busy_with(n, "cost 0.12") for n in range(9)], checks={"new": new}, cost_usd=0.30)
    ending = world.supervise()
    assert (ending.state, len(world.launches)) == (State.EXHAUSTED, 2)
    assert "0.06 USD are left, less than the cheapest attempt so far (0.12 USD)" in ending.reason


# --- the end of one attempt ------------------------------------------------------------------------------------------


def test_hang_2_an_agent_that_has_finished_and_does_not_exit_is_ended_after_a_grace(tmp_path: Path) -> None:
    """Ten seconds after its final event; its cost is whole, and what it did can be met."""
    stays = Script((Does(5.0, {"a.py": "new"}, ("cost 5.57", "final")),), lasts_s=math.inf)
    world = World(tmp_path, stays, checks={"new": new}, attempt_idle_s=None)
    assert world.supervise().state is State.MET
    ended = world.events("attempt.ended")[0]
    assert (ended["outcome"], ended["reason"]) == (Outcome.FINISHED, "finished, did not exit")
    assert ended["exit"]["duration_s"] == pytest.approx(15.0, abs=2.0)
    assert (world.record.spent.cost_usd, world.record.spent.partial) == (5.57, False)


def test_hang_2_an_agent_that_leaves_within_the_grace_has_left_by_itself(tmp_path: Path) -> None:
    """The grace is a limit, not a wait."""
    leaves = Script((Does(5.0, {"a.py": "new"}, ("final",)),), lasts_s=8.0)
    world = World(tmp_path, leaves, checks={"new": new})
    assert world.supervise().state is State.MET
    assert (world.events("attempt.ended")[0]["reason"], world.events("attempt.ended")[0]["signals"]) == ("", [])


def test_hang_4_a_silent_agent_is_ended_at_the_idle_limit_and_the_next_one_works(tmp_path: Path) -> None:
    """Three lines, then nothing: no bytes, no processor time, no change. The outcome is idle; the next is told."""
    stalls = Script((Does(1.0, {}, ("a", "b", "c")),), lasts_s=math.inf)
    world = World(tmp_path, stalls, works({"a.py": "new"}), checks={"new": new}, attempt_idle_s=300.0)
    assert world.supervise().state is State.MET
    assert outcomes(world) == [Outcome.IDLE, Outcome.FINISHED]
    ended = world.events("attempt.ended")[0]
    assert ended["exit"]["duration_s"] == pytest.approx(301.0, abs=8.0)
    assert ended["signals"] == ["SIGINT"]
    assert world.instructions.briefings[1].outcome is Outcome.IDLE


def test_hang_5_a_hang_uses_up_no_more_than_its_limit(tmp_path: Path) -> None:
    """One of three attempts hangs for ever: it costs the run its idle limit and nothing more."""
    scripts = [busy_with(1), HANGS, works({"a.py": "new"})]
    world = World(tmp_path, *scripts, checks={"new": new}, attempt_idle_s=300.0)
    assert world.supervise().state is State.MET
    assert world.record.spent.time_s < 60.0 + 310.0 + 60.0 + 20.0


def test_hang_6_changes_in_the_workspace_are_signs_of_life(tmp_path: Path) -> None:
    """An agent that prints nothing and writes a file every three seconds is not idle after eight."""
    quiet = Script(tuple(Does(float(n), {f"f{n}": "x"}) for n in range(0, 60, 3)), lasts_s=60.0)
    world = World(tmp_path, quiet, checks={"f": lambda seen: "f57" in seen.files}, attempt_idle_s=8.0)
    assert world.supervise().state is State.MET
    assert outcomes(world) == [Outcome.FINISHED]


def test_hang_6_what_an_ended_agent_had_written_stays(tmp_path: Path) -> None:
    """Ended for another reason, its files are kept and judged."""
    writes = Script((Does(1.0, {"a.py": "new"}),), lasts_s=math.inf)
    world = World(tmp_path, writes, checks={"new": new}, attempt_time_s=30.0)
    assert world.supervise().state is State.MET
    assert outcomes(world) == [Outcome.TIMED_OUT]


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        (Script((Does(20.0, {"a.py": "new"}),), lasts_s=20.0), Outcome.IDLE),
        (Script((Does(20.0, {"a.py": "new"}),), lasts_s=20.0, busy=0.5), Outcome.FINISHED),
        (Script(tuple(Does(float(n), {}, ("still here",)) for n in range(20)), lasts_s=20.0), Outcome.FINISHED),
        (Script(tuple(Does(float(n), {f"f{n}": "x"}) for n in range(20)), lasts_s=20.0), Outcome.FINISHED),
        (Script(lasts_s=20.0, busy=0.001), Outcome.IDLE),
    ],
    ids=["nothing", "processor", "output", "changes", "timers of an idle runtime"],
)  # fmt: skip
def test_hang_7_silence_is_the_absence_of_three_signals(tmp_path: Path, script: Script, outcome: Outcome) -> None:
    """Who sets eight seconds gets eight seconds, unless bytes, processor time or changes say otherwise."""
    world = World(tmp_path, script, checks={"new": new}, attempts=1, attempt_idle_s=8.0)
    world.supervise()
    assert world.events("attempt.ended")[0]["outcome"] == outcome


@pytest.mark.parametrize("idle_s", [1200.0, None])
def test_hang_7_twenty_silent_seconds_are_nothing_by_default(tmp_path: Path, idle_s: float | None) -> None:
    """A model that thinks is silent; the default is well above that, and can be switched off."""
    thinks = Script((Does(20.0, {"a.py": "new"}),), lasts_s=20.0)
    world = World(tmp_path, thinks, checks={"new": new}, attempt_idle_s=idle_s)
    assert world.supervise().state is State.MET


def test_a_limit_shorter_than_the_usual_look_is_no_reason_to_miss_processor_time(tmp_path: Path) -> None:
    computes = Script((Does(20.0, {"a.py": "new"}),), lasts_s=20.0, busy=0.5)
    world = World(tmp_path, computes, checks={"new": new}, attempts=1, attempt_idle_s=4.0)
    assert world.supervise().state is State.MET


def test_idleness_that_is_switched_off_is_bounded_by_the_time_of_the_attempt(tmp_path: Path) -> None:
    world = World(tmp_path, HANGS, checks={"new": new}, attempts=1, attempt_idle_s=None, attempt_time_s=400.0)
    world.supervise()
    ended = world.events("attempt.ended")[0]
    assert (ended["outcome"], ended["reason"]) == (Outcome.TIMED_OUT, "ended after 400 s")


def test_time_in_which_the_machine_slept_is_not_silence(tmp_path: Path) -> None:
    world = World(tmp_path, checks={"new": new}, attempt_idle_s=100.0, attempt_time_s=9000.0)

    def lid_closed() -> None:
        world.clock.elapsed_s += 3600.0

    world.scripts = (Script((Does(50.0, then=lid_closed), Does(3700.0, {"a.py": "new"}, ("back",))), lasts_s=3701.0),)
    assert world.supervise().state is State.MET
    assert [event["seconds"] for event in world.events("host.paused")] == [pytest.approx(3601.0, abs=1.0)]


def test_a_disk_that_is_nearly_full_launches_nothing_and_can_be_mended(tmp_path: Path) -> None:
    world = World(tmp_path, works({"a.py": "new"}), checks={"new": new})
    world.disk.free = 10**6
    ending = world.supervise()
    assert (ending.state, len(world.launches)) == (State.BLOCKED, 0)
    assert ending.reason.startswith("only 1.0 MB are free on the disk of")
    world.disk.free = 10**12
    world.reopen()
    assert world.supervise().state is State.MET


def test_a_disk_that_fills_up_ends_the_attempt_and_blocks_with_its_work_kept(tmp_path: Path) -> None:
    world = World(tmp_path, checks={"new": new})

    def fill() -> None:
        world.disk.free = 10**6

    world.scripts = (Script((Does(5.0, {"b": "1"}, then=fill),), lasts_s=math.inf), works({"a.py": "new"}))
    assert world.supervise().state is State.BLOCKED
    assert (world.at_work(), outcomes(world)) == ([], [Outcome.INTERRUPTED])
    assert world.events("attempt.captured")[0]["changed"] == ["b"]
    world.disk.free = 10**12
    world.reopen()
    assert world.supervise().state is State.MET


def test_an_agent_that_does_not_hear_is_killed_and_the_steps_are_recorded(tmp_path: Path) -> None:
    world = World(tmp_path, Script(lasts_s=math.inf, deaf=True), checks={"new": new}, attempts=1, attempt_time_s=30.0)
    world.supervise()
    ended = world.events("attempt.ended")[0]
    assert ended["signals"] == ["SIGINT", "SIGTERM", "SIGKILL"]
    assert ended["exit"]["signal"] == "SIGKILL"


def test_processes_that_cannot_be_ended_block_the_run_before_anything_is_verified(tmp_path: Path) -> None:
    world = World(tmp_path, works({"a.py": "new"}, survivors=("evil",)), checks={"new": new})
    ending = world.supervise()
    assert (ending.state, ending.exit_status) == (State.BLOCKED, 5)
    assert "attempt 1 left processes that cannot be ended: 200 (evil)" in ending.reason
    assert {attempt for _, _, attempt in world.verifiers.ran} == {0}
    assert "attempt.captured" not in world.kinds()


def test_a_run_that_was_blocked_by_survivors_goes_on_with_the_same_attempt_when_they_are_gone(tmp_path: Path) -> None:
    world = World(tmp_path, works({"a.py": "new"}, survivors=("evil",)), checks={"new": new})
    assert world.supervise().state is State.BLOCKED
    for process in world.claims.values():
        assert process is not None
        process.script = works({"a.py": "new"})
    world.reopen()
    assert world.supervise().state is State.MET
    assert len(world.launches) == 1
