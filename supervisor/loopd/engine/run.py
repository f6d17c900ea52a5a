"""Everything one run works with: its goal, its ports, and the record that its ledger tells."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from loopd.domain.contract import Criterion, Goal
from loopd.domain.decision import Policy
from loopd.domain.quantities import format_size
from loopd.domain.record import Record, Step, apply, dump
from loopd.domain.text import Ends
from loopd.ports.agent import Agent
from loopd.ports.clock import Clock
from loopd.ports.disk import Disk
from loopd.ports.instructions import Instructions
from loopd.ports.ledger import Ledger
from loopd.ports.output import Outputs
from loopd.ports.pins import Pins
from loopd.ports.processes import Containers, Grace
from loopd.ports.requests import Requests
from loopd.ports.verifier import Verifiers
from loopd.ports.workspace import Prepared, Workspace

SNAPSHOT_EVERY = 100  # attempts
BETWEEN = frozenset({Step.LAUNCH, Step.WAIT})  # the boundary between attempts
FINISHED_FIRST = frozenset({Step.CAPTURE, Step.CLOSE})  # left half way, edits of the owner would count as the agent's


class Timers(Struct, frozen=True):
    """Every time the engine waits for, in seconds, and the caps that go with them."""

    tick_s: float = 0.25  # between looks at an agent's output
    look_s: float = 5.0  # between looks at an agent's processor time
    final_grace_s: float = 10.0  # from the agent's final event to the end of its attempt
    grace: Grace = field(default_factory=Grace)
    log_cap_bytes: int = 256 * 2**20
    free_space_bytes: int = 500 * 10**6  # below it nothing is launched, and an attempt at work is ended


class Rules(Struct, frozen=True):
    """The rules of the scope as they are told to the agent: patterns and names."""

    references: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()  # empty: everything that is not protected
    addable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()


class Ports(Struct, frozen=True):
    """The outside of a run."""

    clock: Clock
    ledger: Ledger
    workspace: Workspace
    containers: Containers
    agent: Agent
    verifiers: Verifiers
    instructions: Instructions
    requests: Requests
    pins: Pins
    disk: Disk
    outputs: Outputs
    read_ends: Callable[[Path], Ends]  # head and tail of a captured file; empty when it is not there


class Run(Struct):
    """One run at work. `record` is only ever changed by `note`, after the ledger has the event."""

    goal: Goal
    folder: Path
    user_root: Path  # the owner's tree; the workspace itself unless the run works in a clone
    policy: Policy
    timers: Timers
    ports: Ports
    search_path: str
    agent_env: Mapping[str, str]
    record: Record
    rules: Rules = field(default_factory=Rules)
    secrets: tuple[str, ...] = ()  # values that no instruction may hold
    weak: bool = False  # `verification: workspace`
    met_before: bool = False  # a run of this very contract was met
    observers: Sequence[Callable[[Record, str, Mapping[str, Any]], None]] = ()
    signal: str = ""  # the signal that asks this process to leave
    at_once: bool = False  # not at the next boundary, but in the middle of the step at work
    on_interrupt: Callable[[], None] = lambda: None  # cancels the step at work
    launched: int = 0  # the attempt this process reserved itself; another number was left by a dead one
    prepared: Prepared | None = None  # set once this process has opened the trees
    started_s: float = 0.0
    _seq: int = 0  # of the last event
    idle_s: float = 0.0  # waits of this process, which use no time budget

    def __post_init__(self) -> None:
        """Begin to count active time where the ledger stopped."""
        self.started_s = self.ports.clock.elapsed() - self.record.spent.time_s

    @property
    def criteria(self) -> tuple[str, ...]:
        """Names of all criteria, in the contract's order."""
        return tuple(criterion.name for criterion in self.goal.criteria)

    def criterion(self, name: str) -> Criterion:
        """One criterion by its name."""
        return next(criterion for criterion in self.goal.criteria if criterion.name == name)

    def active_s(self) -> float:
        """Seconds of this run so far, waits excluded, earlier processes included."""
        return self.ports.clock.elapsed() - self.started_s - self.idle_s

    def catch_up(self, active_s: float) -> None:
        """Count the time an agent worked on while no supervisor lived; nothing when it is counted already."""
        self.started_s -= max(0.0, active_s - self.active_s())

    def attempt_folder(self, number: int) -> Path:
        """Where everything of one attempt lies."""
        return self.folder / "attempts" / f"{number:04d}"

    @property
    def leaving(self) -> bool:
        """A signal has come, and the run stands where this process may leave it."""
        if self.at_once:
            return self.record.step not in FINISHED_FIRST
        return bool(self.signal) and self.record.step in BETWEEN

    def interrupt(self, signal: str, *, at_once: bool) -> None:
        """Ask this process to leave: at the next boundary between attempts, or in the middle of the step at work.

        What is short and must not stay half done is finished first: taking an ended attempt's changes, and delivery.
        """
        self.signal, self.at_once = signal, self.at_once or at_once
        if self.record.step is Step.WAIT or (self.at_once and self.record.step not in FINISHED_FIRST):
            self.on_interrupt()

    def disk_low(self) -> str:
        """In words, that too little room is left to go on; "" while there is enough."""
        free, floor = self.ports.disk.free_bytes(), self.timers.free_space_bytes
        return "" if free >= floor else f"only {format_size(free)} are free on the disk of {self.folder}"

    def note(self, kind: str, *, durable: bool = True, **data: Any) -> None:
        """Record one event, then let the record follow it, then tell who watches."""
        event = self.ports.ledger.append(kind, {**data, "elapsed_s": round(self.active_s(), 3)}, durable=durable)
        self.record = apply(self.record, kind, event.data, event.at)
        for observe in self.observers:
            observe(self.record, kind, event.data)
        self._seq = event.seq
        if kind == "attempt.assessed" and self.record.number % SNAPSHOT_EVERY == 0:
            self.snapshot()

    def snapshot(self) -> None:
        """Keep a summary, so that the next opening need not replay what came before."""
        self.ports.ledger.save_snapshot(self._seq, dump(self.record))
