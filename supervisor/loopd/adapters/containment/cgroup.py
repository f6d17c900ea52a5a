"""Control groups, version 2: one for each container, below the supervisor's own."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import anyio

_REMOVE_S = 1.0


def find_root() -> Path | None:
    """The supervisor's own cgroup, where it may make others; None when that is not ours to use.

    Asked of the kernel, not assumed: the mount may be the hybrid one, read-only in a container, or without
    `cgroup.kill` (before Linux 5.14). Under systemd a unit must have been delegated, else its manager owns
    the tree.
    """
    own = _own_folder()
    if own is None or not os.access(own / "cgroup.procs", os.W_OK):
        return None
    if Path("/run/systemd/system").exists() and not _delegated(own):
        return None
    return own if _can_make(own) else None


def folder_for(root: Path, name: str) -> Path:
    """Where the cgroup of one container lies; made by its shim."""
    return root / f"loopd-{name}"


def limit_files(root: Path, memory_bytes: int | None, processes: int | None) -> dict[str, str]:
    """Files to write in a new cgroup for these limits; those whose controller cannot be had are left out."""
    wanted = {"memory": ("memory.max", memory_bytes), "pids": ("pids.max", processes)}
    files = {}
    for controller, (name, value) in wanted.items():
        if value is not None and _enable(root, controller):
            files[name] = str(value)
    return files


def members(folder: Path) -> list[int]:
    """Pids of the live processes in it and in the cgroups below."""
    found: list[int] = []
    for path in _subtree(folder):
        with suppress(OSError):
            found += map(int, (path / "cgroup.procs").read_text().split())
    return [pid for pid in found if pid]  # 0: a process outside the reader's PID namespace


def kill(folder: Path) -> None:
    """SIGKILL to everything in it, concurrent forks included (the kernel's own promise). No-op when it is
    gone.
    """
    with suppress(OSError):
        (folder / "cgroup.kill").write_text("1")


def cpu_s(folder: Path) -> float | None:
    """CPU seconds used in it so far, also by processes that are gone; None when it cannot be read."""
    try:
        text = (folder / "cpu.stat").read_text()
    except OSError:
        return None
    usage = dict(line.split() for line in text.splitlines())
    return int(usage.get("usage_usec", 0)) / 1e6


async def remove(folder: Path) -> None:
    """Remove it and those below; retried for a second, since a dying process may hold it that long."""
    with anyio.move_on_after(_REMOVE_S):
        while folder.exists():
            for path in _subtree(folder):
                with suppress(OSError):
                    path.rmdir()
            await anyio.sleep(0.002)


def _subtree(folder: Path) -> Iterator[Path]:
    for path, _, _ in os.walk(folder, topdown=False):
        yield Path(path)


def _own_folder() -> Path | None:
    own = next((line[3:] for line in _lines("/proc/self/cgroup") if line.startswith("0::")), None)
    for line in _lines("/proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        if after.split(" ")[0] == "cgroup2" and own is not None:
            root, mount = before.split(" ")[3:5]
            if own == root or own.startswith(root.rstrip("/") + "/"):
                return Path(mount) / own[len(root.rstrip("/")) :].lstrip("/")
    return None


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _delegated(folder: Path) -> bool:
    for name in ("user.delegate", "trusted.delegate"):
        with suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _can_make(root: Path) -> bool:
    probe = root / f"loopd-probe-{uuid4().hex}"
    try:
        probe.mkdir()
    except OSError:
        return False
    able = (probe / "cgroup.kill").exists()
    probe.rmdir()
    return able


def _enable(root: Path, controller: str) -> bool:
    """Hand a controller to the cgroups below. Refused by the kernel while `root` itself holds processes."""
    file = root / "cgroup.subtree_control"
    try:
        if controller not in file.read_text().split():
            file.write_text(f"+{controller}")
    except OSError:
        return False
    return True
