"""G10: what it costs to wait for an agent that thinks."""

from collections.abc import Iterator
from statistics import median

from bench import Bench, Figure, Numbers, Samples, Trial, column, ratios
from measure import checked
from workload import AGENT, lay_out, run_loopd

POLL, LOOPD = "poll every 10 ms", "loopd, silent agent"
POLLING = """\
import subprocess, sys, time
process = subprocess.Popen(["sleep", sys.argv[1]])
while process.poll() is None:
    time.sleep(0.01)
"""


def trials(bench: Bench) -> Iterator[Trial]:
    """Each waits long and hardly at all; the difference is the waiting."""
    yield Trial(POLL, lambda: _poll(bench), rounds=bench.sizes.slow_rounds)
    yield Trial(LOOPD, lambda: _loopd(bench), rounds=bench.sizes.slow_rounds)


def figures(bench: Bench, samples: Samples) -> Iterator[Figure]:
    """Milliseconds of CPU a second, compared in each round."""
    own, poll = (median(column(samples, name, "cpu_ms_per_s") or (0,)) for name in (LOOPD, POLL))
    note = f"loopd {own:.2f} ms/s, polling {poll:.2f} ms/s"
    yield Figure("G10", ratios(samples, LOOPD, POLL, "cpu_ms_per_s"), note=note)


def _poll(bench: Bench) -> Numbers:
    def cost(seconds: float) -> float:
        command = [bench.python, "-I", "-c", POLLING, str(seconds)]
        return checked(bench.meter.run(command, cwd=bench.scratch, env=bench.env(bench.scratch))).cpu_s

    return {"cpu_ms_per_s": max(0.0, cost(bench.sizes.idle_s) - cost(0)) / bench.sizes.idle_s * 1000}


def _loopd(bench: Bench) -> Numbers:
    def cost(seconds: float) -> float:
        folder, state = bench.folder("silent"), bench.folder("state")
        lay_out(folder, 1, agent=f"sleep {seconds}\n{AGENT}")
        return run_loopd(bench, folder, state).cpu_s

    return {"cpu_ms_per_s": max(0.0, cost(bench.sizes.idle_s) - cost(0)) / bench.sizes.idle_s * 1000}
