"""G1, G1b, G3, G6: what one attempt costs, and what many of them leave in memory.

Per attempt = (run of many - run of few) / (many - few), so that the start cancels out.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median, quantiles

from bench import Bench, Figure, Numbers, Samples, Trial, column, ratios
from measure import Sample, checked
from workload import VERIFY, expect_count, expect_record, lay_out, run_bash, run_loopd

BASH, BASH_AGAIN, LOOPD, PYTHON = "bash loop", "bash loop again", "loopd", "bare python"
GIT, GIT_LOOPD, GAPS = "git and bash loop", "loopd in git", "loopd gaps"

# Ten files of the repository change with every attempt.
GIT_AGENT = """\
n=0; [ -f count ] && read -r n < count
n=$((n + 1)); echo $n > count; echo "attempt $n" >> work.txt
i=0; while [ $i -lt 10 ]; do echo "attempt $n" > "src/d$i/f$((n % 100)).txt"; i=$((i + 1)); done
echo "attempt $n is done"
"""

GIT_LOOP = """\
export GIT_DIR=$PWD/../private.git GIT_INDEX_FILE=$PWD/../index
check=$PWD/../check; mkdir -p "$check"
snapshot() {
  git --work-tree=. add -A
  GIT_INDEX_FILE=$PWD/../check-index git --work-tree="$check" read-tree --reset -u "$(git write-tree)"
}
[ "$1" = prepare ] && { snapshot; exit; }
while :; do
  sh agent.sh >> ../out.log 2>&1
  snapshot
  (cd "$check" && sh verify.sh ../report.json) && break
done
"""

# EPOCHREALTIME is a variable of bash: no clock program is started between the two moments.
TIMED_AGENT = """\
echo "agent $EPOCHREALTIME" >> {times}
n=0; [ -f count ] && read -r n < count
n=$((n + 1)); echo $n > count; echo "attempt $n" >> work.txt
"""


def trials(bench: Bench) -> Iterator[Trial]:
    """Bash twice, so that a machine too noisy for a ratio shows itself."""
    few, many = bench.sizes.few, bench.sizes.many
    yield Trial(BASH, lambda: _per_attempt(bench, _bash, few, many))
    yield Trial(BASH_AGAIN, lambda: _per_attempt(bench, _bash, few, many))
    yield Trial(LOOPD, lambda: _per_attempt(bench, _loopd, few, many))
    yield Trial(PYTHON, lambda: _bare(bench))
    yield Trial(GAPS, lambda: _gaps(bench), rounds=bench.sizes.slow_rounds)
    if bench.sizes.is_full:
        yield Trial(GIT, lambda: _git(bench), rounds=3)
        yield Trial(
            GIT_LOOPD, lambda: _per_attempt(bench, _git_loopd, bench.sizes.git_few, bench.sizes.git_many), rounds=3
        )
        yield Trial("loopd memory", lambda: _memory(bench), rounds=1)


def figures(bench: Bench, samples: Samples) -> Iterator[Figure]:
    """Ratios of each round."""
    wall = median(column(samples, LOOPD, "wall_ms") or (0,))
    cpu = median(column(samples, LOOPD, "cpu_ms") or (0,))
    base = median(column(samples, BASH, "cpu_ms") or (0,))
    note = f"loopd {cpu:.1f} ms, bash {base:.1f} ms; wall {wall:.1f} ms"
    yield Figure("G1", ratios(samples, LOOPD, BASH, "cpu_ms"), note=note)
    if bench.sizes.is_full:
        git = median(column(samples, GIT, "cpu_ms") or (0,))
        yield Figure("G1b", ratios(samples, GIT_LOOPD, GIT, "cpu_ms"), note=f"plain git {git:.0f} ms")
        yield Figure("G6 growth", column(samples, "loopd memory", "growth_mb"))
    else:
        yield from (Figure(name, skipped="full run only") for name in ("G1b", "G6 growth"))
    yield from _gap_figures(samples)
    yield Figure("G6", ratios(samples, LOOPD, PYTHON, "rss_mb"), note=f"after {bench.sizes.many} attempts")


def noise(samples: Samples) -> tuple[float, ...]:
    """The A/A check: the same loop, measured twice in each round."""
    return ratios(samples, BASH, BASH_AGAIN, "cpu_ms")


def _gap_figures(samples: Samples) -> Iterator[Figure]:
    iterations = column(samples, BASH, "wall_ms")
    for name in ("p50", "p95"):
        gaps = column(samples, GAPS, f"{name}_ms")
        values = tuple(gap / one for gap, one in zip(gaps, iterations, strict=False))
        yield Figure(f"G3 {name}", values, note=f"{median(gaps):.1f} ms" if gaps else "")


def _per_attempt(bench: Bench, run: Callable[[Bench, int], Sample], few: int, many: int) -> Numbers:
    short, long = run(bench, few), run(bench, many)
    return {
        "cpu_ms": (long.cpu_s - short.cpu_s) / (many - few) * 1000,
        "wall_ms": (long.wall_s - short.wall_s) / (many - few) * 1000,
        "start_cpu_ms": short.cpu_s * 1000,
        "rss_mb": long.rss_mb,
    }


def _bash(bench: Bench, attempts: int) -> Sample:
    folder = lay_out(bench.folder("bash"), attempts)
    return run_bash(bench, folder)


def _loopd(bench: Bench, attempts: int) -> Sample:
    folder, state = lay_out(bench.folder("loopd"), attempts), bench.folder("state")
    sample = run_loopd(bench, folder, state)
    expect_count(folder)
    expect_record(state, attempts)
    return sample


def _bare(bench: Bench) -> Numbers:
    code = "import time; time.sleep(0.1)"  # long enough to be looked at
    return {
        "rss_mb": bench.meter.run(
            [bench.python, "-I", "-c", code], cwd=bench.scratch, env=bench.env(bench.scratch)
        ).rss_mb
    }


def _gaps(bench: Bench) -> Numbers:
    folder, state = bench.folder("gaps"), bench.folder("state")
    times = bench.scratch / f"{folder.name}.times"
    verify = VERIFY.replace('[ "$n" -ge', f'echo "verifier $EPOCHREALTIME" >> {times}\n[ "$n" -ge')
    lay_out(folder, bench.sizes.many, agent=TIMED_AGENT.replace("{times}", str(times)), verify=verify, shell="bash")
    run_loopd(bench, folder, state)
    expect_count(folder)
    gaps = sorted(_between(times))
    times.unlink()
    return {"p50_ms": median(gaps), "p95_ms": quantiles(gaps, n=20)[-1]}


def _between(times: Path) -> Iterator[float]:
    """Milliseconds from each verifier's end to the next agent's first line."""
    verified = 0.0
    for line in times.read_text().splitlines():
        who, at = line.split()
        if who == "agent" and verified:
            yield (float(at) - verified) * 1000
        verified = float(at) if who == "verifier" else 0.0


def _git(bench: Bench) -> Numbers:
    """Without a start worth mentioning: the first snapshot was taken before."""
    folder = _repository(bench, bench.sizes.git_many)
    checked(bench.meter.run(["bash", "loop.sh", "prepare"], cwd=folder / "work", env=bench.env(folder)))
    sample = run_bash(bench, folder / "work", GIT_LOOP)
    return {"cpu_ms": sample.cpu_s / bench.sizes.git_many * 1000}


def _git_loopd(bench: Bench, attempts: int) -> Sample:
    folder, state = _repository(bench, attempts), bench.folder("state")
    sample = run_loopd(bench, folder / "work", state)
    expect_count(folder / "work")
    expect_record(state, attempts)
    return sample


def _repository(bench: Bench, attempts: int) -> Path:
    """`work`, a repository with many files; beside it the private one of the plain loop, with its first snapshot.

    Made once and copied: writing thousands of objects takes longer than what is measured.
    """
    template = bench.scratch / "repository"
    if not template.exists():
        _make_repository(bench, template)
    folder = bench.folder("git")
    bench.meter.run(["cp", "-a", f"{template}/.", str(folder)], cwd=bench.scratch, env=bench.env(folder))
    lay_out(folder / "work", attempts, agent=GIT_AGENT, verification="clean")
    return folder


def _make_repository(bench: Bench, template: Path) -> None:
    work = template / "work"
    for part in range(50):
        (work / "src" / f"d{part}").mkdir(parents=True)
        for number in range(bench.sizes.files // 50):
            (work / "src" / f"d{part}" / f"f{number}.txt").write_text(f"file {part} {number}\n" * 20)
    lay_out(work, 1, agent=GIT_AGENT, verification="clean")
    (work / "loop.sh").write_text(GIT_LOOP)
    commit = ["git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "-qm", "base"]
    bare = ["git", "init", "-q", "--bare", "../private.git"]
    for words in (["git", "init", "-q"], ["git", "add", "-A"], commit, bare, ["bash", "loop.sh", "prepare"]):
        checked(bench.meter.run(words, cwd=work, env=bench.env(template)))


def _memory(bench: Bench) -> Numbers:
    """The same contract and report, ended by its budget after few and after many attempts."""
    peaks = []
    for attempts in bench.sizes.memory:
        folder, state = bench.folder("memory"), bench.folder("state")
        lay_out(folder, 2 * bench.sizes.memory[-1], attempts=attempts)
        peaks.append(run_loopd(bench, folder, state, status=1).rss_mb)
        expect_count(folder, attempts)
    return {"growth_mb": peaks[-1] - peaks[0]}
