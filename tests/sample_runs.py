"""Runs for the views, written by hand: through the real ledger, the real index and the real status file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fakes import FakeClock
from loopd.adapters.ledger import open_ledger
from loopd.adapters.state import RunFolder, StateFolder, ensure_state
from loopd.adapters.status import publish_status
from loopd.adapters.stores.records import record_run
from loopd.adapters.stores.sqlite import open_store
from loopd.cli.replay import criteria_of
from loopd.domain.attempt import Exit, Usage
from loopd.domain.budget import Allowance, Reserve
from loopd.domain.record import Record, apply, dump_value
from loopd.domain.status import status
from loopd.domain.verdict import Status, Verdict
from loopd.ports.store import RunEntry


@dataclass
class SampleRun:
    """One run; every method records what the engine would have recorded."""

    state: Path
    run: str = "retry-client-k3f9"
    workspace: Path = Path("/home/ada/retry client")
    allowance: Allowance = field(default_factory=lambda: Allowance(attempts=30, time_s=28800.0, cost_usd=20.0))
    started_at: str = "2026-01-02T03:04:05.000Z"
    pid: int = 0
    pid_start: int = 0
    clock: FakeClock = field(default_factory=lambda: FakeClock(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)))
    record: Record = field(default_factory=Record)
    seen: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder = RunFolder(StateFolder(self.state).run(self.run).root)
        ensure_state(StateFolder(self.state))
        self.folder.root.mkdir(mode=0o700)
        self.goal = self.run.rpartition("-")[0]
        record_run(self.folder, self.entry)
        self.ledger = open_ledger(self.folder, self.clock)
        self.note(
            "run.opened",
            run=self.run,
            goal=self.goal,
            contract_digest="d1",
            allowance=dump_value(self.allowance),
            settings=[
                {"name": "budget.attempts", "value": "30", "source": "contract"},
                {"name": "budget.time", "value": "8h", "source": "flag --time"},
            ],
        )
        self.note("run.started", resumed=False)

    @property
    def entry(self) -> RunEntry:
        """As the index has it."""
        contract = self.workspace / "goals" / "retry.yaml"
        at = self.clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return RunEntry(
            self.run,
            self.goal,
            self.folder.root,
            self.workspace,
            contract,
            "d1",
            str(self.record.state),
            self.started_at,
            at,
            self.pid,
            self.pid_start,
        )

    def note(self, kind: str, *, after_s: float = 1.0, **data: Any) -> "SampleRun":
        """Record one event, `after_s` seconds after the last."""
        self.clock.advance(after_s)
        elapsed = self.record.spent.time_s + (0.0 if kind == "wait.ended" else after_s)
        event = self.ledger.append(kind, {**data, "elapsed_s": elapsed})
        self.record = apply(self.record, kind, event.data, event.at)
        self.seen.append((kind, dict(event.data)))
        return self

    def baseline(self, **verdicts: Verdict) -> "SampleRun":
        """Preflight, with these verdicts."""
        prepared = {"baseline": "b0", "setup_s": 12.0, "setup_cached": False, "files": 312, "carried": [".venv"]}
        self.note("tree.prepared", **prepared, notes=["3 uncommitted files are left out"], agent="/usr/bin/claude")
        for verdict in verdicts.values():
            self.note("baseline.verdict", verdict=dump_value(verdict), stable_tests=list(verdict.tests))
        return self.note("preflight.passed", baseline="b0", workspace="b0")

    def attempt(self, number: int, *, out: bytes = b"", lasts_s: float = 60.0) -> "SampleRun":
        """Reserve and start attempt `number`; `out` is what its agent prints."""
        folder = self.folder.attempt(number)
        folder.mkdir(parents=True)
        (folder / "stdout.log").write_bytes(out)
        (folder / "stderr.log").write_bytes(b"")
        (folder / "instruction.md").write_text("Do it.\n")
        self.note(
            "attempt.reserved",
            attempt=number,
            before="b0",
            base="b0",
            reserve=dump_value(Reserve(2700.0, 2.0)),
            instruction=f"attempts/{number:04}/instruction.md",
            digest="i1",
            notes_used=0,
        )
        self.note("attempt.started", attempt=number, containment="pid-namespace", adopted=False)
        self.clock.advance(lasts_s)
        return self

    def ends(
        self,
        *,
        outcome: str = "finished",
        reason: str = "",
        usage: Usage | None = None,
        took_s: float = 60.0,
        ended: tuple[str, ...] = (),
        tree: str = "",
        effect: bool = True,
        restored: tuple[str, ...] = (),
        tampered: str = "",
    ) -> "SampleRun":
        """The attempt ends and its changes are taken."""
        number = self.record.number
        told = dump_value(usage) if usage else None
        exit_ = dump_value(Exit(status=0, duration_s=took_s))
        self.note(
            "attempt.ended",
            attempt=number,
            outcome=outcome,
            reason=reason,
            exit=exit_,
            usage=told,
            ended=list(ended),
            strays=[],
            signals=[],
            after_s=took_s,
        )
        return self.note(
            "attempt.captured",
            attempt=number,
            after=f"w{number}",
            workspace=f"w{number}",
            tree=tree or f"t{number}",
            effect=effect,
            outcome=outcome if effect or outcome != "finished" else "no_effect",
            changed=["src/client.py", "tests/test_retry.py"] if effect else [],
            restored=list(restored),
            unproven=[],
            refused=[],
            locks=[],
            tampered=tampered,
        )

    def judged(self, *, fresh: bool = False, **verdicts: Verdict) -> "SampleRun":
        """Verdicts and what they mean together."""
        number = self.record.number
        for verdict in verdicts.values():
            self.note("verdict", attempt=number, verdict=dump_value(verdict), fresh=False, after_s=2.0)
        for verdict in verdicts.values() if fresh else ():
            self.note("verdict", attempt=number, verdict=dump_value(verdict), fresh=True, after_s=2.0)
        failing = [verdict.criterion for verdict in verdicts.values() if verdict.status is not Status.PASS]
        spared = -sum(len(verdict.failed_tests) for verdict in verdicts.values())
        return self.note(
            "attempt.assessed",
            attempt=number,
            score={"met": len(verdicts) - len(failing), "spared": spared},
            fingerprint=f"f{len(failing)}",
            failing=failing,
            met=not failing,
            broken="",
        )

    def decided(self, decision: str, reason: str, **data: Any) -> "SampleRun":
        """What follows."""
        return self.note("decision", decision=decision, reason=reason, **data)

    def over(self, state: str, reason: str, **data: Any) -> "SampleRun":
        """The run ends."""
        return self.note("run.ended", state=state, reason=reason, **data)

    def publish(self, **more: Any) -> "SampleRun":
        """Bring status.json and the index up to date, and let go of the ledger."""
        publish_status(self.folder, {**self.status(), **more})
        with open_store(StateFolder(self.state)) as store:
            store.put(self.entry)
        self.ledger.close()
        return self

    def status(self) -> Mapping[str, Any]:
        """As the engine would publish it."""
        return status(
            self.record,
            criteria_of(self.record),
            active_s=self.record.spent.time_s,
            contract=str(self.entry.contract),
            workspace=str(self.workspace),
        )


def verdict(name: str, status: str, summary: str = "", **more: Any) -> Verdict:
    """One verdict, as short as a test needs it."""
    return Verdict(name, Status(status), summary=summary, duration_s=2.1, **more)


def typical(state: Path, **more: Any) -> SampleRun:
    """Two attempts, the second better; a third is at work."""
    run = SampleRun(state, **more)
    run.baseline(
        a=verdict("tests", "fail", "3 failing tests: test_backoff, test_retry_after, test_cap"),
        b=verdict("types", "pass"),
        c=verdict("lint", "fail", "src/client.py:10 E501"),
    )
    run.attempt(1, out=b"working\n").ends(
        usage=Usage(0.41, 120_000), restored=(".github/ci.yml",), ended=("python train.py",)
    )
    run.judged(
        a=verdict("tests", "fail", "2 failing tests: test_backoff, test_cap", output="checks/0001-tests"),
        b=verdict("types", "fail", "src/client.py:12: error"),
    )
    run.decided("continue", "3 of 3 criteria fail: tests, types, lint")
    run.attempt(2, out=b"working harder\n").ends(usage=None, took_s=180.0)
    run.judged(
        a=verdict("tests", "pass", output="checks/0002-tests"),
        b=verdict("types", "pass"),
        c=verdict("lint", "fail", "src/client.py:10 E501 line too long (121 > 120)"),
    )
    run.decided("continue", "1 of 3 criteria fail: lint")
    return run.attempt(3, out=b"\x1b[1mthinking about lint\x1b[0m\n")
