"""Append to the ledger in the folder given, print the number of each event when it is on the disk; to be killed."""

import sys
from pathlib import Path

from loopd.adapters.clock import SystemClock
from loopd.adapters.ledger import open_ledger
from loopd.adapters.state import RunFolder

with open_ledger(RunFolder(Path(sys.argv[1])), SystemClock()) as ledger:
    while True:
        event = ledger.append("note", {"text": "x" * 150})
        print(event.seq, flush=True)
