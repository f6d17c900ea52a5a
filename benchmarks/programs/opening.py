"""CPU of opening a ledger of COUNT events with a recent snapshot, over an empty one. Usage: COUNT FOLDER"""

import json
import sys
import time
from pathlib import Path

from loopd.adapters.clock import SystemClock
from loopd.adapters.ledger import open_ledger, verify_all
from loopd.adapters.state import RunFolder

EVENT = {"attempt": 12, "exit": {"status": 0}, "usage": {"cost_usd": 0.12, "tokens": 1200}, "text": "x" * 130}
TAIL = 250  # events since the snapshot: half of what there is at most, with one every 100 attempts of 5 events


def make(folder: RunFolder, count: int) -> RunFolder:
    """A ledger of `count` events and its snapshot."""
    folder.root.mkdir()
    with open_ledger(folder, SystemClock()) as ledger:
        for _ in range(count):
            ledger.append("attempt.ended", EVENT, durable=False)
        ledger.save_snapshot(max(count - TAIL, 0), {"attempts": count // 5})
    return folder


def cost_ms(folder: RunFolder) -> float:
    """Open, take the snapshot, replay the rest: the cheapest of ten."""
    costs = []
    for _ in range(10):
        before = time.process_time()
        with open_ledger(folder, SystemClock()) as ledger:
            snapshot = ledger.load_snapshot()
            assert snapshot is not None
            events = list(ledger.events(snapshot[0]))
        costs.append((time.process_time() - before) * 1000)
    assert len(events) in (0, TAIL)
    return min(costs)


root, count = Path(sys.argv[2]), int(sys.argv[1])
full, empty = make(RunFolder(root / "full"), count), make(RunFolder(root / "empty"), 0)
before = time.process_time()
assert verify_all(full.ledger) == count
whole = (time.process_time() - before) * 1000
print(json.dumps({"extra_ms": max(0.0, cost_ms(full) - cost_ms(empty)), "full_ms": whole}))
