"""The store port on SQLite: every statement that loopd knows is in this module."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, Self

from msgspec.structs import astuple, replace

from loopd.adapters.liveness import boot_id, is_alive
from loopd.adapters.state import StateFolder
from loopd.adapters.stores.find import find_run
from loopd.adapters.stores.gate import pass_gate
from loopd.adapters.stores.place import find_place, spare_folder
from loopd.adapters.stores.records import recorded_runs
from loopd.domain.errors import StateError
from loopd.ports.store import RunEntry

# One tuple of statements a version; `user_version` counts those that were applied. Never edited, only added to.
# Paths are blobs: a file name is bytes, and need not be text.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """create table run (
            run text primary key, goal text not null, folder blob not null, workspace blob not null,
            contract blob not null, contract_digest text not null, state text not null,
            started_at text not null, changed_at text not null, pid integer not null, pid_start integer not null
        ) strict""",
        """create table hold (
            workspace blob primary key, run text not null, pid integer not null, pid_start integer not null,
            boot text not null
        ) strict""",
    ),
)

_COLUMNS = "run, goal, folder, workspace, contract, contract_digest, state, started_at, changed_at, pid, pid_start"
_PUT = f"insert or replace into run ({_COLUMNS}) values ({', '.join('?' * 11)})"
_FORGET = "delete from run where run = ?"
_RUNS = f"select {_COLUMNS} from run order by changed_at desc, started_at desc, run"
_RUN = f"select {_COLUMNS} from run where run = ?"
_HOLDS = "select workspace, run, pid, pid_start, boot from hold"
_HOLD = "insert or replace into hold (workspace, run, pid, pid_start, boot) values (?, ?, ?, ?, ?)"
_RELEASE = "delete from hold where workspace = ? and run = ?"
_DROP_HOLD = "delete from hold where workspace = ?"


def open_store(state: StateFolder, spare: Path | None = None) -> "SqliteStore":
    """The index of runs; made, and filled from the run folders, when there is none. `.note` tells an unusual place.

    Raises `StateError` with the remedy when it cannot be read or written, or is of a newer version.
    """
    place = find_place(state.index, spare or spare_folder())
    is_new = not place.path.exists()
    store = SqliteStore(place.path, place.note)
    if is_new:
        _refill(store, state)
    return store


def rebuild(state: StateFolder) -> int:
    """Put every run folder's own record into the index again; the number of runs. Idempotent."""
    with open_store(state) as store:
        return _refill(store, state)


class SqliteStore:
    """To be closed; a context manager. Any thread may call it, each call is one transaction."""

    def __init__(self, path: Path, note: str = "") -> None:
        self.path = path
        self.note = note
        self._gate = path.with_name(f"{path.name}.gate")
        self._one_at_a_time = RLock()
        with self._explained():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def put(self, entry: RunEntry) -> None:
        """See the port."""
        with self._writing():
            self._connection.execute(_PUT, _row(entry))

    def forget(self, run: str) -> None:
        """See the port."""
        with self._writing():
            self._connection.execute(_FORGET, (run,))

    def runs(self) -> tuple[RunEntry, ...]:
        """See the port."""
        with self._reading():
            return tuple(map(_entry, self._connection.execute(_RUNS)))

    def find(self, name: str) -> RunEntry:
        """See the port."""
        return find_run(self.runs(), name)

    def hold(self, workspace: Path, run: str, pid: int, pid_start: int) -> RunEntry | None:
        """See the port. A workspace inside a held one, or around it, is held too; a dead holder is replaced at once."""
        real = workspace.resolve()
        boot = boot_id()
        with self._writing():
            for held, holder, its_pid, its_start, its_boot in self._connection.execute(_HOLDS).fetchall():
                same = (its_pid, its_start, its_boot) == (pid, pid_start, boot)
                ours = same and (holder == run or os.fsdecode(held) == str(real))  # passed on to another name
                if ours or not _overlap(Path(os.fsdecode(held)), real):
                    continue
                if its_boot == boot and is_alive(its_pid, its_start):
                    return self._holder(holder, Path(os.fsdecode(held)), its_pid, its_start)
                self._connection.execute(_DROP_HOLD, (held,))
            self._connection.execute(_HOLD, (os.fsencode(real), run, pid, pid_start, boot))
        return None

    def release(self, workspace: Path, run: str) -> None:
        """See the port."""
        with self._writing():
            self._connection.execute(_RELEASE, (os.fsencode(workspace.resolve()), run))

    def close(self) -> None:
        """Idempotent."""
        with self._one_at_a_time:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _holder(self, run: str, workspace: Path, pid: int, pid_start: int) -> RunEntry:
        row = self._connection.execute(_RUN, (run,)).fetchone()
        known = _entry(row) if row else RunEntry(run, run.rpartition("-")[0], Path(), workspace, Path(), "", "", "", "")
        return replace(known, pid=pid, pid_start=pid_start)

    def _prepare(self) -> None:
        with self._explained():
            self._connection.execute("pragma synchronous = full")
            if self._version() != len(MIGRATIONS):
                self._migrate()

    def _migrate(self) -> None:
        if self._version() > len(MIGRATIONS):
            raise StateError(
                f"the index {self.path} is of version {self._version()}; this loopd knows up to {len(MIGRATIONS)}\n"
                "use the loopd that wrote it, or a newer one"
            )
        with pass_gate(self._gate):
            self._connection.execute("pragma journal_mode = wal")
        with self._writing():
            version = self._version()  # again: another process may have been first
            for statement in (statement for step in MIGRATIONS[version:] for statement in step):
                self._connection.execute(statement)
            self._connection.execute(f"pragma user_version = {len(MIGRATIONS)}")

    def _version(self) -> int:
        return int(self._connection.execute("pragma user_version").fetchone()[0])

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._one_at_a_time, self._explained():
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(self._one_at_a_time)
            stack.enter_context(self._explained())
            stack.enter_context(pass_gate(self._gate))
            self._connection.execute("begin immediate")
            try:
                yield
            except BaseException:
                self._connection.rollback()
                raise
            self._connection.execute("commit")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what SQLite or the system says into one error with a remedy."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StateError(
                f"the index of runs {self.path} failed: {error}\n"
                f"see that its folder can be written and has room; if the file is damaged, move it away "
                f"(mv {self.path} {self.path}.damaged) and loopd makes it anew from the run folders"
            ) from error


def _refill(store: SqliteStore, state: StateFolder) -> int:
    entries = recorded_runs(state)
    for entry in entries:
        store.put(entry)
        if is_alive(entry.pid, entry.pid_start):
            store.hold(entry.workspace, entry.run, entry.pid, entry.pid_start)
    return len(entries)


def _overlap(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)


def _row(entry: RunEntry) -> tuple[Any, ...]:
    return tuple(os.fsencode(value) if isinstance(value, Path) else value for value in astuple(entry))


def _entry(row: tuple[Any, ...]) -> RunEntry:
    values: list[Any] = [Path(os.fsdecode(value)) if isinstance(value, bytes) else value for value in row]
    return RunEntry(*values)
