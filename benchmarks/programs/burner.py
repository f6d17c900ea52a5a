"""Use the CPU seconds given, in a process that has left its parent, to see that the meter counts them."""

import os
import sys
import time

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while time.process_time() < float(sys.argv[1]):
            pass
    os._exit(0)
os.wait()
