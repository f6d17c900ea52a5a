"""Leave ten requests."""

import os
import sys
from pathlib import Path

from loopd.adapters.requests import FolderRequests
from loopd.ports.requests import RequestKind

for number in range(10):
    FolderRequests(Path(sys.argv[1])).put(RequestKind.STEER, {"pid": os.getpid(), "n": number})
