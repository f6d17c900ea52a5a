"""G4, G5: what it costs to be asked something, and to begin."""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from bench import Bench, Figure, Numbers, Samples, Trial, column, ratios
from measure import BenchError, checked
from workload import VERIFY, lay_out, run_loopd

BARE, FIRST = "bare python", "loopd to the first verifier"
QUESTIONS = {"--version": "loopd", "status": "bench", "ps": "bench", "--help": "loopd"}  # a word of the answer
REPEATS = 5

# The first verifier says that it is there, and waits until it was seen.
WAITING_VERIFY = """\
echo here > {marker}
while [ ! -e {marker}.go ]; do sleep 0.05; done
"""


def trials(bench: Bench) -> Iterator[Trial]:
    """Each command several times a round, the cheapest counts: they are short, and noise only adds."""
    known = _a_run(bench)
    bare = [bench.python, "-I", "-c", "pass"]
    yield Trial(f"{BARE} start", lambda: _cheapest(bench, bare, known, ""))
    for question, word in QUESTIONS.items():
        yield Trial(f"loopd {question}", partial(_cheapest, bench, [*bench.loopd, question], known, word))
    if bench.meter.group:
        yield Trial(FIRST, lambda: {"cpu_ms": min(cpu_to_first_verifier(bench, known) for _ in range(REPEATS))})


def figures(bench: Bench, samples: Samples) -> Iterator[Figure]:
    """Ratios of each round to a bare start of the same interpreter."""
    for question in QUESTIONS:
        name = f"loopd {question}"
        note = f"{median(column(samples, name, 'cpu_ms') or (0,)):.0f} ms"
        yield Figure(f"G4 {question}", ratios(samples, name, f"{BARE} start", "cpu_ms"), note=note)
    if not bench.meter.group:
        yield Figure("G5", skipped="needs a cgroup, to look at a tree that is still running")
        return
    note = f"{median(column(samples, FIRST, 'cpu_ms') or (0,)):.0f} ms"
    yield Figure("G5", ratios(samples, FIRST, f"{BARE} start", "cpu_ms"), note=note)


def cpu_to_first_verifier(bench: Bench, state: Path) -> float:
    """Milliseconds of CPU that `loopd run` has used when preflight's first verifier runs.

    `state` has seen a run before, as on every day but the first: the index of runs is there.
    """
    folder = bench.folder("first")
    marker = bench.scratch / f"{folder.name}.marker"
    lay_out(folder, 1, verify=WAITING_VERIFY.replace("{marker}", str(marker)) + VERIFY)
    return cpu_until(bench, [*bench.loopd, "run", "goal.yaml"], folder, state, marker)


def cpu_until(bench: Bench, command: Sequence[str | Path], folder: Path, state: Path, marker: Path) -> float:
    """Milliseconds of CPU of the command's whole tree until `marker` is there; then `marker.go` lets it finish."""
    before = bench.meter.cpu_s()
    env = bench.env(state, "")  # as from a shell without settings
    with bench.meter.start(command, cwd=folder, env=env) as tree:
        deadline = time.monotonic() + 60
        while not marker.exists():
            if tree.poll() is not None or time.monotonic() > deadline:
                log = folder.parent / f"{folder.name}.log"
                tree.kill()
                raise BenchError(f"the first verifier was never started: {log.read_text()[-600:]}")
            time.sleep(0.001)
        used = bench.meter.cpu_s() - before
        marker.with_name(f"{marker.name}.go").touch()
        tree.wait(timeout=60)
    return used * 1000


def _a_run(bench: Bench) -> Path:
    """A state folder with one finished run, for `status` and `ps` to tell of."""
    folder, state = lay_out(bench.folder("known"), 2), bench.folder("state")
    run_loopd(bench, folder, state)
    return state


def _cheapest(bench: Bench, command: Sequence[str], state: Path, word: str) -> Numbers:
    costs = []
    for _ in range(REPEATS):
        sample = checked(bench.meter.run(command, cwd=bench.scratch, env=bench.env(state), whole_tree=False))
        if word not in sample.output:
            raise BenchError(f"{command} does not say {word!r}: {sample.output[:200]!r}")
        costs.append(sample.cpu_s * 1000)
    return {"cpu_ms": min(costs)}
