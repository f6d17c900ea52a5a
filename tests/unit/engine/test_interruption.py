"""Signals and the owner's word: a run that is left goes on where it stands, and one that is stopped is over."""

import math
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from engine_agents import HANGS, Does, Life, PowerCutError, Script, works
from engine_fakes import World
from engine_trees import Seen, new, parts
from loopd.domain.attempt import Outcome
from loopd.domain.record import Step
from loopd.domain.run import State
from loopd.engine.recover import settle
from loopd.engine.run import Run
from loopd.ports.requests import RequestKind

DONE = works({"a.py": "new"})


class Once:
    """Does something with the run at work when an event is recorded, the first time only."""

    def __init__(self, world: World, kind: str, act: Callable[[Run], object]) -> None:
        self._kind, self._act, self._left = kind, act, True
        self.run: Run | None = None
        world.watchers.append(self)

    def __call__(self, run: Run, kind: str) -> None:
        self.run = run
        if self._left and kind == self._kind:
            self._left = False
            self._act(run)


def signal(name: str = "SIGTERM", *, at_once: bool = True) -> Callable[[Run], None]:
    return lambda run: run.interrupt(name, at_once=at_once)


# --- a signal --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_tree_4_a_signal_while_the_agent_works_ends_it_and_the_run_can_be_resumed(
    tmp_path: Path, name: str, status: int
) -> None:
    """The agent's tree is empty before loopd leaves, what it did is taken, nothing further is launched."""
    works_on = Script((Does(1.0, {"b": "1"}), Does(20.0, then=lambda: run_of(interrupt))), lasts_s=math.inf)
    world = World(tmp_path, works_on, DONE, checks={"new": new})

    def run_of(once: Once) -> None:
        assert once.run is not None
        once.run.interrupt(name, at_once=True)

    interrupt = Once(world, "never", signal())
    ending = world.supervise()
    assert (ending.state, ending.exit_status) == (State.INTERRUPTED, status)
    assert ending.reason == f"interrupted by {name}"
    assert (world.at_work(), len(world.launches)) == ([], 1)
    assert world.events("attempt.ended")[0]["outcome"] == Outcome.INTERRUPTED
    assert world.events("attempt.captured")[0]["changed"] == ["b"]
    assert (world.record.step, world.record.state) == (Step.VERIFY, State.INTERRUPTED)
    assert world.supervise().state is State.MET
    assert [event["attempt"] for event in world.events("attempt.assessed")] == [1, 2]


def test_tree_4_a_signal_while_a_verifier_works_leaves_at_once_and_the_verdicts_so_far_stay(tmp_path: Path) -> None:
    """The check at work is done again by the next process, those with a verdict are not."""
    at_work: list[Run] = []

    def second(seen: Seen) -> bool:
        return "part2" in seen.files

    def asleep(seconds: float) -> None:
        if at_work and world.verifiers.ran[-1] == ("p2", "kept", 1) and not at_work[0].signal:
            at_work[0].interrupt("SIGTERM", at_once=True)

    world = World(tmp_path, works({"part1": "x", "part2": "x"}), checks={**parts(1), "p2": second})
    Once(world, "attempt.captured", at_work.append)
    world.clock.asleep = asleep
    ending = world.supervise()
    assert (ending.state, ending.exit_status, world.record.step) == (State.INTERRUPTED, 143, Step.VERIFY)
    assert [event["verdict"]["criterion"] for event in world.events("verdict")] == ["p1"]
    assert world.supervise().state is State.MET
    kept = [name for name, kind, attempt in world.verifiers.ran if kind == "kept" and attempt == 1]
    assert (kept, len(world.launches)) == (["p1", "p2", "p2"], 1)


@pytest.mark.parametrize("at_once", [True, False])
def test_tree_4_a_signal_during_a_wait_leaves_at_once_and_the_wait_goes_on_later(tmp_path: Path, at_once: bool) -> None:
    """A wait of ten minutes does not hold anybody; nothing is launched before it is over."""
    at_work: list[Run] = []

    def asleep(seconds: float) -> None:
        if seconds == 30.0 and not at_work[0].signal:
            at_work[0].interrupt("SIGINT", at_once=at_once)

    world = World(tmp_path, works({}, lasts_s=1.0), checks={"new": new})
    Once(world, "run.started", at_work.append)
    world.clock.asleep = asleep
    ending = world.supervise()
    assert (ending.exit_status, world.record.step, len(world.launches)) == (130, Step.WAIT, 3)
    until = world.record.wait_until
    world.clock.asleep = lambda seconds: None
    world.clock.advance(20.0)
    world.scripts = (DONE,)
    assert world.supervise().state is State.MET
    assert world.events("decision")[2]["wait_until"] == until
    assert [event["waited_s"] for event in world.events("wait.ended")] == [pytest.approx(10.0)]


@pytest.mark.parametrize(
    "kind", ["decision", "attempt.assessed", "attempt.reserved", "baseline.verdict", "run.started"]
)
def test_tree_4_a_signal_between_steps_leaves_and_the_run_goes_on_where_it_stood(tmp_path: Path, kind: str) -> None:
    """Nothing new is begun; the ledger says where."""
    world = World(tmp_path, works({"b": "1"}), DONE, checks={"new": new, "part1": lambda seen: True})
    Once(world, kind, signal())
    assert world.supervise().state is State.INTERRUPTED
    assert len(world.launches) <= 1
    assert world.kinds()[-1] == "run.interrupted"
    world.watchers.clear()
    assert world.supervise().state is State.MET
    assert (len(world.launches), world.record.spent.attempts) == (2, 2)


def test_a_polite_signal_is_obeyed_between_attempts(tmp_path: Path) -> None:
    """The attempt at work is seen to its end, verdicts and decision included."""
    world = World(tmp_path, works({"b": "1"}), DONE, checks={"new": new})
    Once(world, "attempt.started", signal(at_once=False))
    assert world.supervise().state is State.INTERRUPTED
    assert (world.record.step, len(world.events("decision")), len(world.launches)) == (Step.LAUNCH, 1, 1)


def test_a_polite_signal_does_not_hide_that_the_goal_was_met(tmp_path: Path) -> None:
    world = World(tmp_path, DONE, checks={"new": new})
    Once(world, "attempt.started", signal(at_once=False))
    assert world.supervise().state is State.MET


def test_a_second_impatient_signal_ends_what_a_polite_one_let_run(tmp_path: Path) -> None:
    world = World(tmp_path, checks={"new": new})
    once = Once(world, "attempt.started", signal(at_once=False))

    def impatient() -> None:
        assert once.run is not None
        once.run.interrupt("SIGINT", at_once=True)

    world.scripts = (Script((Does(10.0, then=impatient),), lasts_s=math.inf), DONE)
    assert world.supervise().exit_status == 130
    assert world.at_work() == []


def test_a_signal_cannot_come_between_met_and_its_delivery(tmp_path: Path) -> None:
    world = World(tmp_path, DONE, checks={"new": new})

    def on_met(run: Run, kind: str) -> None:
        if kind == "decision":
            run.interrupt("SIGINT", at_once=True)

    world.watchers.append(on_met)
    ending = world.supervise()
    assert (ending.state, ending.exit_status) == (State.MET, 0)
    assert world.kinds()[-2:] == ["delivered", "run.ended"]


def test_a_signal_during_the_launch_leaves_no_agent_without_an_owner(tmp_path: Path) -> None:
    world = World(tmp_path, checks={"new": new})
    once = Once(world, "never", signal())

    def interrupt() -> None:
        assert once.run is not None
        once.run.interrupt("SIGINT", at_once=True)

    world.scripts = (Script((Does(0.0, then=interrupt),), lasts_s=math.inf),)
    assert world.supervise().state is State.INTERRUPTED
    assert (world.at_work(), len(world.events("attempt.ended"))) == ([], 1)


def test_edits_of_the_owner_after_an_interruption_are_not_the_agents(tmp_path: Path) -> None:
    world = World(tmp_path, checks={"new": new})
    once = Once(world, "never", signal())

    def interrupt() -> None:
        assert once.run is not None
        once.run.interrupt("SIGINT", at_once=True)

    world.scripts = (Script((Does(1.0, {"b": "1"}, then=interrupt),), lasts_s=math.inf), DONE)
    world.supervise()
    world.workspace.edit({"ci.yml": "owner's new"})
    assert world.supervise().state is State.MET
    assert world.workspace.files["ci.yml"] == "owner's new"
    assert [event["restored"] for event in world.events("attempt.captured")] == [[], []]


def test_interrupted_attempts_are_no_sign_of_being_stuck(tmp_path: Path) -> None:
    """Five attempts that were cut short by their owner changed nothing, and prove nothing."""
    world = World(tmp_path, HANGS, checks={"new": new})
    for _ in range(5):
        Once(world, "attempt.started", signal())
        assert world.supervise().state is State.INTERRUPTED
        world.watchers.clear()
    world.scripts = (*world.scripts * 5, DONE)
    assert world.supervise().state is State.MET
    assert "wait.ended" not in world.kinds()


def test_state_6_a_run_that_is_interrupted_and_resumed_three_times_is_one_run(tmp_path: Path) -> None:
    """The same id, numbers that go on, the evidence of all parts."""
    world = World(tmp_path, *[works({f"part{n}": "x"}) for n in (1, 2, 3, 4)], checks=parts(4))
    for kind in ("attempt.started", "verdict", "decision"):
        Once(world, kind, signal())
        assert world.supervise().state is State.INTERRUPTED
        world.watchers.clear()
    assert world.supervise().state is State.MET
    assert {event["run"] for event in world.events("run.opened")} == {"demo-k3f9"}
    assert [event["attempt"] for event in world.events("attempt.reserved")] == [1, 2, 3, 4]
    assert [event["attempt"] for event in world.events("attempt.assessed")] == [1, 2, 3, 4]
    assert [event["resumed"] for event in world.events("run.started")] == [False, True, True, True]
    assert sorted(path.name for path in (tmp_path / "attempts").iterdir()) == ["0001", "0002", "0003", "0004"]


# --- the owner -------------------------------------------------------------------------------------------------------


def test_a_stop_ends_the_agent_at_work_takes_its_changes_and_is_final(tmp_path: Path) -> None:
    world = World(tmp_path, checks={"new": new})
    ask = Does(20.0, {"ci.yml": "mine", "b": "1"}, then=lambda: world.requests.put(RequestKind.STOP, {}))
    world.scripts = (Script((ask,), lasts_s=math.inf),)
    ending = world.supervise()
    assert (ending.state, ending.exit_status, ending.reason) == (State.STOPPED, 143, "stopped by its owner")
    assert (world.at_work(), world.requests.peek(), len(world.launches)) == ([], (), 1)
    assert world.events("attempt.ended")[0]["reason"] == "stopped by its owner"
    assert world.workspace.files["ci.yml"] == "owner's"


def test_a_stop_before_the_launch_launches_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, DONE, checks={"new": new})
    Once(world, "attempt.reserved", lambda run: world.requests.put(RequestKind.STOP, {}))
    assert world.supervise().state is State.STOPPED
    assert (world.launches, world.record.spent.attempts) == ([], 0)


def test_a_stop_after_the_goal_was_met_changes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, DONE, checks={"new": new})
    Once(world, "decision", lambda run: world.requests.put(RequestKind.STOP, {}))
    assert world.supervise().state is State.MET
    assert world.record.attention == ("a stop came after the end",)
    assert world.record.delivered


@pytest.mark.parametrize("launches", [1, 0])
def test_a_stop_makes_the_end_of_a_run_that_could_be_reopened_final(tmp_path: Path, launches: int) -> None:
    """Asked for while it ended, or afterwards: an exhausted run, or one that was blocked, is stopped for good."""
    world = World(tmp_path, works({"b": "1"}), checks={"new": new}, attempts=1)
    world.missing = launches == 0
    Once(world, "run.ended", lambda run: world.requests.put(RequestKind.STOP, {}))
    assert world.supervise().state is State.STOPPED
    assert (len(world.launches), world.record.reason) == (launches, "stopped by its owner")


def test_a_stop_of_a_run_whose_supervisor_died_ends_the_agent_it_left(tmp_path: Path) -> None:
    world = World(tmp_path, HANGS, checks={"new": new})
    with pytest.raises(PowerCutError):
        world.supervise(Life(dies_after=world_event(world, "attempt.started")))
    assert len(world.at_work()) == 1
    world.requests.put(RequestKind.STOP, {})
    assert world.supervise().state is State.STOPPED
    assert (world.at_work(), len(world.launches)) == ([], 1)


def world_event(world: World, kind: str) -> int:
    """The number of the first event of a kind, in a world that will do the same again."""
    order = ["run.opened", "run.started", "tree.prepared", "baseline.verdict", "preflight.passed"]
    return [*order, "attempt.reserved", "attempt.started", "attempt.ended"].index(kind) + 1


def test_the_owners_requests_are_recorded_once_and_obeyed(tmp_path: Path) -> None:
    world = World(tmp_path, works({"b": "1"}), DONE, checks={"new": new}, attempts=1, cost_usd=1.0, tokens=100)
    more = {"attempts": 2, "time_s": 60.0, "cost_usd": 0.5, "tokens": 10}

    def ask(run: Run) -> None:
        world.requests.put(RequestKind.STEER, {"text": "look at a.py"})
        world.requests.put(RequestKind.EXTEND, more)

    Once(world, "attempt.started", ask)
    assert world.supervise().state is State.MET
    allowance = world.record.allowance
    assert (allowance.attempts, allowance.time_s, allowance.cost_usd, allowance.tokens) == (3, 86460.0, 1.5, 110)
    assert world.instructions.briefings[1].notes == ("look at a.py",)
    assert (len(world.events("owner.steered")), world.requests.peek()) == (1, ())


def test_an_extension_leaves_an_unlimited_budget_unlimited(tmp_path: Path) -> None:
    world = World(tmp_path, DONE, checks={"new": new})
    world.requests.put(RequestKind.EXTEND, {"cost_usd": 1.0, "tokens": 5})
    world.supervise()
    assert (world.record.allowance.cost_usd, world.record.allowance.tokens) == (None, None)


def test_what_a_dead_supervisor_left_is_ended_and_taken_before_another_run_works_there(tmp_path: Path) -> None:
    """The attempt keeps what its own agent did; what the other run does meanwhile is not its work."""
    world = World(tmp_path, Script((Does(1.0, {"b": "1"}),), lasts_s=math.inf), DONE, checks={"new": new})
    with pytest.raises(PowerCutError):
        world.supervise(Life(dies_after=world_event(world, "attempt.started")))
    world.clock.advance(5.0)
    anyio.run(settle, world.supervisor())
    assert (world.at_work(), world.record.state, world.record.step) == ([], State.INTERRUPTED, Step.VERIFY)
    world.workspace.edit({"other": "x", "ci.yml": "other run's"})
    assert world.supervise().state is State.MET
    assert [event["changed"] for event in world.events("attempt.captured")] == [["b"], ["a.py"]]
    assert world.workspace.files["ci.yml"] == "other run's"


def test_an_agent_at_work_is_adopted_although_something_to_launch_with_is_missing_now(tmp_path: Path) -> None:
    """What is missing blocks the next launch; it must not leave the agent at work without an owner."""
    world = World(tmp_path, works({"b": "1"}), DONE, checks={"new": new})
    with pytest.raises(PowerCutError):
        world.supervise(Life(dies_after=world_event(world, "attempt.started")))
    world.missing = True
    assert world.supervise().state is State.BLOCKED
    assert (world.at_work(), len(world.events("attempt.assessed"))) == ([], 1)
    world.missing = False
    world.reopen()
    assert world.supervise().state is State.MET


# --- an agent that outlived its supervisor ---------------------------------------------------------------------------


def test_an_agent_that_outlived_its_supervisor_is_adopted_and_its_time_is_counted(tmp_path: Path) -> None:
    """Nothing is launched twice, output is read from its first byte, and the time it worked alone is spent time."""
    works_on = Script((Does(1.0, {}, ("cost 0.25",)), Does(500.0, {"a.py": "new"}, ("cost 0.25",))), lasts_s=600.0)
    world = World(tmp_path, works_on, checks={"new": new})
    with pytest.raises(PowerCutError):
        world.supervise(Life(dies_after=world_event(world, "attempt.started")))
    world.clock.advance(300.0)
    assert world.supervise().state is State.MET
    assert [event["adopted"] for event in world.events("attempt.started")] == [False, True]
    record = world.record
    assert (len(world.launches), record.spent.attempts, record.spent.cost_usd) == (1, 1, 0.5)
    assert record.spent.time_s == pytest.approx(600.0, abs=10.0)


def test_an_agent_that_left_long_ago_has_left_and_was_not_too_slow(tmp_path: Path) -> None:
    world = World(tmp_path, works({"a.py": "new"}, "cost 0.25"), checks={"new": new}, attempt_time_s=600.0)
    with pytest.raises(PowerCutError):
        world.supervise(Life(dies_after=world_event(world, "attempt.started")))
    world.clock.advance(86400.0)
    assert world.supervise().state is State.MET
    ended = world.events("attempt.ended")[0]
    assert (ended["outcome"], ended["usage"]["partial"]) == (Outcome.FINISHED, False)
    assert world.record.spent.time_s < 100.0


def test_an_adopted_agent_is_held_to_the_limit_it_was_launched_with(tmp_path: Path) -> None:
    world = World(tmp_path, HANGS, checks={"new": new}, attempts=1, attempt_time_s=600.0, attempt_idle_s=None)
    with pytest.raises(PowerCutError):
        world.supervise(Life(dies_after=world_event(world, "attempt.started")))
    world.clock.advance(500.0)
    world.supervise()
    ended = world.events("attempt.ended")[0]
    assert ended["outcome"] == Outcome.TIMED_OUT
    assert ended["exit"]["duration_s"] == pytest.approx(600.0, abs=3.0)
