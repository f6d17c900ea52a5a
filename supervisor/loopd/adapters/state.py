"""Where loopd keeps its own state: one folder a user, one folder a run, never inside a workspace."""

import base64
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from loopd.domain.errors import BlockedError, StateError, UsageError

_TRIES = 20


class RunFolder(Struct, frozen=True):
    """The paths of one run; nothing is created by naming them."""

    root: Path

    @property
    def run(self) -> str:
        """The id of the run."""
        return self.root.name

    @property
    def identity(self) -> Path:
        """What the run is: written once, enough to rebuild the index."""
        return self.root / "run.json"

    @property
    def ledger(self) -> Path:
        """The events: the truth."""
        return self.root / "ledger.ndjson"

    @property
    def torn(self) -> Path:
        """Incomplete last lines that were cut off the ledger."""
        return self.root / "ledger.torn"

    @property
    def reserve(self) -> Path:
        """Space kept back for a last record on a full disk."""
        return self.root / "ledger.reserve"

    @property
    def snapshot(self) -> Path:
        """A summary of the events, so that opening need not replay them."""
        return self.root / "snapshot.json"

    @property
    def status(self) -> Path:
        """The run for status tools, replaced at every change."""
        return self.root / "status.json"

    @property
    def contract(self) -> Path:
        """The pinned contract."""
        return self.root / "contract.yaml"

    @property
    def lock(self) -> Path:
        """Held by the one supervisor of this run."""
        return self.root / "lock"

    @property
    def requests(self) -> Path:
        """The spool of what the owner asks of a running supervisor."""
        return self.root / "requests"

    @property
    def trees(self) -> Path:
        """Private git directory, prepared and verification trees."""
        return self.root / "trees"

    @property
    def attempts(self) -> Path:
        """One folder an attempt."""
        return self.root / "attempts"

    def attempt(self, number: int) -> Path:
        """The folder of attempt `number`; 0 is the baseline."""
        return self.attempts / f"{number:04}"


class StateFolder(Struct, frozen=True):
    """The paths of everything loopd keeps for one user."""

    root: Path

    @property
    def runs(self) -> Path:
        """One folder a run."""
        return self.root / "runs"

    @property
    def index(self) -> Path:
        """What runs share; can be rebuilt from `runs`."""
        return self.root / "loopd.db"

    def run(self, run: str) -> RunFolder:
        """The folder of the run with this id."""
        return RunFolder(self.runs / run)


def locate_state(environ: Mapping[str, str]) -> StateFolder:
    """`$LOOPD_STATE`, else `$XDG_STATE_HOME/loopd`, else `~/.local/state/loopd`; creates nothing.

    Raises `BlockedError` when none of the three is known. A relative XDG path is ignored, as its
    specification says.
    """
    if chosen := environ.get("LOOPD_STATE"):
        return StateFolder(Path(chosen).absolute())
    xdg = Path(environ.get("XDG_STATE_HOME", ""))
    if xdg.is_absolute():
        return StateFolder(xdg / "loopd")
    home = Path(environ.get("HOME", ""))
    if home.is_absolute():
        return StateFolder(home / ".local" / "state" / "loopd")
    raise BlockedError(
        "no place for loopd's state: LOOPD_STATE, XDG_STATE_HOME and HOME are not set (or not absolute)",
        "set one of them, for instance LOOPD_STATE=/var/lib/loopd",
    )


def ensure_state(state: StateFolder) -> StateFolder:
    """Create the folders, readable by their owner only. Idempotent.

    Raises `UsageError` when others can write there, `StateError` when it cannot be created. An existing
    folder keeps its mode: it may be a mount point or shared on purpose, and what lies below is private
    anyway.
    """
    try:
        state.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if state.root.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UsageError(f"others can write to loopd's state folder {state.root}\nrun: chmod 700 {state.root}")
        state.runs.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StateError(f"the state folder {state.root} cannot be created: {error.strerror}") from error
    return state


def keep_outside(state: StateFolder, workspace: Path) -> None:
    """Raise `UsageError` when the state lies in the workspace, where an agent could write it.

    The other way round is fine: a cloned workspace lives in its run's folder.
    """
    inner, outer = state.root.resolve(), workspace.resolve()
    if inner.is_relative_to(outer):
        raise UsageError(
            f"loopd's state folder {inner} lies in the workspace {outer}, within the agent's reach\n"
            "set LOOPD_STATE to a folder outside of it"
        )


def run_id(goal: str, random_bytes: Callable[[int], bytes]) -> str:
    """`<goal>-<four characters>`; pass `secrets.token_bytes`."""
    return f"{goal}-{base64.b32encode(random_bytes(5)).decode().lower()[:4]}"


def create_run(state: StateFolder, goal: str, random_bytes: Callable[[int], bytes]) -> RunFolder:
    """A new run folder of its own, with an id nobody else has. Raises `StateError` when it cannot be made."""
    for _ in range(_TRIES):
        folder = state.run(run_id(goal, random_bytes))
        try:
            folder.root.mkdir(mode=0o700)
            for part in (folder.attempts, folder.trees, folder.requests):
                part.mkdir(mode=0o700)
        except FileExistsError:
            continue
        except OSError as error:
            raise StateError(f"the run folder {folder.root} cannot be created: {error.strerror}") from error
        return folder
    raise StateError(f"no free run id for {goal} in {state.runs} after {_TRIES} tries; remove old runs")
