"""In-memory agents and their processes for tests of the engine, on the time and the life of one world."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
from msgspec.structs import replace

from fakes import FakeClock, MemoryLedger
from loopd.domain.attempt import Ended, Exit, Usage
from loopd.domain.errors import BlockedError
from loopd.ports.agent import AgentEvent, Final, Launch, Order, Text, Usages
from loopd.ports.ledger import Event
from loopd.ports.processes import Activity, Cleared, Containment, Grace, ProcessSpec

if TYPE_CHECKING:
    from engine_fakes import World


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
