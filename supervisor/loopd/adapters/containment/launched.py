"""What the supervisor knows about a container: the parsed form of its `started` record."""

from pathlib import Path
from typing import Any

from msgspec import Struct

from loopd.adapters.containment.procfs import Identity
from loopd.adapters.containment.records import identity_of
from loopd.domain.errors import StateError
from loopd.ports.processes import Containment

NOBODY = Identity(0, 0)


class Launched(Struct, frozen=True):
    """A container as its shim recorded it; the same facts whether it was started or adopted."""

    folder: Path
    boot_id: str
    containment: Containment
    marker: str
    shim: Identity
    main: Identity  # the program, or the outer bubblewrap; `NOBODY`: the shim died too early
    bubblewrap: bool
    init: Identity | None  # pid 1 of the namespace
    agent: Identity | None  # the program inside; None without bubblewrap, or when it left before it was seen
    cgroup: Path | None
    stdout: Path
    stderr: Path
    helper: Identity | None = None  # the nursery of this supervisor, if it launched the container
    elders: frozenset[int] = frozenset()  # pids from before the launch, which cannot bear its marker
    elders_until_s: float = 0.0  # on CLOCK_BOOTTIME; later their pids may have gone to others

    @property
    def program(self) -> Identity | None:
        """The process that signals of the stop ladder are meant for: never bubblewrap itself, which would
        kill it.
        """
        return self.agent if self.bubblewrap else self.main

    @property
    def scaffold(self) -> frozenset[Identity]:
        """Processes that are part of the means, not of the work."""
        return frozenset(i for i in (self.shim, self.main if self.bubblewrap else None, self.init) if i)


def unreadable(folder: Path) -> dict[str, Any]:
    """What stands for a claim that a power failure has cut: something may have run, nothing is known."""
    record = {"format": 1, "boot_id": "", "containment": Containment.SUBREAPER, "marker": "", "shim": None}
    streams = {"stdout": str(folder / "stdout.log"), "stderr": str(folder / "stderr.log")}
    return {**record, **streams, "bubblewrap": False, "cgroup": None}


def parse(folder: Path, record: dict[str, Any], helper: Identity | None = None) -> Launched:
    """Read a `started` record, or the claim that stands for it when the shim was killed in between.

    Raises `StateError` when it is neither, or of an unknown format.
    """
    if record.get("format") != 1:
        raise StateError(f"{folder}: a record of unknown format {record.get('format')!r}, of a newer loopd")
    try:
        return Launched(
            folder=folder,
            boot_id=record["boot_id"],
            containment=Containment(record["containment"]),
            marker=record["marker"],
            shim=identity_of(record["shim"]) or NOBODY,
            main=identity_of(record.get("main")) or NOBODY,
            bubblewrap=record["bubblewrap"],
            init=identity_of(record.get("init")),
            agent=identity_of(record.get("agent")),
            cgroup=Path(record["cgroup"]) if record["cgroup"] else None,
            stdout=Path(record["stdout"]),
            stderr=Path(record["stderr"]),
            helper=helper,
        )
    except (KeyError, ValueError) as error:
        raise StateError(f"{folder}: a record that cannot be read: {error!r}") from error
