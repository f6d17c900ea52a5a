"""The goals as data: what is compared with what, the bar that must hold, and the stretch that is hoped for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bar:
    """One figure. `lower` says which direction is good."""

    title: str
    unit: str
    bar: float
    stretch: float
    lower: bool = True
    ratio: bool = True  # depends on timing: not failed when the machine is too noisy to tell

    def grade(self, value: float) -> str:
        """`stretch`, `held` or `MISSED`."""
        if self._reaches(value, self.stretch):
            return "stretch"
        return "held" if self._reaches(value, self.bar) else "MISSED"

    def _reaches(self, value: float, limit: float) -> bool:
        return value <= limit if self.lower else value >= limit


BARS: dict[str, Bar] = {
    "G1": Bar("CPU per attempt / the same loop in bash", "x", 6, 3),
    "G1b": Bar("CPU per attempt, git repository of 5,000 files, clean tree / plain git and bash", "x", 3, 2),
    "G2": Bar("wall per attempt: ralph-orchestrator 1.2.3 / loopd", "x", 50, 100, lower=False),
    "G2b CPU": Bar("CPU to the first spawn: ralph-orchestrator 1.2.3 / loopd", "x", 3, 5, lower=False),
    "G2b RSS": Bar("peak memory: ralph-orchestrator 1.2.3 / loopd", "x", 1.5, 2, lower=False),
    "G3 p50": Bar("verifier exit to next agent, median / one bash iteration", "x", 4, 1),
    "G3 p95": Bar("verifier exit to next agent, 95th percentile / one bash iteration", "x", 8, 2),
    "G4 --version": Bar("CPU of --version / bare interpreter", "x", 4, 2.5),
    "G4 status": Bar("CPU of status / bare interpreter", "x", 4, 2.5),
    "G4 ps": Bar("CPU of ps / bare interpreter", "x", 4, 2.5),
    "G4 --help": Bar("CPU of --help / bare interpreter", "x", 8, 2.5),
    "G4b": Bar("CPU of --help: ralph-orchestrator 1.2.3 / loopd", "x", 20, 40, lower=False),
    "G5": Bar("CPU of run to preflight's first verifier / bare interpreter", "x", 40, 20),
    "G6": Bar("peak memory after 200 attempts / bare interpreter", "x", 5, 4),
    "G6 growth": Bar("memory growth from attempt 100 to attempt 1000", "MB", 10, 10),
    "G6 output": Bar("memory growth by much output", "MB", 10, 4),
    "G7": Bar("CPU per MB of captured output / cat >> file", "x", 5, 3),
    "G8 memory": Bar("memory growth by a 64 MiB line with NULs and bad UTF-8", "MB", 16, 16, ratio=False),
    "G8 lost": Bar("bytes lost of it", "bytes", 0, 0, ratio=False),
    "G9": Bar("hostile process trees that were alive when their attempt was verified", "trees", 0, 0, ratio=False),
    "G9 p50": Bar("agent exit to verifier with a hostile tree to end, median", "ms", 500, 50),
    "G9 max": Bar("agent exit to verifier with a hostile tree to end, longest", "ms", 3000, 500),
    "G10": Bar("CPU while waiting for a silent agent / polling every 10 ms", "x", 1 / 5, 1 / 20),
    "G11 twice": Bar("attempts launched twice after SIGKILL of loopd", "attempts", 0, 0, ratio=False),
    "G11 lost exit": Bar("exit statuses lost after SIGKILL of loopd", "exits", 0, 0, ratio=False),
    "G11 lost event": Bar("recorded events lost after SIGKILL of loopd", "events", 0, 0, ratio=False),
    "G12": Bar("CPU of resume with 10,000 attempts, over an empty run", "ms", 100, 10),
    "G12 ledger": Bar("CPU of opening 50,000 events with a snapshot, over an empty ledger", "ms", 100, 10),
    "G13": Bar("CPU per durable event / SQLite WAL FULL", "x", 0.8, 0.56),
}
