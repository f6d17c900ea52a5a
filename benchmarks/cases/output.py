"""G7, G8: an agent that prints a lot, and one that prints what is no text."""

from collections.abc import Iterator
from filecmp import cmp
from pathlib import Path

from bench import Bench, Figure, Numbers, Samples, Trial, column, ratios
from measure import BenchError, Sample, checked
from workload import AGENT, clear, lay_out, run_loopd

CAT, LOOPD, NASTY = "cat >> file", "loopd, much output", "loopd, one long line"
LINE = b'{"type":"message","text":"' + b"reading and writing files, running the tests again " * 20 + b'"}\n'


def trials(bench: Bench) -> Iterator[Trial]:
    """The same bytes through `cat` alone, and through an agent that loopd captures."""
    source = bench.scratch / "output.ndjson"
    size = bench.sizes.output_mb * 1_000_000
    source.write_bytes((LINE * (size // len(LINE) + 1))[:size])
    yield Trial(CAT, lambda: _cat(bench, source), rounds=5)
    yield Trial(LOOPD, lambda: _captured(bench, source), rounds=5)
    nasty = bench.scratch / "nasty.bin"
    nasty.write_bytes(b"\xff\xfe\x00 begin\n" + b"\xc3(\x00x" * (16 * 2**20) + b"\n\x80 no newline at the end")
    yield Trial(NASTY, lambda: _nasty(bench, nasty), rounds=bench.sizes.slow_rounds)


def figures(bench: Bench, samples: Samples) -> Iterator[Figure]:
    """Per megabyte; the log's bytes are compared in every trial."""
    yield Figure("G7", ratios(samples, LOOPD, CAT, "cpu_per_mb"), note=f"{bench.sizes.output_mb} MB, log identical")
    yield Figure("G6 output", column(samples, LOOPD, "growth_mb"), note=f"{bench.sizes.output_mb} MB")
    yield Figure("G8 memory", column(samples, NASTY, "growth_mb"))
    yield Figure("G8 lost", column(samples, NASTY, "lost"))


def _cat(bench: Bench, source: Path) -> Numbers:
    """Appending, as an agent's output is: else `cat` copies inside the kernel, which no program's output does."""
    target = bench.scratch / "output.copy"
    command = ["sh", "-c", 'cat "$0" >> "$1"', str(source), str(target)]
    sample = checked(bench.meter.run(command, cwd=bench.scratch, env=bench.env(bench.scratch)))
    if not cmp(source, target, shallow=False):
        raise BenchError("cat's copy differs")
    target.unlink()
    return {"cpu_per_mb": sample.cpu_s / bench.sizes.output_mb}


def _captured(bench: Bench, source: Path) -> Numbers:
    loud, lost = _run(bench, source)
    quiet, _ = _run(bench, None)
    if lost:
        raise BenchError(f"{lost} bytes of the log differ")
    cpu_s, growth_mb = loud.cpu_s - quiet.cpu_s, loud.rss_mb - quiet.rss_mb
    return {"cpu_per_mb": cpu_s / bench.sizes.output_mb, "growth_mb": growth_mb}


def _nasty(bench: Bench, source: Path) -> Numbers:
    loud, lost = _run(bench, source)
    quiet, _ = _run(bench, None)
    return {"growth_mb": loud.rss_mb - quiet.rss_mb, "lost": lost}


def _run(bench: Bench, source: Path | None) -> tuple[Sample, int]:
    """One attempt that prints the source; how many bytes of it the log does not have."""
    folder, state = bench.folder("output"), bench.folder("state")
    lay_out(folder, 1, agent=f"cat {source}\n" + AGENT.replace('echo "attempt $n is done"', "") if source else AGENT)
    sample = run_loopd(bench, folder, state)
    lost = 0
    if source:
        (log,) = state.glob("runs/*/attempts/0001/stdout.log")
        same = cmp(source, log, shallow=False)
        lost = 0 if same else max(1, abs(source.stat().st_size - log.stat().st_size))
    clear(folder, state)
    return sample, lost
