"""Say ready, wait for a line, take the workspace, say how that went, and keep it until stdin ends."""

import os
import sys
from pathlib import Path

from loopd.adapters.liveness import start_time
from loopd.adapters.state import StateFolder
from loopd.adapters.stores.sqlite import open_store

state, workspace, run = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
with open_store(StateFolder(Path(state))) as store:
    holder = store.hold(Path(workspace), run, os.getpid(), start_time(os.getpid()) or 0)
    print(f"refused by {holder.pid}" if holder else "held", flush=True)
    sys.stdin.readline()
