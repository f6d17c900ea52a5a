"""Make the ledger of a run of three attempts one of many, snapshots included, as loopd itself would have written it.

Usage: RUN_FOLDER ATTEMPTS. The events of the second attempt are repeated, with the numbers of the others.
"""

import sys
from pathlib import Path

from loopd.adapters.clock import SystemClock
from loopd.adapters.ledger import open_ledger, read_ledger
from loopd.adapters.state import RunFolder
from loopd.domain.record import Record, apply, dump
from loopd.ports.ledger import Event

SNAPSHOT_EVERY = 100


def numbered(events: list[Event], attempt: int) -> list[tuple[str, dict[str, object]]]:
    """The same events, of another attempt."""
    return [
        (event.kind, {**event.data, **({"attempt": attempt} if "attempt" in event.data else {})}) for event in events
    ]


folder, attempts = RunFolder(Path(sys.argv[1])), int(sys.argv[2])
events = list(read_ledger(folder.ledger))
begins = [place for place, event in enumerate(events) if event.kind == "attempt.reserved"]
assert len(begins) == 3, f"{len(begins)} attempts"
first, second, third = events[: begins[1]], events[begins[1] : begins[2]], events[begins[2] :]
folder.ledger.unlink()
folder.snapshot.unlink(missing_ok=True)
record = Record()
with open_ledger(folder, SystemClock()) as ledger:
    whole = [(event.kind, dict(event.data)) for event in first]
    for attempt in range(2, attempts):
        whole += numbered(second, attempt)
    for kind, data in whole + numbered(third, attempts):
        event = ledger.append(kind, data, durable=False)
        record = apply(record, kind, event.data, event.at)
        if kind == "attempt.assessed" and record.number % SNAPSHOT_EVERY == 0 and record.number < attempts:
            last = event.seq, dump(record)
    ledger.save_snapshot(*last)
assert record.number == attempts
print(record.number)
