"""What runs share on one machine: the index of runs and who holds which workspace."""

from pathlib import Path
from typing import Protocol

from msgspec import Struct


class RunEntry(Struct, frozen=True):
    """One run as the index knows it. The index is a view: it can be rebuilt from the run folders."""

    run: str  # "retry-client-k3f9"
    goal: str
    folder: Path
    workspace: Path
    contract: Path
    contract_digest: str
    state: str
    started_at: str  # UTC, ISO 8601
    changed_at: str
    pid: int = 0  # of the supervisor while it lives
    pid_start: int = 0  # its start time, clock ticks since boot: a pid alone is no identity


class Store(Protocol):
    """Shared state. Every method is one short transaction; `StateError` when the store fails (closed, never "no")."""

    def put(self, entry: RunEntry) -> None:
        """Insert or replace by `run`."""
        ...

    def forget(self, run: str) -> None:
        """Remove one entry; unknown is fine."""
        ...

    def runs(self) -> tuple[RunEntry, ...]:
        """All runs, the most recently changed first."""
        ...

    def find(self, name: str) -> RunEntry:
        """By id, unique prefix of an id, goal name (the newest run of it) or `last`.

        Raises `UsageError` naming near misses when nothing or more than one fits.
        """
        ...

    def hold(self, workspace: Path, run: str, pid: int, pid_start: int) -> RunEntry | None:
        """Take the workspace for `run`; None when it is ours now, else the run whose live supervisor holds it.

        A process that holds the very workspace under another name passes it on.
        """
        ...

    def release(self, workspace: Path, run: str) -> None:
        """Give the workspace back; a no-op when it is not ours."""
        ...
