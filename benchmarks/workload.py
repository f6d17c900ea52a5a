"""The work of the cases: an agent and a verifier in a few lines of shell, the same for loopd and for bash."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import Bench
from measure import BenchError, Sample, checked

AGENT = """\
n=0; [ -f count ] && read -r n < count
n=$((n + 1)); echo $n > count; echo "attempt $n" >> work.txt
echo "attempt $n is done"
"""

# The steps that are missing, as a report: every third attempt one less, so that a run is never stuck. Usage: FILE
REPORT = """\
i=$((n * steps / target + 1)); comma=; status=fail
[ "$n" -ge "$target" ] && status=pass
{
  printf '{"schema":"loopd.verifier/1","status":"%s","findings":[' $status
  while [ $i -le $steps ]; do
    printf '%s{"message":"missing","rule":"step %s"}' "$comma" $i
    i=$((i + 1)); comma=,
  done
  printf ']}\\n'
} > "$1"
"""

VERIFY = (
    """\
n=0; [ -f count ] && read -r n < count
read -r target < target
steps=$(((target + 2) / 3))
"""
    + REPORT
    + """\
[ "$n" -ge "$target" ]
"""
)

BASH_LOOP = """\
while :; do
  sh agent.sh >> out.log 2>&1
  sh verify.sh report.json && break
done
"""

CONTRACT = """\
goal: {goal}
objective: the counter reaches its target
isolation: inplace
verification: {verification}
sandbox: none
agent: {{command: [{shell}, agent.sh]}}
criteria:
  - name: count
    run: [{shell}, verify.sh, "{{out}}/report.json"]
    report: "{{out}}/report.json"
    baseline: fail
budget: {{attempts: {attempts}, time: 8h}}
"""


def lay_out(
    folder: Path,
    target: int,
    *,
    agent: str = AGENT,
    verify: str = VERIFY,
    verification: str = "workspace",
    shell: str = "sh",
    attempts: int = 0,
) -> Path:
    """Fill a workspace; `attempts` caps the run below its target."""
    (folder / "agent.sh").write_text(agent)
    (folder / "verify.sh").write_text(verify)
    (folder / "target").write_text(f"{target}\n")
    fields = {"goal": "bench", "verification": verification, "attempts": attempts or target, "shell": shell}
    (folder / "goal.yaml").write_text(CONTRACT.format(**fields))
    return folder


def run_bash(bench: Bench, folder: Path, loop: str = BASH_LOOP) -> Sample:
    """The floor: the same agent and verifier in a loop of four lines."""
    (folder / "loop.sh").write_text(loop)
    sample = bench.meter.run(["bash", "loop.sh"], cwd=folder, env=bench.env(folder / "none"))
    expect_count(folder)
    return checked(sample)


def run_loopd(bench: Bench, folder: Path, state: Path, *, status: int = 0, words: Sequence[str] = ()) -> Sample:
    """`loopd run goal.yaml` in the folder, to its end."""
    command = [*bench.loopd, "run", *words, "goal.yaml"]
    return checked(bench.meter.run(command, cwd=folder, env=bench.env(state)), status)


def expect_count(folder: Path, wanted: int = 0) -> None:
    """The agent ran exactly as often as it should: speed must not come from doing less."""
    wanted = wanted or int((folder / "target").read_text())
    lines = (folder / "work.txt").read_text().splitlines()
    if lines != [f"attempt {number}" for number in range(1, wanted + 1)]:
        raise BenchError(f"{len(lines)} attempts in {folder}, {wanted} were wanted")


def expect_record(state: Path, attempts: int) -> list[dict[str, Any]]:
    """The events of the only run: the chain holds, and every attempt was launched, ended and judged once."""
    events = list(chained(ledger_of(state)))
    for kind in ("attempt.reserved", "attempt.ended", "attempt.assessed"):
        found = sum(event["kind"] == kind for event in events)
        if found != attempts:
            raise BenchError(f"{found} events {kind}, {attempts} were wanted")
    return events


def ledger_of(state: Path) -> Path:
    """The ledger of the only run."""
    found = list(state.glob("runs/*/ledger.ndjson"))
    if len(found) != 1:
        raise BenchError(f"{len(found)} ledgers in {state}")
    return found[0]


def chained(ledger: Path) -> Iterator[dict[str, Any]]:
    """Every event, the chain of hashes checked as docs/formats.md says; a torn last line is left out."""
    previous = "0" * 64
    for line in ledger.read_bytes().splitlines(keepends=True):
        if not line.endswith(b"\n"):
            return
        digest = hashlib.sha256(previous.encode() + line[:-76]).hexdigest()
        event = json.loads(line)
        if event["hash"] != digest:
            raise BenchError(f"{ledger}: event {event['seq']} does not fit the chain")
        previous = digest
        if event["seq"]:
            yield event


def clear(*folders: Path) -> None:
    """Remove what a trial has made."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
