"""CPU of one durable event: loopd's ledger against SQLite with a write-ahead log, taking turns. Usage: COUNT FOLDER

SQLite records the same event twice over: as the ledger does, dated and chained by a hash, which is the comparison;
and bare, which is shown beside it. Each has a database of its own.
"""

import json
import sqlite3
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from loopd.adapters.clock import SystemClock
from loopd.adapters.ledger import open_ledger, verify_all
from loopd.adapters.state import RunFolder

EVENT = {"attempt": 12, "exit": {"status": 0}, "usage": {"cost_usd": 0.12, "tokens": 1200}, "text": "x" * 130}
BATCH = 50


def database(path: Path) -> sqlite3.Connection:
    """As durable as the ledger: a commit is on the disk when it returns."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.execute("create table event (seq integer primary key, at text, kind text, data text, hash text) strict")
    return connection


class Chained:
    """The ledger's event in SQLite."""

    def __init__(self, path: Path) -> None:
        self.connection = database(path)
        self._seq, self._hash = 0, "0" * 64

    def append(self) -> None:
        """One event: numbered, dated, chained."""
        self._seq += 1
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        data = json.dumps(EVENT)
        self._hash = sha256(f"{self._hash}{self._seq}{at}attempt.ended{data}".encode()).hexdigest()
        row = (self._seq, at, "attempt.ended", data, self._hash)
        self.connection.execute("insert into event values (?, ?, ?, ?, ?)", row)


def cost_s(action: Callable[[], object]) -> float:
    """CPU of one batch."""
    before = time.process_time()
    for _ in range(BATCH):
        action()
    return time.process_time() - before


def main() -> None:
    """Print microseconds of CPU an event."""
    count, folder = int(sys.argv[1]), Path(sys.argv[2])
    ledger = open_ledger(RunFolder(folder), SystemClock())
    chained, bare = Chained(folder / "chained.db"), database(folder / "bare.db")
    insert = "insert into event (kind, data) values (?, ?)"
    actions: dict[str, Callable[[], object]] = {
        "ledger": lambda: ledger.append("attempt.ended", EVENT),
        "sqlite": chained.append,
        "bare_sqlite": lambda: bare.execute(insert, ("attempt.ended", json.dumps(EVENT))),
    }
    spent = dict.fromkeys(actions, 0.0)
    for _ in range(0, count, BATCH):
        for name, action in actions.items():
            spent[name] += cost_s(action)
    stored = [
        connection.execute("select count(*) from event").fetchone()[0] for connection in (chained.connection, bare)
    ]
    written = verify_all(folder / "ledger.ndjson")
    assert stored == [written, written], (stored, written)
    print(json.dumps({f"{name}_us": seconds / written * 1e6 for name, seconds in spent.items()}))


main()
