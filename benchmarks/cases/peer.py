"""G2, G2b, G4b: against ralph-orchestrator 1.2.3, whose agent says that it is done; it has no verifier step."""

from collections.abc import Iterator
from pathlib import Path

from bench import Bench, Figure, Numbers, Samples, Trial, column, ratios
from cases.attempts import LOOPD
from cases.startup import FIRST, REPEATS, cpu_until
from measure import BenchError, Sample

PEER, FIRST_PEER, HELP_PEER = "ralph-orchestrator", "ralph-orchestrator to the first agent", "ralph-orchestrator --help"
MISSING = "no --peer; to have it: python -m venv .cache/peer && .cache/peer/bin/pip install ralph-orchestrator==1.2.3"

# Stands in for its `kiro` agent, which is a program of this name on the PATH. What it prints is different every time,
# since the peer takes nine tenths of likeness for a loop and ends.
AGENT = """\
#!/bin/sh
n=0; [ -f count ] && read -r n < count
n=$((n + 1)); echo $n > count; echo "attempt $n" >> work.txt
echo "attempt $n" | sha256sum
"""
MARKING_AGENT = """\
#!/bin/sh
echo here > {marker}
while [ ! -e {marker}.go ]; do sleep 0.05; done
"""


def trials(bench: Bench) -> Iterator[Trial]:
    """Long, because of its pause of two seconds an iteration; nothing when it is not installed."""
    if bench.peer is None:
        return
    yield Trial(PEER, lambda: _per_iteration(bench), rounds=2)
    yield Trial(HELP_PEER, lambda: _help(bench), rounds=3)
    if bench.meter.group:
        yield Trial(FIRST_PEER, lambda: {"cpu_ms": min(_to_first_agent(bench) for _ in range(REPEATS))})


def figures(bench: Bench, samples: Samples) -> Iterator[Figure]:
    """How many times less loopd needs."""
    if bench.peer is None:
        yield from (Figure(name, skipped=MISSING) for name in ("G2", "G2b CPU", "G2b RSS", "G4b"))
        return
    yield Figure("G2", ratios(samples, PEER, LOOPD, "wall_ms"), note="its default pauses 2 s an iteration")
    yield Figure("G2b CPU", ratios(samples, FIRST_PEER, FIRST, "cpu_ms"))
    yield Figure("G2b RSS", ratios(samples, PEER, LOOPD, "rss_mb"))
    yield Figure("G4b", ratios(samples, HELP_PEER, "loopd --help", "cpu_ms"), note=_ms(samples))


def _ms(samples: Samples) -> str:
    found = column(samples, HELP_PEER, "cpu_ms")
    return f"its --help {found[0]:.0f} ms" if found else ""


def _per_iteration(bench: Bench) -> Numbers:
    few, many = bench.sizes.peer_few, bench.sizes.peer_many
    short, long = _run(bench, few), _run(bench, many)
    return {"wall_ms": (long.wall_s - short.wall_s) / (many - few) * 1000, "rss_mb": long.rss_mb}


def _run(bench: Bench, iterations: int) -> Sample:
    folder = _lay_out(bench, AGENT)
    sample = bench.meter.run(_command(bench, iterations), cwd=folder, env=_env(bench, folder))
    done = (folder / "work.txt").read_text().splitlines() if (folder / "work.txt").exists() else []
    if len(done) != iterations:
        raise BenchError(f"{len(done)} iterations, {iterations} were wanted: {sample.output[-600:]}")
    return sample


def _to_first_agent(bench: Bench) -> float:
    marker = bench.scratch / f"peer-{len(list(bench.scratch.iterdir()))}.marker"
    folder = _lay_out(bench, MARKING_AGENT.replace("{marker}", str(marker)))
    command = ["env", f"PATH={_env(bench, folder)['PATH']}", *_command(bench, 1)]
    return cpu_until(bench, command, folder, folder, marker)


def _help(bench: Bench) -> Numbers:
    command = [str(bench.peer), "--help"]
    costs = [bench.meter.run(command, cwd=bench.scratch, env=bench.env(bench.scratch)).cpu_s for _ in range(2)]
    return {"cpu_ms": min(costs) * 1000}


def _lay_out(bench: Bench, agent: str) -> Path:
    folder = bench.folder("peer")
    (folder / "PROMPT.md").write_text("count\n")
    program = folder / "bin" / "kiro-cli"
    program.parent.mkdir()
    program.write_text(agent)
    program.chmod(0o755)
    return folder


def _command(bench: Bench, iterations: int) -> list[str]:
    return [str(bench.peer), "run", "-a", "kiro", "-i", str(iterations), "--no-git", "--allow-unsafe-paths"]


def _env(bench: Bench, folder: Path) -> dict[str, str]:
    env = bench.env(folder)
    return {**env, "PATH": f"{folder / 'bin'}:{env['PATH']}"}
