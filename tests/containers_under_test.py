"""What the tests of containers share: the means this machine offers, and eyes that need no marker."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

import anyio

from loopd.adapters.containment import records
from loopd.adapters.containment.containers import OwnedContainers
from loopd.domain.errors import BlockedError
from loopd.ports.processes import Cleared, Containers, Containment, Grace, ProcessSpec

PATH = os.environ.get("PATH", os.defpath)
QUICK = Grace(interrupt_s=0.2, terminate_s=0.2, sweep_s=10.0)
AT_ONCE = Grace(first="SIGKILL", sweep_s=10.0)


def _offered() -> list[Containment]:
    async def probe(kind: Containment) -> bool:
        try:
            return await OwnedContainers(containment=kind).choose() is kind
        except BlockedError:
            return False

    return [kind for kind in Containment if anyio.run(probe, kind)]


KINDS = _offered()
STRONG = [kind for kind in KINDS if kind is not Containment.SUBREAPER]


def spec(folder: Path, *argv: str, env: Mapping[str, str] | None = None, **more: object) -> ProcessSpec:
    """A container in a new folder below `folder`, working there."""
    name = f"c{len(list(folder.iterdir()))}"
    (folder / name).mkdir()
    return ProcessSpec(
        folder=folder / name,
        argv=argv,
        cwd=more.pop("cwd", folder),  # type: ignore[arg-type]
        env={"PATH": PATH} if env is None else env,
        marker=f"test-{folder.name}-{name}-{os.urandom(4).hex()}",
        **more,  # type: ignore[arg-type]
    )


def sh(folder: Path, script: str, **more: object) -> ProcessSpec:
    """A container that runs a shell script."""
    return spec(folder, "/bin/sh", "-c", script, **more)  # type: ignore[arg-type]


def output(made: ProcessSpec) -> str:
    """What the container has printed so far."""
    return (made.folder / "stdout.log").read_text()


async def run(containers: Containers, made: ProcessSpec) -> Cleared:
    """Start, let it leave by itself, and clear up."""
    container = await containers.start(made)
    with anyio.fail_after(30):
        await container.wait()
    return await container.end(QUICK)


def recorded(folder: Path) -> Mapping[str, records.Record]:
    """The lines of a container's own file, by kind."""
    found = records.read(str(folder))
    assert found is not None, f"nothing was started in {folder}"
    return found


def keep_claim_only(folder: Path) -> None:
    """As if the shim had been killed right after its claim."""
    file = folder / records.FILE
    file.write_text(file.read_text().splitlines(keepends=True)[0])


async def eventually(condition, within_s: float = 10.0) -> None:  # type: ignore[no-untyped-def]
    """Wait until `condition()` holds; fail when it does not in time."""
    with anyio.fail_after(within_s):
        while not condition():
            await anyio.sleep(0.005)


def living() -> set[tuple[int, int, str]]:
    """(innermost pid, start time, PID namespace) of every process of the machine that is no zombie."""
    found = set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rsplit(b") ", 1)[1].split()
            with open(f"/proc/{name}/status", "rb") as file:
                inner = next(line for line in file if line.startswith(b"NSpid:")).split()[-1]
            space = os.readlink(f"/proc/{name}/ns/pid")
        except (OSError, StopIteration, IndexError):
            continue
        if fields[0] not in (b"Z", b"X"):
            found.add((int(inner), int(fields[19]), space))
    return found


def still_alive(log: Path) -> set[tuple[int, int, str]]:
    """Which of the processes that wrote to `log` are alive; also proves that nothing writes any more."""
    size = log.stat().st_size
    lines = map(str.split, log.read_text().splitlines())
    noted = {(int(pid), int(start), space) for pid, start, space in lines}
    survivors = noted & living()
    time.sleep(0.03)  # fifteen hops of a mover
    return survivors if log.stat().st_size == size else survivors | {(-1, -1, "")}


def held_by(pid: int) -> list[int]:
    """Live processes below `pid`."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rsplit(b") ", 1)[1].split()
        except OSError:
            continue
        if fields[0] not in (b"Z", b"X"):
            parents[int(name)] = int(fields[1])
    found, todo = [], [pid]
    while todo:
        parent = todo.pop()
        below = [child for child, its in parents.items() if its == parent]
        found += below
        todo += below
    return found
