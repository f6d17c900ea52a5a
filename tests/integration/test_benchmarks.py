"""The equipment of the benchmarks: that it reads right, and that it can say no."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEDGER = ROOT / "tests" / "fixtures" / "run-format-1" / "retry-client-k3f9" / "ledger.ndjson"


def run(code: str, *arguments: Path) -> str:
    """The output of a few lines with the benchmarks' modules on the path."""
    path = f"import sys; from pathlib import Path; sys.path.insert(0, {str(ROOT / 'benchmarks')!r})\n"
    done = subprocess.run([sys.executable, "-c", path + code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_meter_counts_a_detached_program_and_what_is_left_behind(tmp_path: Path) -> None:
    code = """
from measure import Meter
meter = Meter(Path(sys.argv[1]))
meter.prove()
left = ["sh", "-c", "setsid sleep 60 > /dev/null 2>&1 & echo started"]
sample = meter.run(left, cwd=Path("/"), env={"PATH": "/usr/bin:/bin"})
print(sample.status, sample.left, sample.output.strip())
meter.close()
"""
    assert run(code, tmp_path) == "0 1 started\n"


def test_the_chain_is_checked_without_loopd_and_a_changed_byte_is_seen(tmp_path: Path) -> None:
    changed = tmp_path / "ledger.ndjson"
    changed.write_bytes(LEDGER.read_bytes().replace(b"0.6", b"0.7"))
    code = """
from measure import BenchError
from workload import chained
print(len(list(chained(Path(sys.argv[1])))))
try:
    list(chained(Path(sys.argv[2])))
except BenchError as error:
    print("event 3 does not fit" in str(error))
"""
    assert run(code, LEDGER, changed) == "4\nTrue\n"


def test_grades_say_stretch_held_and_missed_in_both_directions_and_noise_excuses_ratios_only() -> None:
    code = """
from bars import BARS
from bench import Figure
from report import grade
print([BARS["G1"].grade(value) for value in (2, 5, 7)], [BARS["G2"].grade(value) for value in (120, 60, 7)])
print([grade(Figure(name, (1e9,)), True) for name in ("G1", "G9")], grade(Figure("G1"), False))
"""
    assert run(code) == "['stretch', 'held', 'MISSED'] ['stretch', 'held', 'MISSED']\n['noisy', 'MISSED'] FAILED\n"
