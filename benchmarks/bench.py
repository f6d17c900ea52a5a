"""What every case works with: the loopd under test, sizes, trials, figures."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from measure import Meter

Numbers = dict[str, float]
Samples = Mapping[str, Sequence[Numbers]]  # trial -> its numbers, one entry a round


@dataclass(frozen=True, slots=True)
class Trial:
    """One thing that is run once a round; it asserts its own work and raises `BenchError` when it did not do it."""

    name: str
    run: Callable[[], Numbers]
    rounds: int = 99  # at most; long ones, and those that count instead of timing, need few


@dataclass(frozen=True, slots=True)
class Figure:
    """What a case found for one bar: one value a round, or the reason why there is none."""

    bar: str
    values: tuple[float, ...] = ()
    skipped: str = ""
    note: str = ""

    @property
    def value(self) -> float:
        """The median of the rounds."""
        return median(self.values)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much work; small ones for the smoke run."""

    few: int = 10  # attempts of the short run; start-up cancels in (many - few)
    many: int = 110
    slow_rounds: int = 3  # of trials that take many seconds
    is_full: bool = True  # cases that take minutes are run
    memory: tuple[int, int] = (100, 1000)  # attempts of the two runs whose memory is compared
    files: int = 5000
    git_few: int = 5
    git_many: int = 45
    output_mb: int = 200
    idle_s: float = 20.0
    trees: int = 100
    kills: int = 200
    attempts_of_old_run: int = 10_050  # half of the hundred attempts between two snapshots are replayed
    events: int = 1000
    peer_few: int = 3
    peer_many: int = 13


SMOKE = Sizes(
    many=60, slow_rounds=1, is_full=False, output_mb=48, idle_s=5.0, trees=20, kills=5, events=500, peer_many=6
)


@dataclass(frozen=True, slots=True)
class Bench:
    """One session of measuring."""

    loopd: tuple[str, ...]  # the command
    scratch: Path
    meter: Meter
    sizes: Sizes
    peer: Path | None = None  # the `ralph` of ralph-orchestrator 1.2.3
    repository: Path = field(default=Path(__file__).resolve().parents[1])

    @property
    def python(self) -> str:
        """The interpreter of the loopd under test, the one its ratios are taken against."""
        return self.loopd[0] if "python" in Path(self.loopd[0]).name else sys.executable

    def env(self, state: Path, containment: str = "subreaper") -> dict[str, str]:
        """A small, fixed environment: nothing of the caller's but its PATH. The means are loopd's choice for ""."""
        home = self.scratch / "home"
        home.mkdir(exist_ok=True)
        path = os.environ.get("PATH", os.defpath)
        env = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "LOOPD_STATE": str(state)}
        if containment:
            env["LOOPD_CONTAINMENT"] = containment
        if source := os.environ.get("PYTHONPATH"):
            env["PYTHONPATH"] = source
        return env

    def folder(self, name: str) -> Path:
        """A new, empty folder."""
        number = sum(path.name.startswith(f"{name}-") for path in self.scratch.iterdir())
        folder = self.scratch / f"{name}-{number}"
        folder.mkdir()
        return folder


def ratios(samples: Samples, top: str, bottom: str, number: str) -> tuple[float, ...]:
    """`top` over `bottom` in each round that has both: never across rounds, the machine changes."""
    pairs = zip(samples.get(top, ()), samples.get(bottom, ()), strict=False)
    return tuple(above[number] / below[number] for above, below in pairs)


def column(samples: Samples, trial: str, number: str) -> tuple[float, ...]:
    """One number of one trial, round by round."""
    return tuple(numbers[number] for numbers in samples.get(trial, ()))
