"""What a command costs: CPU of its whole tree, wall time, and the memory of its main process."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
BURNT_S = 0.3


class BenchError(Exception):
    """A case could not be measured, or did not do its work."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one command."""

    status: int
    wall_s: float
    cpu_s: float
    rss_mb: float  # VmHWM of the main process
    left: int  # processes that were still there 5 s after its end
    output: str


class Meter:
    """Measures by a cgroup where one can be made, else as the subreaper of the tree."""

    def __init__(self, scratch: Path) -> None:
        self.group = _make_cgroup()
        self._scratch = scratch
        self._numbers = count()

    @property
    def kind(self) -> str:
        """For the record."""
        return "cgroup cpu.stat" if self.group else "rusage of a subreaper"

    def run(
        self,
        command: Sequence[str | Path],
        *,
        cwd: Path,
        env: Mapping[str, str],
        whole_tree: bool = True,
        timeout_s: float = 600.0,
    ) -> Sample:
        """Run to the end. Without `whole_tree` joining a cgroup is saved, 1 ms, which matters for the shortest."""
        log = self._scratch / f"log-{next(self._numbers)}"
        group = str(self.group) if self.group and whole_tree else "-"
        meter = [sys.executable, "-I", "-S", str(PROGRAMS / "meter.py"), group, str(log), *map(str, command)]
        done = subprocess.run(meter, cwd=cwd, env=dict(env), capture_output=True, text=True, timeout=timeout_s)
        output = log.read_text(errors="replace") if log.exists() else ""
        log.unlink(missing_ok=True)
        if done.returncode:
            raise BenchError(f"the meter failed on {command}: {done.stderr[-400:]}")
        return Sample(**json.loads(done.stdout), output=output)

    def start(self, command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        """Start it and go on; `cpu_s` tells what it uses meanwhile. Its output goes to `cwd` with `.log` behind."""
        log = cwd.parent / f"{cwd.name}.log"
        meter = [sys.executable, "-I", "-S", str(PROGRAMS / "meter.py"), str(self.group), str(log), *map(str, command)]
        return subprocess.Popen(meter, cwd=cwd, env=dict(env), stdout=subprocess.DEVNULL)

    def cpu_s(self) -> float:
        """What the cgroup has used so far; for a look at a tree that is still running."""
        if self.group is None:
            raise BenchError("needs a cgroup")
        return int((self.group / "cpu.stat").read_text().split()[1]) / 1e6

    def prove(self) -> None:
        """A known burner, detached from its parent, must be read right, or every figure here is worthless."""
        command = [sys.executable, "-I", str(PROGRAMS / "burner.py"), str(BURNT_S)]
        read = self.run(command, cwd=self._scratch, env=os.environ).cpu_s
        if not BURNT_S * 0.9 <= read <= BURNT_S * 1.5 + 0.1:
            raise BenchError(f"a detached program that used {BURNT_S} s of CPU was read as {read:.3f} s ({self.kind})")

    def close(self) -> None:
        """Remove the cgroup."""
        if self.group:
            self.group.rmdir()


def checked(sample: Sample, status: int = 0) -> Sample:
    """The sample, if it ended as it should and left nothing behind."""
    if sample.status != status or sample.left:
        raise BenchError(f"status {sample.status}, {sample.left} processes left: {sample.output[-600:]}")
    return sample


def _make_cgroup() -> Path | None:
    """A cgroup below our own in the unified hierarchy; None where that is not allowed (most users)."""
    own = [line[3:].strip() for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in (Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"):
        group = mount / own[0].lstrip("/") / f"loopd-bench-{os.getpid()}" if own else mount
        try:
            group.mkdir()
            if (group / "cpu.stat").read_text().startswith("usage_usec") and os.access(group / "cgroup.procs", os.W_OK):
                return group
            group.rmdir()
        except OSError:
            continue
    return None
