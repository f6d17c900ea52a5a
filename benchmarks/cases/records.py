"""G12, G13: what recording costs, and what a long record costs at the next start."""

import json
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from statistics import median
from typing import Any

from bench import Bench, Figure, Numbers, Samples, Trial, column
from measure import BenchError, checked
from workload import lay_out, ledger_of, run_loopd

JOURNAL, OPENING, LONG, SHORT = "events", "opening a ledger", "resume of a long run", "resume of a short run"


def trials(bench: Bench) -> Iterator[Trial]:
    """Both in a program of their own, under the interpreter of the loopd measured."""
    yield Trial(JOURNAL, lambda: _program(bench, "events.py", str(bench.sizes.events), str(bench.folder("events"))))
    yield Trial(OPENING, lambda: _program(bench, "opening.py", "50000", str(bench.folder("opening"))), rounds=3)
    workspace, short = _a_run(bench)
    yield Trial(SHORT, lambda: _resume(bench, workspace, short))
    if bench.sizes.is_full:
        long = _grown(bench, short)
        yield Trial(LONG, lambda: _resume(bench, workspace, long))


def figures(bench: Bench, samples: Samples) -> Iterator[Figure]:
    """The ledger and SQLite take turns within each round."""
    ledger, sqlite = column(samples, JOURNAL, "ledger_us"), column(samples, JOURNAL, "sqlite_us")
    values = tuple(one / other for one, other in zip(ledger, sqlite, strict=True))
    bare = column(samples, JOURNAL, "bare_sqlite_us")
    note = (
        f"ledger {median(ledger):.0f} µs, SQLite {median(sqlite):.0f} µs; without date and hash {median(bare):.0f} µs"
        if ledger
        else ""
    )
    yield Figure("G13", values, note=note)
    full = column(samples, OPENING, "full_ms")
    note = f"checking all of it: {median(full):.0f} ms" if full else ""
    yield Figure("G12 ledger", column(samples, OPENING, "extra_ms"), note=note)
    if bench.sizes.is_full:
        yield Figure("G12", _differences(samples), note=f"{bench.sizes.attempts_of_old_run:,} attempts, 70,000 events")
    else:
        yield Figure("G12", skipped="full run only")


def _differences(samples: Samples) -> tuple[float, ...]:
    pairs = zip(column(samples, LONG, "cpu_ms"), column(samples, SHORT, "cpu_ms"), strict=False)
    return tuple(long - short for long, short in pairs)


def _a_run(bench: Bench) -> tuple[Path, Path]:
    """A workspace, and the state of a run of three attempts that used up its budget: resuming it ends at once."""
    workspace, state = bench.folder("resumed"), bench.folder("state")
    lay_out(workspace, 1000, attempts=3)
    run_loopd(bench, workspace, state, status=1)
    return workspace, state


def _grown(bench: Bench, short: Path) -> Path:
    """The same state, with a ledger of 10,000 attempts."""
    long = bench.folder("state")
    copytree(short, long, dirs_exist_ok=True)
    run = ledger_of(long).parent
    # The index names the folder of a run, so a copy needs one of its own; loopd makes it from the run folders.
    for index in long.glob("loopd.db*"):
        index.unlink()
    _program(bench, "grow.py", str(run), str(bench.sizes.attempts_of_old_run))
    return long


def _resume(bench: Bench, workspace: Path, state: Path) -> Numbers:
    sample = checked(bench.meter.run([*bench.loopd, "resume", "last"], cwd=workspace, env=bench.env(state)), 1)
    if "exhausted" not in sample.output:
        raise BenchError(f"resume says: {sample.output[-400:]}")
    return {"cpu_ms": sample.cpu_s * 1000}


def _program(bench: Bench, name: str, *arguments: str) -> Any:
    program = bench.repository / "benchmarks" / "programs" / name
    env = {"PYTHONPATH": str(bench.repository / "supervisor"), **bench.env(bench.scratch)}
    sample = checked(bench.meter.run([bench.python, program, *arguments], cwd=bench.scratch, env=env))
    return json.loads(sample.output)
