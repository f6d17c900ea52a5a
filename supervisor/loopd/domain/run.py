"""The states of a run, their exit statuses, and the very words shown everywhere for what to do next."""

from enum import StrEnum

from msgspec import Struct


class State(StrEnum):
    """Where a run stands for a person. `OPEN` ones go on when resumed; met and stopped are final."""

    READY = "ready"
    RUNNING = "running"
    WAITING = "waiting"
    INTERRUPTED = "interrupted"
    MET = "met"
    EXHAUSTED = "exhausted"
    STUCK = "stuck"
    HALTED = "halted"
    BLOCKED = "blocked"
    REFUSED = "refused"
    STOPPED = "stopped"
    FAILED = "failed"  # loopd itself


FINAL = frozenset({State.MET, State.STOPPED})
REOPENABLE = frozenset({State.EXHAUSTED, State.STUCK, State.HALTED, State.BLOCKED})
ENDED = FINAL | REOPENABLE | {State.REFUSED}

EXIT_STATUS = {
    State.MET: 0,
    State.EXHAUSTED: 1,
    State.REFUSED: 2,
    State.STUCK: 3,
    State.HALTED: 4,
    State.BLOCKED: 5,
    State.FAILED: 70,
    State.INTERRUPTED: 143,
    State.STOPPED: 143,
}
BUSY = 6

NEXT_STEP = {
    State.MET: "loopd show {run}",
    State.EXHAUSTED: "loopd diff {run} --best; loopd extend {run} --attempts +10",
    State.REFUSED: "mend the contract, then loopd run {contract}",
    State.STUCK: 'loopd steer {run} "…", then loopd resume {run}; or loopd amend {run} {contract}',
    State.HALTED: "loopd show {run} --tamper",
    State.BLOCKED: "mend it, then loopd resume {run}",
    State.INTERRUPTED: "loopd resume {run}",
    State.STOPPED: "loopd run --new {contract}",
    State.FAILED: "loopd resume {run}",
    State.READY: "loopd resume {run}",
    State.RUNNING: "loopd logs {run} -f",
    State.WAITING: "loopd status {run}",
}


class Ending(Struct, frozen=True):
    """How a process of loopd left a run."""

    state: State
    reason: str
    exit_status: int


def ending(state: State, reason: str, signal: str = "") -> Ending:
    """The ending for `state`; an interruption by SIGINT has a status of its own."""
    status = 130 if state is State.INTERRUPTED and signal == "SIGINT" else EXIT_STATUS[state]
    return Ending(state, reason, status)


def next_step(state: State, run: str = "last", contract: str = "CONTRACT") -> str:
    """The command a person would type now."""
    return NEXT_STEP[state].format(run=run, contract=contract)
