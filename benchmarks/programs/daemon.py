"""Leave a daemon behind that wants to live. Usage: daemon.py plain|scrub|forker PIDFILE

plain: forked twice, in a session of its own, deaf to every signal that can be ignored. scrub: with an empty
environment too. forker: forks a successor and leaves, every 2 ms. Each ends by itself after a minute.
"""

import os
import signal
import sys
import time

kind, pid_file = sys.argv[1:]


def tell(pid: int) -> None:
    """Whole or not at all: it is read while it changes."""
    with open(f"{pid_file}.new", "w") as file:
        file.write(f"{pid}\n")
    os.rename(f"{pid_file}.new", pid_file)


def live() -> None:
    """Be the daemon."""
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    tell(os.getpid())
    if kind == "scrub":
        os.execve("/bin/sleep", ["sleep", "60"], {})
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if kind == "plain":
            time.sleep(1)
            continue
        time.sleep(0.002)
        if os.fork():
            os._exit(0)
        tell(os.getpid())
    os._exit(0)


if os.fork() == 0:
    live()
while not os.path.exists(pid_file):
    time.sleep(0.001)
