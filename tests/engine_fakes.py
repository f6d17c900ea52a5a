"""In-memory stand-ins for the ports of the engine, in one world that outlives its supervisors.

Time moves only when somebody sleeps; agents act along a script on that time, whether or not a supervisor lives.
`World.supervise` pursues the goal with a new supervisor, whose record is replayed from the ledger. A supervisor
whose `Life` ends in the middle leaves everything as it stands: its clean-up does not happen.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
from msgspec.structs import replace

from fakes import FakeClock, MemoryLedger, MemoryRequests
from loopd.domain.attempt import Ended, Exit, Usage
from loopd.domain.budget import Allowance
from loopd.domain.contract import Criterion, Goal
from loopd.domain.decision import Policy
from loopd.domain.errors import BlockedError, UsageError
from loopd.domain.feedback import Briefing
from loopd.domain.record import Record, apply, dump_value
from loopd.domain.run import Ending
from loopd.domain.text import Ends
from loopd.domain.verdict import Status, Verdict
from loopd.engine.loop import pursue
from loopd.engine.run import Ports, Run, Timers
from loopd.ports.agent import AgentEvent, Final, Launch, Order, Text, Usages
from loopd.ports.ledger import Event
from loopd.ports.processes import Activity, Cleared, Containment, Grace, ProcessSpec
from loopd.ports.verifier import CheckContext
from loopd.ports.workspace import CheckTree, Composed, Prepared, Relaxation, SetupError, Snapshot, TreeId

Files = Mapping[str, str]


class PowerCutError(Exception):
    """The supervisor is dead: nothing of it happens any more, its clean-up included."""


@dataclass
class Life:
    """Whether a supervisor lives, and before or after which event of the ledger it dies."""

    dies_before: int = 0
    dies_after: int = 0
    dead: bool = False

    def check(self) -> None:
        """Raise where a dead supervisor would act."""
        if self.dead:
            raise PowerCutError

    def end(self) -> None:
        """Die now."""
        self.dead = True
        raise PowerCutError


class WorldClock(FakeClock):
    """A clock that lets the world act as time passes, and a test act while somebody sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.passes: list[Callable[[], None]] = []
        self.asleep: Callable[[float], None] = lambda seconds: None

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        for act in self.passes:
            act()

    async def sleep(self, seconds: float) -> None:
        self.asleep(seconds)
        await super().sleep(seconds)


class LivingLedger:
    """The ledger as one supervisor holds it; it may die before or after any event."""

    def __init__(self, kept: MemoryLedger, life: Life) -> None:
        self._kept, self._life = kept, life

    def append(self, kind: str, data: Mapping[str, Any], *, durable: bool = True) -> Event:
        self._life.check()
        number = sum(1 for _ in self._kept.events()) + 1
        if number == self._life.dies_before:
            self._life.end()
        event = self._kept.append(kind, data, durable=durable)
        if number == self._life.dies_after:
            self._life.end()
        return event

    def events(self, after: int = 0) -> Iterator[Event]:
        return self._kept.events(after)

    def save_snapshot(self, seq: int, state: Mapping[str, Any]) -> None:
        self._life.check()
        self._kept.save_snapshot(seq, state)

    def load_snapshot(self) -> tuple[int, Mapping[str, Any]] | None:
        return self._kept.load_snapshot()


@dataclass(frozen=True)
class Does:
    """What an agent does at one moment of its attempt."""

    at_s: float = 0.0
    edits: Mapping[str, str | None] = field(default_factory=dict)  # path -> content; None deletes
    says: tuple[str, ...] = ()
    forges: tuple[str, ...] = ()  # pinned copies that it changes
    then: Callable[[], object] = lambda: None  # what somebody else does just then


@dataclass(frozen=True)
class Script:
    """One attempt of an agent. It hangs until it is ended when `lasts_s` is infinite."""

    does: tuple[Does, ...] = ()
    lasts_s: float = 60.0
    exit: int = 0
    busy: float = 0.0  # processors in use all the time
    last_words: tuple[str, ...] = ()  # said after the first signal
    deaf: bool = False  # leaves only when it is killed
    strays: tuple[str, ...] = ()  # commands left in the background, to be ended
    survivors: tuple[str, ...] = ()  # commands that cannot be ended


def works(
    edits: Mapping[str, str | None] | None = None, *says: str, forges: tuple[str, ...] = (), **more: Any
) -> Script:
    """An agent that does everything at once and then stays for a minute."""
    return Script((Does(0.0, edits or {}, says, forges),), **more)


HANGS = Script(lasts_s=math.inf)


class Process:
    """An agent at work, supervised or not."""

    def __init__(self, world: "World", spec: ProcessSpec, script: Script) -> None:
        self._world, self.spec, self.script = world, spec, script
        self._began = world.clock.elapsed()
        self._done = 0
        self.exit: Exit | None = None
        self.cleared: Cleared | None = None
        self.act()

    @property
    def age_s(self) -> float:
        return self._world.clock.elapsed() - self._began

    def act(self) -> None:
        """Do what is due. What it would have done after its end never happens."""
        while self.exit is None and self._done < len(self.script.does):
            due = self.script.does[self._done]
            if due.at_s > min(self.age_s, self.script.lasts_s):
                break
            self._done += 1
            self._world.workspace.edit(due.edits)
            self._world.forged.update(due.forges)
            self.say(due.says)
            due.then()
        if self.exit is None and self.age_s >= self.script.lasts_s:
            self.exit = Exit(self.script.exit, duration_s=self.script.lasts_s)

    def say(self, lines: Iterable[str]) -> None:
        assert self.spec.stdout is not None
        self._world.outputs.setdefault(self.spec.stdout, bytearray()).extend(b"".join(f"{x}\n".encode() for x in lines))

    def end(self, grace: Grace) -> Cleared:
        """Signals in order until it has left; what it left behind is ended, or survives."""
        signals: tuple[str, ...] = ()
        if self.exit is None:
            ladder = [(grace.first, 0.1), ("SIGTERM", grace.interrupt_s), ("SIGKILL", grace.terminate_s)]
            self.say(self.script.last_words)
            signals = tuple(name for name, _ in (ladder if self.script.deaf else ladder[:1]))
            wait_s = sum(seconds for _, seconds in (ladder if self.script.deaf else ladder[:1]))
            self.exit = Exit(signal=signals[-1], duration_s=self.age_s + wait_s)
            self._world.clock.advance(wait_s)
        ended = tuple(Ended(100 + n, command) for n, command in enumerate(self.script.strays))
        alive = tuple(Ended(200 + n, command) for n, command in enumerate(self.script.survivors))
        self.cleared = self.cleared or Cleared(self.exit, ended, (), signals)
        return replace(self.cleared, survivors=alive)


class FakeContainer:
    """A supervisor's hold on a process."""

    containment = Containment.SUBREAPER

    def __init__(self, process: Process, life: Life) -> None:
        self._process, self._life = process, life

    async def wait(self) -> Exit:
        await anyio.lowlevel.checkpoint()
        while self._process.exit is None:
            await anyio.lowlevel.checkpoint()
        return self._process.exit

    def activity(self) -> Activity:
        process = self._process
        assert process.spec.stdout is not None
        printed = len(process._world.outputs.get(process.spec.stdout, b""))
        return Activity(printed, process.script.busy * process.age_s, 1)

    async def end(self, grace: Grace) -> Cleared:
        self._life.check()
        await anyio.lowlevel.checkpoint()
        return self._process.end(grace)


class FakeContainers:
    """Claims by folder: a container is launched once, or adopted, or never."""

    def __init__(self, world: "World", life: Life) -> None:
        self._world, self._life = world, life

    async def start(self, spec: ProcessSpec) -> FakeContainer:
        self._life.check()
        await anyio.lowlevel.checkpoint()
        world = self._world
        assert spec.folder.is_dir(), "the folder of a container exists before it starts"
        assert spec.folder not in world.claims, "nothing is launched twice"
        assert not world.at_work(), "there are never two agents"
        if world.missing:
            raise BlockedError(f"{spec.argv[0]} cannot be started", "install it, then loopd resume last")
        script = world.scripts[min(len(world.launches), len(world.scripts) - 1)]
        world.launches.append(spec.marker)
        process = world.claims[spec.folder] = Process(world, spec, script)
        world.clock.passes.append(process.act)
        await anyio.lowlevel.checkpoint()
        return FakeContainer(process, self._life)

    async def adopt(self, folder: Path) -> FakeContainer | None:
        self._life.check()
        await anyio.lowlevel.checkpoint()
        assert folder.is_dir(), "the folder of a container exists before it is adopted"
        process = self._world.claims.setdefault(folder, None)
        return FakeContainer(process, self._life) if process else None


class FakeReader:
    """Lines `cost 0.10` and `tokens 7` add up, `final` is the last event, `total 0.30` is the agent's own sum."""

    def __init__(self) -> None:
        self._seen = Usage()
        self._total: Usage | None = None

    listens = True

    def feed(self, line: bytes) -> Iterable[AgentEvent]:
        match line.decode(errors="replace").split():
            case ["cost", figure]:
                self._seen = replace(self._seen, cost_usd=(self._seen.cost_usd or 0.0) + float(figure))
                yield Usages(self._seen)
            case ["tokens", figure]:
                self._seen = replace(self._seen, tokens=(self._seen.tokens or 0) + int(figure))
                yield Usages(self._seen)
            case ["total", figure]:
                self._total = Usage(cost_usd=float(figure))
            case ["final"]:
                yield Final("done")
            case words:
                yield Text(" ".join(words))

    def usage(self) -> Usage | None:
        return self._total


class FakeAgent:
    """The scripted agent; its program may be missing."""

    name, first_signal = "scripted", "SIGINT"

    def __init__(self, world: "World") -> None:
        self._world = world

    def probe(self, search_path: str) -> str:
        if self._world.missing:
            raise BlockedError(f"scripted is not on {search_path}", "install it, then loopd resume last")
        return "scripted 1.0"

    def launch(self, order: Order) -> Launch:
        return Launch(("scripted",), stdin=order.instruction)

    def reader(self, order: Order) -> FakeReader:
        return FakeReader()


class FakeLines:
    """A growing file, two lines at a time."""

    def __init__(self, world: "World", path: Path) -> None:
        self._world, self._path, self._at = world, path, 0

    def read(self) -> list[bytes]:
        rest = bytes(self._world.outputs.get(self._path, b""))[self._at :]
        lines = rest.split(b"\n")[:-1][:2]
        self._at += sum(len(line) + 1 for line in lines)
        return lines

    def grew(self) -> bool:
        size, last = len(self._world.outputs.get(self._path, b"")), self._at
        self._at = size
        return size != last

    def finish(self) -> bytes:
        return bytes(self._world.outputs.get(self._path, b""))[self._at :]


class FakeWorkspace:
    """Trees as contents, named by their hash. Scope: `protected` and `allowed` are globs."""

    def __init__(self, files: Files, protected: Sequence[str], allowed: Sequence[str] = ("*",)) -> None:
        self.files = dict(files)
        self.owners: dict[str, str] | None = None  # the owner's own tree, where the agent works in a clone
        self.root = Path("/workspace")
        self.protected, self.allowed = tuple(protected), tuple(allowed)
        self.trees: dict[TreeId, dict[str, str]] = {}
        self.kept: dict[str, str] = {}  # what checks left behind in the kept tree, beside its files
        self.evidence: dict[str, str] = {}
        self.locks: tuple[str, ...] = ()
        self.setup_fails = ""
        self.relaxed: tuple[str, ...] = ()  # contract lines that preflight may try
        self.branches: dict[str, tuple[TreeId, str]] = {}
        self.rebuilds = 0
        self.weak = False
        self.setup_breaks_on = ""  # a path with which setup fails
        self._baseline: TreeId = ""

    def edit(self, edits: Mapping[str, str | None]) -> None:
        """Somebody writes and deletes files."""
        for path, content in edits.items():
            if content is None:
                self.files.pop(path, None)
            else:
                self.files[path] = content

    def keep(self, files: Files) -> TreeId:
        """The name of a tree with this content."""
        tree = hashlib.sha256(json.dumps(sorted(files.items())).encode()).hexdigest()[:12]
        self.trees[tree] = dict(files)
        return tree

    async def prepare(self) -> Prepared:
        await anyio.lowlevel.checkpoint()
        self._baseline = self._baseline or self.keep(self.files)
        if self.setup_fails:
            raise BlockedError(f"setup failed: {self.setup_fails}", "mend it, then loopd resume last")
        return Prepared(self._baseline, 1.0, False, len(self.files))

    async def snapshot(self) -> Snapshot:
        await anyio.lowlevel.checkpoint()
        return Snapshot(self.keep(self.files))

    async def overlay(self, base: TreeId, before: TreeId, after: TreeId) -> TreeId:
        changed = await self.changed_paths(before, after)
        return self.keep(_with(self.trees[base], self.trees[after], changed))

    async def compose(self, base: TreeId, after: TreeId) -> Composed:
        old = self.trees[base]
        touched = await self.changed_paths(base, after)
        inside = tuple(path for path in touched if self._may_change(path))
        outside = [path for path in touched if path not in inside]
        back = tuple(path for path in outside if path in old or self._is_protected(path))
        return Composed(
            tree=self.keep(_with(old, self.trees[after], inside)),
            changed=inside,
            restored=back,
            unproven=tuple(path for path in outside if path not in back),
        )

    async def restore(self, base: TreeId, after: TreeId, paths: Sequence[str], evidence: Path) -> None:
        for path in paths:
            self.evidence.setdefault(path, self.trees[after].get(path, "(deleted)"))
        self.files = _with(self.files, self.trees[base], paths)

    async def check_tree(self, tree: TreeId, *, fresh: bool = False) -> CheckTree:
        await anyio.lowlevel.checkpoint()
        if self.setup_breaks_on in self.trees[tree]:
            raise SetupError("pip install fails", "mend it, then loopd resume last")
        if fresh:  # it takes the place of the kept one
            self.kept.clear()
        kind = "live" if self.weak else "fresh" if fresh else "kept"
        return CheckTree(Path("/checks", kind, tree), self.root, None, weak=self.weak)

    async def baseline_tree(self, base: TreeId) -> CheckTree:
        return CheckTree(Path("/checks/baseline", base), self.root, None)

    async def disk_bytes(self) -> int:
        return sum(len(content) for files in self.trees.values() for content in files.values())

    async def rebuild(self) -> None:
        self.kept.clear()
        self.rebuilds += 1

    async def release_locks(self) -> tuple[str, ...]:
        locks, self.locks = self.locks, ()
        return locks

    async def relaxations(self, tree: CheckTree) -> Sequence[Relaxation]:
        return [Relaxation(line, replace(tree, path=Path("/checks", line, tree.path.name))) for line in self.relaxed]

    async def diff(self, old: TreeId, new: TreeId, *, limit: int = 0) -> str:
        before, after = self.trees[old], self.trees[new]
        lines: list[str] = []
        for path in await self.changed_paths(old, new):
            lines += unified_diff(before.get(path, "").split("\n"), after.get(path, "").split("\n"), path, path)
        text = "\n".join(lines)
        return text[:limit] if limit else text

    async def changed_paths(self, old: TreeId, new: TreeId) -> tuple[str, ...]:
        before, after = self.trees[old], self.trees[new]
        return tuple(sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path)))

    async def write_tree(self, tree: TreeId, *, expected: TreeId | None) -> tuple[str, ...]:
        target = self.files if self.owners is None else self.owners
        changed = await self.changed_paths(self.keep(target), tree)
        if expected and (conflicts := [x for x in changed if target.get(x) != self.trees[expected].get(x)]):
            raise UsageError(f"changed meanwhile: {', '.join(conflicts)}")
        target.clear()
        target.update(self.trees[tree])
        return changed

    async def commit(self, tree: TreeId, branch: str, message: str) -> str:
        if self.branches.setdefault(branch, (tree, message)) != (tree, message):
            raise UsageError(f"branch {branch} exists with other content")
        return f"c0ffee{tree}"

    def _may_change(self, path: str) -> bool:
        return any(fnmatchcase(path, glob) for glob in self.allowed) and not self._is_protected(path)

    def _is_protected(self, path: str) -> bool:
        return any(fnmatchcase(path, glob) for glob in self.protected)


def _with(files: Files, source: Files, paths: Iterable[str]) -> dict[str, str]:
    """`files` with what `source` has, or lacks, at `paths`."""
    changed = dict(files)
    for path in paths:
        if path in source:
            changed[path] = source[path]
        else:
            changed.pop(path, None)
    return changed


@dataclass(frozen=True)
class Seen:
    """What a check is given: the files of its tree, and what earlier checks left there."""

    files: Files
    left: dict[str, str]
    kind: str  # "kept" | "fresh" | "baseline" | "live" | a relaxation's line
    attempt: int


Answer = Verdict | Status | bool
Check = Callable[[Seen], Answer]


def new(seen: Seen) -> bool:
    """The goal of most tests: a.py is new."""
    return seen.files.get("a.py") == "new"


def parts(count: int) -> dict[str, Check]:
    """Criteria p1, p2, …: the nth holds when the file part<n> is there."""
    return {f"p{n}": partial(_has, f"part{n}") for n in range(1, count + 1)}


def _has(path: str, seen: Seen) -> bool:
    return path in seen.files


class FakeVerifiers:
    """Checks as functions of a tree; each takes `lasts_s` of the world's time."""

    def __init__(self, world: "World", checks: Mapping[str, Check]) -> None:
        self._world, self.checks = world, dict(checks)
        self.ran: list[tuple[str, str, int]] = []  # (criterion, kind of tree, attempt)
        self.lasts_s = 1.0

    def locate(self, criterion: Criterion) -> str:
        return f"/usr/bin/{criterion.name}"

    async def check(self, criterion: Criterion, context: CheckContext) -> Verdict:
        workspace, path = self._world.workspace, context.tree.path
        kind = path.parent.name
        files = workspace.files if kind == "live" else workspace.trees[path.name]
        self.ran.append((criterion.name, kind, context.attempt))
        await self._world.clock.sleep(self.lasts_s)
        left = workspace.kept if kind in ("kept", "fresh") else {}
        answer = self.checks[criterion.name](Seen(dict(files), left, kind, context.attempt))
        if isinstance(answer, bool):
            answer = Status.PASS if answer else Status.FAIL
        if isinstance(answer, Status):
            answer = Verdict(criterion.name, answer, summary=f"{criterion.name} says {answer}")
        return replace(answer, criterion=criterion.name, duration_s=self.lasts_s)


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
