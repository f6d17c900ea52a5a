"""Measure loopd side by side with bash, git, SQLite, cat and a peer. `make bench`, or `make bench BENCH=--smoke`.

Every round runs every trial once, in a shuffled order, the bases included; a ratio is taken within a round and the
median of the rounds counts. CPU decides, since wall time on a shared machine tells little. Exit status 1 when a bar
is missed or a trial did not do its work.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import report
from bars import BARS
from bench import SMOKE, Bench, Figure, Numbers, Sizes, Trial
from cases import attempts, killing, output, peer, records, startup, waiting
from measure import BenchError, Meter

FAMILIES = {"attempts": attempts, "startup": startup, "records": records, "output": output}
FAMILIES |= {"waiting": waiting, "killing": killing, "peer": peer}
HERE = Path(__file__).resolve().parent


def main() -> int:
    """Measure, print, write."""
    words = arguments()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="loopd-bench-", dir=words.scratch, ignore_cleanup_errors=True) as scratch:
        meter = Meter(Path(scratch))
        try:
            meter.prove()
            sizes = SMOKE if words.smoke else Sizes()
            bench = Bench(command(words.loopd), Path(scratch), meter, sizes, find_peer(words.peer, words.smoke))
            families = [FAMILIES[name] for name in chosen(words.only)]
            samples, errors = measure(bench, families, words.rounds or (3 if words.smoke else 5), words.seed)
            return conclude(bench, families, samples, errors, words, load_before)
        finally:
            meter.close()


def arguments() -> argparse.Namespace:
    """What can be asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--smoke", action="store_true", help="a minute: three rounds, small sizes")
    parser.add_argument("--rounds", type=int, help="default 5, smoke 3")
    parser.add_argument("--only", nargs="+", choices=FAMILIES, metavar="FAMILY", help=f"of {', '.join(FAMILIES)}")
    parser.add_argument("--loopd", default=beside(), help="the command under test")
    parser.add_argument(
        "--peer", type=Path, help="the `ralph` of ralph-orchestrator 1.2.3, default .cache/peer/bin/ralph"
    )
    parser.add_argument("--scratch", type=Path, help="where to work; default: the temporary folder")
    parser.add_argument("--out", type=Path, help="where RESULTS.md and results.json go; smoke: .cache/bench")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10_000, help="of the order in each round")
    return parser.parse_args()


def beside() -> str:
    """The `loopd` that belongs to this interpreter, as a user starts it; without one, the module."""
    script = Path(sys.executable).with_name("loopd")
    return str(script) if script.exists() else f"{sys.executable} -m loopd"


def chosen(only: Sequence[str] | None) -> Sequence[str]:
    """The families to run; the peer is compared with what two others measure."""
    if only and "peer" in only:
        return list(dict.fromkeys(["attempts", "startup", *only]))
    return only or list(FAMILIES)


def command(text: str) -> tuple[str, ...]:
    """The loopd under test; from the checkout when its interpreter has none installed."""
    words = tuple(text.split())
    if words[1:] == ("-m", "loopd"):
        installed = subprocess.run([words[0], "-c", "import loopd"], capture_output=True, cwd="/").returncode == 0
        if not installed:
            os.environ["PYTHONPATH"] = str(HERE.parent / "supervisor")
    return words


def find_peer(named: Path | None, smoke: bool) -> Path | None:
    """The peer, if it is there; a smoke run has no time for its pauses unless it is asked to."""
    peer = named or HERE.parent / ".cache" / "peer" / "bin" / "ralph"
    return peer.absolute() if peer.exists() and (named or not smoke) else None


def measure(
    bench: Bench, families: Sequence[ModuleType], rounds: int, seed: int
) -> tuple[dict[str, list[Numbers]], dict[str, str]]:
    """Every trial once a round, shuffled; a trial that failed is not tried again."""
    samples: dict[str, list[Numbers]] = {}
    errors: dict[str, str] = {}
    trials = collect(bench, families, errors)
    order = random.Random(seed)
    for number in range(rounds):
        this_round = [trial for trial in trials if number < trial.rounds and trial.name not in errors]
        order.shuffle(this_round)
        for place, trial in enumerate(this_round, 1):
            print(
                f"\rround {number + 1} of {rounds}, {place} of {len(this_round)}: {trial.name:40}",
                end="",
                file=sys.stderr,
            )
            began = time.monotonic()
            try:
                samples.setdefault(trial.name, []).append({**trial.run(), "took_s": time.monotonic() - began})
            except (BenchError, OSError, ValueError, subprocess.SubprocessError) as error:
                errors[trial.name] = str(error) or type(error).__name__
    print("\r" + " " * 79, end="\r", file=sys.stderr)
    return samples, errors


def collect(bench: Bench, families: Sequence[ModuleType], errors: dict[str, str]) -> list[Trial]:
    """All trials; a family that cannot even be prepared says why."""
    found: dict[str, Trial] = {}
    for family in families:
        try:
            found |= {trial.name: trial for trial in family.trials(bench)}
        except (BenchError, OSError) as error:
            errors[family.__name__] = str(error)
    return list(found.values())


def conclude(
    bench: Bench,
    families: Sequence[ModuleType],
    samples: dict[str, list[Numbers]],
    errors: dict[str, str],
    words: argparse.Namespace,
    load_before: float,
) -> int:
    """Grade, print, write; the exit status."""
    noise = attempts.noise(samples)
    noisy = report.is_noisy(noise)
    figures: list[Figure] = [figure for family in families for figure in family.figures(bench, samples)]
    facts = report.machine(bench, max(map(len, samples.values()), default=0), noise, load_before)
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), end="\n\n")
    print(report.as_text(report.rows(figures, noisy)))
    for trial, error in errors.items():
        print(f"\n{trial} failed: {error}")
    if noisy:
        print("\nNOISY: bash differs from itself; missed ratios are not counted")
    out = words.out or (HERE.parent / ".cache" / "bench" if words.smoke or words.only else HERE)
    report.write(out, figures, facts, samples, errors, noisy)
    return 1 if errors or any(_counts(figure, noisy, smoke=words.smoke) for figure in figures) else 0


def _counts(figure: Figure, noisy: bool, *, smoke: bool) -> bool:
    """Whether a figure fails the run: a smoke run shows timing, and fails only for what is wrong or lost."""
    grade = report.grade(figure, noisy)
    return grade == "FAILED" or (grade == "MISSED" and not (smoke and BARS[figure.bar].ratio))


if __name__ == "__main__":
    raise SystemExit(main())
