"""G12, G13: what recording costs, and what a long record costs at the next start."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench import Bench, Figure, Numbers, Samples, Trial, column
from measure import checked

JOURNAL, OPENING = "events", "opening a ledger"


def trials(bench: Bench) -> Iterator[Trial]:
    """Both in a program of their own, under the interpreter of the loopd measured."""
    yield Trial(JOURNAL, lambda: _program(bench, "events.py", str(bench.sizes.events), str(bench.folder("events"))))
    yield Trial(OPENING, lambda: _program(bench, "opening.py", "50000", str(bench.folder("opening"))), rounds=3)


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


def _program(bench: Bench, name: str, *arguments: str) -> Numbers:
    program = bench.repository / "benchmarks" / "programs" / name
    env = {"PYTHONPATH": str(bench.repository / "supervisor"), **bench.env(Path(arguments[-1]))}
    sample = checked(bench.meter.run([bench.python, program, *arguments], cwd=bench.scratch, env=env))
    numbers: Numbers = json.loads(sample.output)
    return numbers
