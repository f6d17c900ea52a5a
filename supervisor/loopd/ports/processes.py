"""Processes as owned containers: started by a shim that outlives loopd, ended by one function, provably empty."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from loopd.domain.attempt import Ended, Exit


class Containment(StrEnum):
    """The means by which a process tree is held together, strongest first."""

    CGROUP = "cgroup"
    PID_NAMESPACE = "pid-namespace"
    SUBREAPER = "subreaper"


class Bind(Struct, frozen=True):
    """A path made visible inside a sandbox."""

    source: Path
    target: Path
    writable: bool = False


class Sandbox(Struct, frozen=True):
    """What a sandboxed process sees (bubblewrap): the whole disk read-only, then `hidden`, then `binds` in order.

    It gets a PID namespace, a /proc and a /dev of its own; `gpu` device nodes are passed through when present.
    """

    binds: tuple[Bind, ...] = ()
    hidden: tuple[Path, ...] = ()  # replaced by an empty writable tmpfs (for folders) or /dev/null (for files, sockets)
    network: bool = True  # False: a network namespace with only a loopback device
    writable_root: bool = False  # the rest of the disk stays writable (a PID namespace is all that is wanted)


class Limits(Struct, frozen=True):
    """Caps on one container; None is no cap."""

    memory_bytes: int | None = None
    processes: int | None = None
    output_bytes: int | None = None  # of stdout plus stderr, enforced by the caller through `Activity`


class ProcessSpec(Struct, frozen=True):
    """Everything needed to start one container. Paths are absolute; `folder` exists and is private to it.

    The container leaves in `folder`: `claim` (who launched it), `started` (pids, start times, boot id, containment)
    and `exit` (how the main process left), each written whole or not at all.
    """

    folder: Path
    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]  # complete: nothing is inherited; the marker is added
    marker: str  # unique per container; carried by every process of it as LOOPD_MARKER
    stdin: Path | None = None  # None: /dev/null. Always finite, never a terminal
    stdout: Path | None = None  # None: folder/stdout.log; opened for appending, created 0600
    stderr: Path | None = None  # None: folder/stderr.log
    sandbox: Sandbox | None = None
    limits: Limits = field(default_factory=Limits)


class Grace(Struct, frozen=True):
    """The stop ladder: which signal first, and how long each step may take, in seconds."""

    first: str = "SIGINT"
    interrupt_s: float = 5.0
    terminate_s: float = 5.0
    sweep_s: float = 5.0


class Activity(Struct, frozen=True):
    """A look at a container; three signals of life. Cumulative figures, compared by the caller."""

    output_bytes: int
    cpu_s: float
    processes: int


class Cleared(Struct, frozen=True):
    """What ending a container took. `survivors` not empty means that it is not empty: a failed kill."""

    exit: Exit
    ended: tuple[Ended, ...] = ()  # strays that had to be killed, the main process excluded
    survivors: tuple[Ended, ...] = ()
    signals: tuple[str, ...] = ()  # sent to the main process, in order


class Container(Protocol):
    """A started or adopted process tree."""

    @property
    def containment(self) -> Containment:
        """The means that hold it; recorded in the ledger."""
        ...

    async def wait(self) -> Exit:
        """Return when the main process has left, with how. Event-driven; cancelling leaves everything running."""
        ...

    def activity(self) -> Activity:
        """Measure now; costs a walk over the tree, so ask every few seconds at most."""
        ...

    async def end(self, grace: Grace) -> Cleared:
        """Make the container empty, on every path: normal exit, limit, signal, restart. Idempotent.

        Interrupt, wait, terminate, wait, kill, sweep, verify. When the main process has already left, only the
        sweep remains. Shielded from cancellation until the container is empty or `sweep_s` is over.
        """
        ...


class Containers(Protocol):
    """Starts, adopts and ends containers; the only door to other programs that may run for long."""

    async def start(self, spec: ProcessSpec) -> Container:
        """Launch once; returns when the main process is running (or has already left).

        Raises `BlockedError` when the program cannot be started (missing, not executable, missing interpreter,
        argument list too long): said before anything ran.
        """
        ...

    async def adopt(self, folder: Path) -> Container | None:
        """Take over the container that another loopd started in `folder`; None when it never launched.

        None is final: the claim is taken, so a late shim refuses to start. A container whose machine was restarted
        comes back with an exit that is `lost`.
        """
        ...
