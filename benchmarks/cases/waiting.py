"""G10: what it costs to wait for an agent that thinks."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench import Bench, Figure, Numbers, Samples, Trial, column, ratios
from measure import BenchError
from workload import AGENT, lay_out

POLL, LOOPD = "poll every 10 ms", "loopd, silent agent"
CALM_S = 4.0  # from the start of the wait to where it is looked at
POLLING = """\
import subprocess, sys, time
process = subprocess.Popen(["sleep", sys.argv[1]])
open(sys.argv[2], "w").close()
while process.poll() is None:
    time.sleep(0.01)
"""


def trials(bench: Bench) -> Iterator[Trial]:
    """Both are looked at while they wait, so that no start is in the figure; that needs a cgroup."""
    if bench.meter.group:
        yield Trial(POLL, lambda: _poll(bench), rounds=bench.sizes.slow_rounds)
        yield Trial(LOOPD, lambda: _loopd(bench), rounds=bench.sizes.slow_rounds)


def figures(bench: Bench, samples: Samples) -> Iterator[Figure]:
    """Milliseconds of CPU a second, compared in each round."""
    if not bench.meter.group:
        yield Figure("G10", skipped="needs a cgroup, to look at a tree that is still running")
        return
    own, poll = (median(column(samples, name, "cpu_ms_per_s") or (0,)) for name in (LOOPD, POLL))
    note = f"loopd {own:.2f} ms/s, polling {poll:.2f} ms/s"
    yield Figure("G10", ratios(samples, LOOPD, POLL, "cpu_ms_per_s"), note=note)


def _poll(bench: Bench) -> Numbers:
    folder = bench.folder("polling")
    command = [bench.python, "-I", "-c", POLLING, _length(bench), "here"]
    with bench.meter.start(command, cwd=folder, env=bench.env(bench.scratch)) as tree:
        return _while_waiting(bench, tree, folder / "here")


def _loopd(bench: Bench) -> Numbers:
    folder, state = bench.folder("silent"), bench.folder("state")
    lay_out(folder, 1, agent=f"echo > here\nsleep {_length(bench)}\n{AGENT}")
    with bench.meter.start([*bench.loopd, "run", "goal.yaml"], cwd=folder, env=bench.env(state)) as tree:
        return _while_waiting(bench, tree, folder / "here")


def _length(bench: Bench) -> str:
    return str(bench.sizes.idle_s + CALM_S + 1)


def _while_waiting(bench: Bench, tree: "subprocess.Popen[bytes]", marker: Path) -> Numbers:
    deadline = time.monotonic() + 60
    while not marker.exists():
        if tree.poll() is not None or time.monotonic() > deadline:
            tree.kill()
            raise BenchError(f"nothing waits: {marker} was never written")
        time.sleep(0.01)
    time.sleep(CALM_S)
    before_s, began = bench.meter.cpu_s(), time.monotonic()
    time.sleep(bench.sizes.idle_s)
    used_s, waited_s = bench.meter.cpu_s() - before_s, time.monotonic() - began
    if tree.poll() is not None:
        raise BenchError("the wait was over before it was measured")
    if tree.wait(timeout=60):
        raise BenchError("what had waited failed")
    return {"cpu_ms_per_s": used_s / waited_s * 1000}
