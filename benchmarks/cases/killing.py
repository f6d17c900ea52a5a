"""G9, G11: hostile process trees to be ended, and loopd itself being killed."""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from subprocess import PIPE

from bench import Bench, Figure, Numbers, Samples, Trial, column
from measure import BenchError
from workload import AGENT, REPORT, VERIFY, chained, expect_count, lay_out, ledger_of

TREES, KILLS = "loopd, hostile trees", "loopd, killed"

# A daemon of its own session that ignores every polite signal; each attempt leaves one of the three kinds behind.
HOSTILE_AGENT = (
    AGENT
    + """\
case $((n % 3)) in 0) kind=plain ;; 1) kind=scrub ;; *) kind=forker ;; esac
{python} -I -S {daemon} $kind {folder}/$n
echo "agent $n $EPOCHREALTIME" >> {folder}/times
"""
)
HOSTILE_VERIFY = """\
n=0; [ -f count ] && read -r n < count
echo "verifier $n $EPOCHREALTIME" >> {folder}/times
for look in 1 2 3; do
  [ "$n" -gt 0 ] || break
  read -r pid < {folder}/$n
  if kill -0 "$pid" 2> /dev/null || pgrep -f "daemon.py [a-z]* {folder}/$n$" > /dev/null; then
    echo "$n" >> {folder}/alive; break
  fi
done
"""

# The marker in its environment names run and attempt; the side log is written where loopd never looks.
COUNTED_AGENT = """\
echo "begin $LOOPD_MARKER" >> {side}
sleep 0.0$((RANDOM % 10))
"""


def trials(bench: Bench) -> Iterator[Trial]:
    """Counts, not times: one round each."""
    yield Trial(TREES, lambda: _trees(bench), rounds=1)
    yield Trial(KILLS, lambda: _kills(bench), rounds=1)


def figures(bench: Bench, samples: Samples) -> Iterator[Figure]:
    """Zero is the only good answer for most."""
    yield Figure("G9", column(samples, TREES, "alive"), note=f"{bench.sizes.trees} trees: plain, scrubbed, forking")
    yield Figure("G9 p50", column(samples, TREES, "p50_ms"), note="with the snapshot and the bookkeeping in between")
    yield Figure("G9 max", column(samples, TREES, "max_ms"))
    adopted = (column(samples, KILLS, "adopted") or (0,))[0]
    note = f"{bench.sizes.kills} kills, {adopted:.0f} agents adopted"
    yield Figure("G11 twice", column(samples, KILLS, "twice"), note=note)
    yield Figure("G11 lost exit", column(samples, KILLS, "lost_exit"))
    yield Figure("G11 lost event", column(samples, KILLS, "lost_event"))


def _trees(bench: Bench) -> Numbers:
    folder, state, notes = bench.folder("trees"), bench.folder("state"), bench.folder("notes")
    daemon = bench.repository / "benchmarks" / "programs" / "daemon.py"
    fields = {"{python}": bench.python, "{daemon}": str(daemon), "{folder}": str(notes)}
    agent, verify = HOSTILE_AGENT, HOSTILE_VERIFY
    for name, value in fields.items():
        agent, verify = agent.replace(name, value), verify.replace(name, value)
    lay_out(folder, bench.sizes.trees, agent=agent, verify=verify + VERIFY, shell="bash")
    sample = bench.meter.run([*bench.loopd, "run", "goal.yaml"], cwd=folder, env=bench.env(state))
    expect_count(folder)
    times = list(_between(notes / "times"))
    alive = notes / "alive"
    numbers: Numbers = {
        "alive": sample.left + (len(alive.read_text().split()) if alive.exists() else 0),
        "p50_ms": median(times),
        "max_ms": max(times),
    }
    return numbers


def _between(times: Path) -> Iterator[float]:
    """Milliseconds from each agent's last line to the first look of the verifier."""
    ended: dict[str, float] = {}
    for line in times.read_text().splitlines():
        who, number, at = line.split()
        if who == "agent":
            ended[number] = float(at)
        elif number in ended:
            yield (float(at) - ended.pop(number)) * 1000


def _kills(bench: Bench) -> Numbers:
    """Kill loopd again and again, resume it each time; the target is far away until the last time."""
    folder, state = bench.folder("kills"), bench.folder("state")
    side = bench.scratch / f"{folder.name}.side"
    lay_out(folder, 100_000, agent=COUNTED_AGENT.replace("{side}", str(side)) + AGENT, verify=STEPS, shell="bash")
    chance, lost_event = random.Random(11), 0
    seen: list[str] = []
    words = ["run", "goal.yaml"]
    for _ in range(bench.sizes.kills):
        _run_and_kill(bench, words, folder, state, chance)
        found = _recorded(state)
        lost_event += sum(before != after for before, after in zip(seen, found, strict=False))
        lost_event += max(0, len(seen) - len(found))
        seen = found
        if found:
            words = ["resume", "last"]
    (folder / "enough").touch()
    _finish(bench, folder, state)
    begun = Counter(side.read_text().splitlines())
    events = list(chained(ledger_of(state)))
    numbers: Numbers = {
        "twice": sum(count > 1 for count in begun.values()),
        "lost_exit": sum(
            bool(event["data"]["exit"].get("lost")) for event in events if event["kind"] == "attempt.ended"
        ),
        "lost_event": lost_event,
        "adopted": sum(event["kind"] == "attempt.started" and bool(event["data"].get("adopted")) for event in events),
    }
    return numbers


# Far away until a file lets it end; a step less with every third attempt, so that it is never stuck.
STEPS = (
    """\
n=0; [ -f count ] && read -r n < count
target=1200; steps=400; [ -e enough ] && n=1200
"""
    + REPORT
    + """\
[ -e enough ]
"""
)


def _run_and_kill(bench: Bench, words: list[str], folder: Path, state: Path, chance: random.Random) -> None:
    """Mostly at a random time after it has begun to work, now and then while it is starting."""
    before = _size(state)
    command = [*bench.loopd, *words]
    with subprocess.Popen(command, cwd=folder, env=bench.env(state), stdout=subprocess.DEVNULL, stderr=PIPE) as loopd:
        deadline = time.monotonic() + (60 if before == 0 or chance.random() < 0.8 else 0)
        while _size(state) == before and loopd.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.4))
        if loopd.poll() is not None:
            raise BenchError(f"loopd ended by itself, {loopd.returncode}: {_said(loopd)}")
        os.kill(loopd.pid, signal.SIGKILL)


def _size(state: Path) -> int:
    return sum(ledger.stat().st_size for ledger in state.glob("runs/*/ledger.ndjson"))


def _said(loopd: "subprocess.Popen[bytes]") -> str:
    return loopd.stderr.read()[-600:].decode(errors="replace") if loopd.stderr else ""


def _finish(bench: Bench, folder: Path, state: Path) -> None:
    done = subprocess.run(
        [*bench.loopd, "resume", "last"], cwd=folder, env=bench.env(state), capture_output=True, timeout=120
    )
    if done.returncode:
        raise BenchError(f"the last resume ended with {done.returncode}: {done.stderr[-600:]!r}")


def _recorded(state: Path) -> list[str]:
    """Every whole event now, as text; empty before the ledger is there."""
    if not list(state.glob("runs/*/ledger.ndjson")):
        return []
    return [json.dumps(event) for event in chained(ledger_of(state))]
