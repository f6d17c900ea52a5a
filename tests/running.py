"""Running loopd as a person does: a real process, a real project, a state folder of its own."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "supervisor"
GIT_IDENTITY = ("-c", "user.name=someone", "-c", "user.email=someone@example.invalid")


def _born_ns(run: Path) -> float:
    """When a run folder got its agreement; one that has none yet is the newest."""
    try:
        return (run / "agreement.json").stat().st_mtime_ns
    except OSError:
        return float("inf")


@dataclass(frozen=True)
class Project:
    """A folder an agent works in, with its own loopd state beside it."""

    root: Path
    state: Path
    env: Mapping[str, str] = field(default_factory=dict)

    def write(self, files: Mapping[str, str]) -> "Project":
        """Write text files, dedented."""
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text), encoding="utf-8")
        return self

    def git(self, *words: str) -> str:
        """One git command in the project."""
        done = subprocess.run(["git", *GIT_IDENTITY, *words], cwd=self.root, capture_output=True, text=True, check=True)
        return done.stdout

    def commit(self) -> "Project":
        """Make it a repository whose first commit holds everything."""
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "start")
        return self

    def environment(self) -> dict[str, str]:
        """The environment of every loopd process of this project."""
        apart = ("LOOPD_", "CLAUDE", "PYTHONUNBUFFERED")  # the last hides what a buffer does to a user's output
        kept = {name: value for name, value in os.environ.items() if not name.startswith(apart)}
        return {**kept, "LOOPD_STATE": str(self.state), "PYTHONPATH": str(SOURCE), **self.env}

    def start(self, *words: str, **more: Any) -> "subprocess.Popen[str]":
        """Begin one loopd command."""
        return subprocess.Popen(
            [sys.executable, "-m", "loopd", *words],
            cwd=self.root,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **more,
        )

    def loopd(self, *words: str, timeout_s: float = 100) -> "Ran":
        """One loopd command to its end."""
        process = self.start(*words)
        out, err = process.communicate(timeout=timeout_s)
        return Ran(process.returncode, out, err)

    def run_folders(self) -> list[Path]:
        """Folders of all runs, oldest first."""
        runs = self.state / "runs"
        return sorted(runs.iterdir(), key=_born_ns) if runs.is_dir() else []

    def events(self) -> list[dict[str, Any]]:
        """Events of the newest run's ledger."""
        return ledger(self.run_folders()[-1])

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Data of all events of one kind."""
        return [event["data"] for event in self.events() if event["kind"] == kind]


@dataclass(frozen=True)
class Ran:
    """An ended command."""

    status: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """Everything it said."""
        return self.out + self.err


def ledger(folder: Path) -> list[dict[str, Any]]:
    """Events of one run, a torn last line left out; none before there is a ledger."""
    if not (folder / "ledger.ndjson").exists():
        return []
    lines = (folder / "ledger.ndjson").read_bytes().split(b"\n")
    parsed = [json.loads(line) for line in lines[:-1]]
    return [event for event in parsed if event.get("seq", 0) > 0]


def wait_for(condition: Callable[[], Any], timeout_s: float = 30.0) -> Any:
    """The first true value of `condition`; fails loudly when the deadline passes."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.01)
    raise AssertionError(f"not seen in {timeout_s} s: {condition}")


def is_running(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


@contextmanager
def ended(process: "subprocess.Popen[str]") -> Iterator["subprocess.Popen[str]"]:
    """Kill the process at the end of the block if it is still there."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


def contract(goal: str, checks: Sequence[str], agent: str, more: str = "") -> str:
    """A contract with plain commands as criteria."""
    criteria = "\n".join(f"  - {{name: check-{n}, run: {json.dumps(check)}}}" for n, check in enumerate(checks, 1))
    return f"goal: {goal}\nobjective: make every check pass\nagent: {agent}\ncriteria:\n{criteria}\n{more}\n"
