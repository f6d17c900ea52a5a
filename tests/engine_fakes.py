"""In-memory stand-ins for the ports of the engine, in one world that outlives its supervisors.

Time moves only when somebody sleeps; agents act along a script on that time, whether or not a supervisor lives.
`World.supervise` pursues the goal with a new supervisor, whose record is replayed from the ledger. A supervisor
whose `Life` ends in the middle leaves everything as it stands: its clean-up does not happen.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from engine_agents import (
    FakeAgent,
    FakeContainers,
    FakeLines,
    Life,
    LivingLedger,
    Process,
    Script,
    WorldClock,
    works,
)
from engine_trees import Check, FakeVerifiers, FakeWorkspace, Files
from fakes import MemoryLedger, MemoryRequests
from loopd.domain.budget import Allowance
from loopd.domain.contract import Goal
from loopd.domain.decision import Policy
from loopd.domain.feedback import Briefing
from loopd.domain.record import Record, apply, dump_value
from loopd.domain.run import Ending
from loopd.domain.text import Ends
from loopd.engine.loop import pursue
from loopd.engine.run import Ports, Run, Timers


class FakeInstructions:
    """Keeps the briefings, and writes a file whose digest it tells."""

    def __init__(self) -> None:
        self.briefings: list[Briefing] = []

    def write(self, briefing: Briefing, folder: Path) -> tuple[Path, str]:
        self.briefings.append(briefing)
        path = folder / "instruction.md"
        path.write_text(f"attempt {briefing.attempt}\n{briefing.objective}", encoding="utf-8")
        return path, hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass
class FakeDisk:
    """Room enough, unless a test says otherwise; logs are never shortened."""

    free: int = 10**12

    def free_bytes(self) -> int:
        return self.free

    def cap(self, path: Path, cap_bytes: int) -> int:
        return 0


class FakePins:
    """Pinned copies that agents may have forged."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def changed(self) -> tuple[str, ...]:
        return tuple(sorted(self._world.forged))

    def repair(self) -> None:
        self._world.forged.clear()


class World:
    """Everything that outlives a supervisor: the owner's files, agents, the ledger, time."""

    def __init__(
        self,
        folder: Path,
        *scripts: Script,
        checks: Mapping[str, Check],
        files: Files | None = None,
        protected: Sequence[str] = ("ci.yml", "contract.yaml"),
        allowed: Sequence[str] = ("*",),
        criteria: Mapping[str, Mapping[str, Any]] | None = None,  # what the contract says besides name and command
        goal: Mapping[str, Any] | None = None,
        policy: Policy | None = None,
        timers: Timers | None = None,
        **allowance: Any,
    ) -> None:
        self.folder = folder
        self.scripts = scripts or (works(),)
        self.clock = WorldClock()
        self.ledger = MemoryLedger(self.clock)
        self.requests = MemoryRequests()
        given = {"a.py": "old", "ci.yml": "owner's", "contract.yaml": "goal: demo"}
        self.workspace = FakeWorkspace({**given, **(files or {})}, protected, allowed)
        self.verifiers = FakeVerifiers(self, checks)
        self.instructions = FakeInstructions()
        self.disk = FakeDisk()
        self.outputs: dict[Path, bytearray] = {}
        self.claims: dict[Path, Process | None] = {}
        self.launches: list[str] = []  # markers, in order
        self.forged: set[str] = set()
        self.missing = False  # the agent's program
        self.goal = _goal(checks, criteria or {}, goal or {})
        self.allowance = Allowance(**{"attempts": 10, "time_s": 86400.0, **allowance})
        self.policy = policy or Policy()
        self.timers = timers or Timers(tick_s=1.0)
        self.met_before = False
        self.watchers: list[Callable[[Run, str], None]] = []  # told of every event, with the run at work
        opened = {"run": "demo-k3f9", "goal": "demo", "contract_digest": "d1"}
        self.ledger.append("run.opened", {**opened, "allowance": dump_value(self.allowance)})

    def supervise(self, life: Life | None = None) -> Ending:
        """Pursue the goal with a new supervisor until it leaves. Raises `PowerCutError` when it dies."""
        return anyio.run(pursue, self.supervisor(life))

    def supervisor(self, life: Life | None = None) -> Run:
        """A new supervisor, told everything by the ledger."""
        run = make_run(self, life or Life())
        for watcher in self.watchers:
            run.observers = (*run.observers, _told(run, watcher))
        return run

    def reopen(self) -> None:
        """The owner decides that the run goes on."""
        self.ledger.append("run.reopened", {})

    @property
    def record(self) -> Record:
        """What the ledger tells."""
        record = Record()
        for event in self.ledger.events():
            record = apply(record, event.kind, event.data, event.at)
        return record

    def kinds(self) -> list[str]:
        """The kinds of all events, in order."""
        return [event.kind for event in self.ledger.events()]

    def events(self, kind: str) -> list[Mapping[str, Any]]:
        """The data of all events of a kind."""
        return [event.data for event in self.ledger.events() if event.kind == kind]

    def at_work(self) -> list[Process]:
        """Agents that have not left."""
        return [process for process in self.claims.values() if process and process.exit is None]


def _told(run: Run, watcher: Callable[[Run, str], None]) -> Callable[[Record, str, Mapping[str, Any]], None]:
    return lambda record, kind, data: watcher(run, kind)


def make_run(world: World, life: Life) -> Run:
    """An engine's run on the ports of a world."""
    ports = Ports(
        clock=world.clock,
        ledger=LivingLedger(world.ledger, life),
        workspace=world.workspace,
        containers=FakeContainers(world, life),
        agent=FakeAgent(world),
        verifiers=world.verifiers,
        instructions=world.instructions,
        requests=world.requests,
        pins=FakePins(world),
        disk=world.disk,
        outputs=lambda path: FakeLines(world, path),
        read_ends=lambda path: Ends(b""),
    )
    return Run(
        goal=world.goal,
        folder=world.folder,
        user_root=world.workspace.root,
        policy=world.policy,
        timers=world.timers,
        ports=ports,
        search_path="/usr/bin",
        agent_env={},
        record=world.record,
        weak=world.workspace.weak,
        met_before=world.met_before,
    )


def _goal(names: Iterable[str], more: Mapping[str, Mapping[str, Any]], said: Mapping[str, Any]) -> Goal:
    criteria = [{"name": name, "run": ["check", name], **more.get(name, {})} for name in names]
    return Goal.model_validate({"goal": "demo", "objective": "a.py is new", "criteria": criteria, **said})
