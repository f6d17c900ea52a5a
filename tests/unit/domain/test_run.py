"""States, exit statuses and next steps: the table a person and a service manager rely on."""

import pytest

from loopd.domain.run import BUSY, ENDED, EXIT_STATUS, FINAL, NEXT_STEP, REOPENABLE, State, ending, next_step


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (State.MET, 0),
        (State.EXHAUSTED, 1),
        (State.REFUSED, 2),
        (State.STUCK, 3),
        (State.HALTED, 4),
        (State.BLOCKED, 5),
        (State.FAILED, 70),
        (State.INTERRUPTED, 143),
        (State.STOPPED, 143),
    ],
)
def test_each_ending_has_its_exit_status(state: State, status: int) -> None:
    leaving = ending(state, "why")
    assert (leaving.state, leaving.reason, leaving.exit_status) == (state, "why", status)


def test_an_interruption_by_ctrl_c_leaves_with_130_and_any_other_signal_with_143() -> None:
    assert ending(State.INTERRUPTED, "", "SIGINT").exit_status == 130
    assert ending(State.INTERRUPTED, "", "SIGTERM").exit_status == 143
    assert ending(State.MET, "", "SIGINT").exit_status == 0


def test_a_busy_workspace_has_a_status_that_no_ending_has() -> None:
    assert BUSY == 6
    assert BUSY not in EXIT_STATUS.values()


def test_met_and_stopped_are_final_and_the_other_endings_can_be_reopened() -> None:
    assert {State.MET, State.STOPPED} == FINAL
    assert {State.EXHAUSTED, State.STUCK, State.HALTED, State.BLOCKED} == REOPENABLE
    assert not FINAL & REOPENABLE
    assert FINAL | REOPENABLE | {State.REFUSED} == ENDED


def test_every_ending_of_a_run_has_an_exit_status() -> None:
    assert set(EXIT_STATUS) >= ENDED


def test_every_state_has_a_next_step_to_type() -> None:
    assert set(NEXT_STEP) == set(State)
    assert all("loopd " in next_step(state) and "{" not in next_step(state) for state in State)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (State.EXHAUSTED, "loopd diff r-1 --best; loopd extend r-1 --attempts +10"),
        (State.STUCK, 'loopd steer r-1 "…", then loopd resume r-1; or loopd amend r-1 goals/a.yaml'),
        (State.HALTED, "loopd show r-1 --tamper"),
        (State.BLOCKED, "mend it, then loopd resume r-1"),
        (State.INTERRUPTED, "loopd resume r-1"),
        (State.STOPPED, "loopd run --new goals/a.yaml"),
        (State.REFUSED, "mend the contract, then loopd run goals/a.yaml"),
    ],
)
def test_the_next_step_names_this_run_and_this_contract(state: State, words: str) -> None:
    assert next_step(state, "r-1", "goals/a.yaml") == words
