"""Putting a run together: the one place that builds adapters and hands them to the engine."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from loopd.adapters import agreement as agreements
from loopd.adapters.agreement import Agreement
from loopd.adapters.clock import SystemClock
from loopd.adapters.containment.containers import OwnedContainers
from loopd.adapters.containment.environment import agent_environment
from loopd.adapters.containment.nursery import Nursery
from loopd.adapters.disk import FolderDisk
from loopd.adapters.ledger import FileLedger, open_ledger, read_since_snapshot
from loopd.adapters.liveness import start_time
from loopd.adapters.pins import PinnedFiles
from loopd.adapters.prompts import Prompts
from loopd.adapters.registry import agent_for
from loopd.adapters.requests import FolderRequests
from loopd.adapters.state import RunFolder, StateFolder, ensure_state, locate_state
from loopd.adapters.status import publish_status
from loopd.adapters.stores.sqlite import SqliteStore, open_store
from loopd.adapters.tail import Tail, read_ends
from loopd.adapters.verifiers.command import CheckTerms, CommandVerifiers
from loopd.adapters.workspace import WorkspacePlan, open_workspace
from loopd.domain.contract import Goal
from loopd.domain.errors import StateError
from loopd.domain.record import Record, Step, apply, load
from loopd.domain.run import ENDED
from loopd.domain.scope import Scope
from loopd.domain.scope import scope_of as scope_as_stated
from loopd.domain.status import standing, status
from loopd.engine.run import Ports, Rules, Run
from loopd.ports.agent import Agent
from loopd.ports.processes import Containers, Containment
from loopd.ports.store import RunEntry
from loopd.ports.workspace import Workspace

PUBLISH_S = 0.2  # between two looks that status tools can take, while quick events follow each other
OF_MANY = frozenset(
    {"attempt.reserved", "attempt.started", "attempt.ended", "attempt.captured", "verdict", "attempt.assessed"}
)


class Place(Struct, frozen=True):
    """Where loopd keeps its state, and the index of what lies there."""

    state: StateFolder
    store: SqliteStore


@contextmanager
def open_place() -> Iterator[Place]:
    """The state of this user."""
    state = ensure_state(locate_state(os.environ))
    with open_store(state) as store:
        yield Place(state, store)


@contextmanager
def open_run(place: Place, folder: RunFolder, nursery: Nursery | None = None) -> Iterator[Run]:
    """A run with all its ports, from what lies in its folder. Raises `BusyError` when it is at work elsewhere."""
    clock = SystemClock()
    with open_ledger(folder, clock) as ledger:
        agreement = agreements.recall(folder.root)
        containers = open_containers(agreement, nursery)
        try:
            run = _run(folder, agreement, ledger, clock, containers)
            run.observers = (*run.observers, publisher(place, folder, agreement, run))
            yield run
        finally:
            containers.close()


def open_containers(agreement: Agreement, nursery: Nursery | None) -> OwnedContainers:
    """Containers of the kind the settings ask for."""
    wanted = agreement.terms.containment
    return OwnedContainers(nursery, None if wanted == "auto" else Containment(wanted))


def open_trees(folder: Path) -> Workspace:
    """The trees of a run, for looking at: no ledger, no lock."""
    agreement = agreements.recall(folder)
    return workspace_of(RunFolder(folder), agreement, open_containers(agreement, None))


def record_of(ledger: FileLedger) -> Record:
    """What the ledger tells, from its newest snapshot on."""
    snapshot = ledger.load_snapshot()
    record, after = (load(snapshot[1]), snapshot[0]) if snapshot else (Record(), 0)
    for event in ledger.events(after):
        record = apply(record, event.kind, event.data, event.at)
    return record


def recorded(folder: RunFolder) -> Record:
    """The same for a run that may be at work; takes no lock."""
    snapshot, events = read_since_snapshot(folder)
    record = load(snapshot[1]) if snapshot else Record()
    for event in events:
        record = apply(record, event.kind, event.data, event.at)
    return record


def workspace_of(folder: RunFolder, agreement: Agreement, containers: Containers) -> Workspace:
    """The trees that the agreement asks for."""
    goal, terms = agreement.goal, agreement.terms
    plan = WorkspacePlan(
        root=terms.root,
        state=folder.trees,
        run=folder.run.rsplit("-", 1)[-1],
        goal=goal.goal,
        search_path=terms.search_path,
        isolation=goal.isolation,
        verification=goal.verification,
        with_changes=terms.with_changes,
        scope=scope_of(agreement),
        carry=goal.environment.carry,
        setup=goal.setup,
        setup_when=goal.setup_when,
        environment=contract_environment(goal, os.environ),
        hide=(folder.root.parents[1],),
        network=goal.environment.network == "host",
        bubblewrap=False if goal.sandbox.mode == "none" else None,
    )
    return open_workspace(plan, containers)


def scope_of(agreement: Agreement) -> Scope:
    """The contract's scope with its defaults, and what the contract itself needs protected."""
    written, terms = agreement.goal.scope, agreement.terms
    protect = (*written.protect, *terms.references)
    return scope_as_stated(allow=written.allow, add=written.add, protect=protect, named=terms.protected)


def contract_environment(goal: Goal, environ: Mapping[str, str]) -> dict[str, str]:
    """`environment.env` with `inherit` looked up; a variable that is not set stays unset."""
    written = {name: value for name, value in goal.environment.env.items() if value != "inherit"}
    return written | inherited(goal, environ)


def inherited(goal: Goal, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables the contract takes from loopd's own environment: passwords and the like, never shown."""
    wanted = goal.environment.env
    return {name: environ[name] for name, value in wanted.items() if value == "inherit" and name in environ}


def publisher(place: Place, folder: RunFolder, agreement: Agreement, run: Run) -> "Publisher":
    """The observer that keeps status.json and the index up to date."""
    return Publisher(place, folder, agreement, run)


class Publisher(Struct):
    """Tells status tools of every event, one of many a moment later, and the index of every change of state."""

    place: Place
    folder: RunFolder
    agreement: Agreement
    run: Run
    told: str = ""
    told_s: float = -PUBLISH_S  # on the run's clock
    later: asyncio.TimerHandle | None = None  # while something is held back
    pid: int = field(default_factory=os.getpid)
    pid_start: int = field(default_factory=lambda: start_time(os.getpid()) or 0)

    def __call__(self, record: Record, kind: str, data: Mapping[str, Any]) -> None:
        """One event was recorded."""
        passing = kind in OF_MANY or (kind == "decision" and record.step is Step.LAUNCH)
        wait_s = self.told_s + PUBLISH_S - self.run.ports.clock.elapsed()
        if not passing or wait_s <= 0:
            self._publish(record)
        elif self.later is None:
            self.later = asyncio.get_running_loop().call_later(wait_s, self._catch_up)

    def _catch_up(self) -> None:
        with suppress(StateError):  # the next event says so, where it can be answered
            self._publish(self.run.record)

    def _publish(self, record: Record) -> None:
        if self.later is not None:
            self.later.cancel()
            self.later = None
        self.told_s = self.run.ports.clock.elapsed()
        now = self.run.ports.clock.now().isoformat(timespec="milliseconds")
        state = standing(record)
        alive = state not in ENDED
        life = {"pid": self.pid if alive else 0, "pid_start": self.pid_start if alive else 0}
        publish_status(self.folder, {**self._status(record), "changed_at": now, **life})
        if str(state) != self.told:
            self.told = str(state)
            self.place.store.put(self._entry(record, now, **life))

    def _status(self, record: Record) -> dict[str, Any]:
        terms = self.agreement.terms
        return status(
            record,
            self.run.criteria,
            active_s=self.run.active_s(),
            contract=str(terms.contract),
            workspace=str(terms.root),
        )

    def _entry(self, record: Record, now: str, pid: int, pid_start: int) -> RunEntry:
        known = self.place.store.find(self.folder.run)
        return replace(
            known,
            contract=self.agreement.terms.contract,
            contract_digest=self.agreement.terms.digest,
            state=str(standing(record)),
            changed_at=now,
            pid=pid,
            pid_start=pid_start,
        )


def _run(
    folder: RunFolder, agreement: Agreement, ledger: FileLedger, clock: SystemClock, containers: OwnedContainers
) -> Run:
    goal, terms = agreement.goal, agreement.terms
    workspace = workspace_of(folder, agreement, containers)
    ports = Ports(
        clock=clock,
        ledger=ledger,
        workspace=workspace,
        containers=containers,
        agent=agent_of(agreement, folder.root),
        verifiers=CommandVerifiers(containers, clock, check_terms(agreement)),
        instructions=Prompts(template_folders(folder)),
        requests=FolderRequests(folder.requests),
        pins=PinnedFiles(folder.root, agreements.pins(folder.root, agreement)),
        disk=FolderDisk(folder.root),
        outputs=Tail,
        read_ends=read_ends,
    )
    scope = scope_of(agreement)
    return Run(
        goal=goal,
        folder=folder.root,
        user_root=terms.root,
        policy=terms.policy,
        timers=terms.timers,
        ports=ports,
        search_path=terms.search_path,
        agent_env=agent_environment(os.environ),
        record=record_of(ledger),
        rules=Rules(
            references=terms.references,
            allowed=goal.scope.allow or (),
            addable=goal.scope.add or (),
            protected=tuple(dict.fromkeys((*scope.protect, *scope.named))),
        ),
        secrets=tuple(value for value in inherited(goal, os.environ).values() if len(value) >= 8),
        weak=goal.verification == "workspace",
    )


def agent_of(agreement: Agreement, folder: Path | None = None) -> Agent:
    """The executor's agent; with the run's folder, a scripted one plays the copy that was pinned there."""
    pinned = folder / agreements.SCRIPT if folder and agreements.SCRIPT in agreement.copies else None
    return agent_for(agreement.goal.executor, agreement.terms.contract.parent, pinned)


def check_terms(agreement: Agreement) -> CheckTerms:
    """What holds for every check."""
    env = contract_environment(agreement.goal, os.environ)
    return CheckTerms(search_path=agreement.terms.search_path, base_env=os.environ, extra_env=env)


def template_folders(folder: RunFolder) -> list[Path]:
    """Pinned copies of the owner's templates; the workspace's own are within the agent's reach."""
    pinned = folder.root / agreements.TEMPLATES
    return [pinned] if pinned.is_dir() else []
