"""Put 25 entries of one's own into the index."""

import sys
from pathlib import Path

from loopd.adapters.state import StateFolder
from loopd.adapters.stores.sqlite import open_store
from loopd.ports.store import RunEntry

with open_store(StateFolder(Path(sys.argv[1]))) as store:
    for number in range(25):
        run = f"goal-{sys.argv[2]}-{number}"
        store.put(RunEntry(run, "goal", Path("/r"), Path("/w"), Path("/c"), "", "running", "", ""))
