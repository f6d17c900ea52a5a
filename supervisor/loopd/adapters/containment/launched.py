"""What the supervisor knows about a container: the parsed form of its `started` record."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopd.adapters.containment.procfs import Identity
from loopd.adapters.containment.records import identity_of
from loopd.domain.errors import StateError
from loopd.ports.processes import Containment


@dataclass(frozen=True, slots=True)
class Launched:
    """A container as its shim recorded it; the same facts whether it was started or adopted."""

    folder: Path
    boot_id: str
    containment: Containment
    marker: str
    shim: Identity
    main: Identity  # the program itself, or the outer bubblewrap process
    bubblewrap: bool
    init: Identity | None  # pid 1 of the namespace
    agent: Identity | None  # the program inside; None without bubblewrap, or when it left before it was seen
    cgroup: Path | None
    stdout: Path
    stderr: Path
    helper: Identity | None = None  # the nursery of this supervisor, if it launched the container

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


def vanished(folder: Path, claim: dict[str, Any]) -> Launched:
    """Claimed before the machine went down, and what was written after that is lost: it may have run."""
    nobody = Identity(0, 0)
    return Launched(
        folder=folder,
        boot_id=str(claim.get("boot_id", "")),
        containment=Containment.SUBREAPER,
        marker="",
        shim=nobody,
        main=nobody,
        bubblewrap=False,
        init=None,
        agent=None,
        cgroup=None,
        stdout=folder / "stdout.log",
        stderr=folder / "stderr.log",
    )


def parse(folder: Path, record: dict[str, Any], helper: Identity | None = None) -> Launched:
    """Read a `started` record. Raises `StateError` when it is none, or of an unknown format."""
    if record.get("format") != 1:
        raise StateError(f"{folder}/started: unknown format {record.get('format')!r}; a newer loopd wrote it")
    try:
        shim, main = identity_of(record["shim"]), identity_of(record["main"])
        if shim is None or main is None:
            raise ValueError("no pid and start time")
        return Launched(
            folder=folder,
            boot_id=record["boot_id"],
            containment=Containment(record["containment"]),
            marker=record["marker"],
            shim=shim,
            main=main,
            bubblewrap=record["bubblewrap"],
            init=identity_of(record.get("init")),
            agent=identity_of(record.get("agent")),
            cgroup=Path(record["cgroup"]) if record["cgroup"] else None,
            stdout=Path(record["stdout"]),
            stderr=Path(record["stderr"]),
            helper=helper,
        )
    except (KeyError, ValueError) as error:
        raise StateError(f"{folder}/started cannot be read: {error!r}") from error
