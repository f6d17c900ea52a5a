"""A generator of random hostile process trees: `hostile.py SEED LOG [restless]`. Plain standard library.

Every process of the tree writes one line `pid start-time` to LOG, so that somebody outside can tell whether
it lives. pids are those of the innermost namespace. Nothing outlives LIFE_S, should a test fail to end it.
"""

import os
import random
import signal
import sys
import time

LIFE_S = 40.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def note(log: str) -> None:
    """Leave the identity of the calling process in LOG: pid as it sees it, start time, and its PID namespace."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rsplit(b") ", 1)[1].split()
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    space = os.readlink(b"/proc/self/ns/pid")
    os.write(descriptor, b"%d %s %s\n" % (os.getpid(), fields[19], space))
    os.close(descriptor)


def linger(until: float) -> None:
    """Do nothing until the end of life."""
    while time.monotonic() < until:
        time.sleep(0.5)
    os._exit(0)


def child(action, *arguments: object) -> None:  # type: ignore[no-untyped-def]
    """Run `action` in a child that never returns here."""
    if os.fork() == 0:
        try:
            action(*arguments)
        finally:
            os._exit(0)


def plain(log: str, until: float) -> None:
    """A child in the same group."""
    note(log)
    linger(until)


def in_a_session_of_its_own(log: str, until: float) -> None:
    """What every agent does with its shell tools."""
    os.setsid()
    plain(log, until)


def in_a_group_of_its_own(log: str, until: float) -> None:
    """What an interactive shell does with its jobs."""
    os.setpgid(0, 0)
    plain(log, until)


def daemon(log: str, until: float) -> None:
    """Double fork and setsid: re-parented, in nobody's group."""
    os.setsid()
    child(plain, log, until)


def scrubbed(log: str, until: float) -> None:
    """A daemon whose environment is empty, so that no marker is left."""
    os.setsid()
    if os.fork():
        os._exit(0)
    note(log)
    os.execve("/bin/sleep", ["sleep", str(max(1, int(until - time.monotonic())))], {})


def renamed(log: str, until: float) -> None:
    """Calls itself something else and executes that with an empty environment."""
    os.setsid()
    with open("/proc/self/comm", "w", encoding="utf-8") as file:
        file.write(") R 1 1 (")
    note(log)
    if os.fork():
        os._exit(0)
    note(log)
    os.execve("/bin/sleep", ["kworker/0:1 (\x1b[31m", str(max(1, int(until - time.monotonic())))], {})


def dead_links(log: str, until: float, depth: int = 4) -> None:
    """A chain whose middle links have exited."""
    note(log)
    if depth:
        child(dead_links, log, until, depth - 1)
        if depth % 2:
            os._exit(0)
    linger(until)


def burst(log: str, until: float, size: int) -> None:
    """Many at once."""
    for _ in range(size):
        child(plain, log, until)
    plain(log, until)


def stopped(log: str, until: float) -> None:
    """Cannot react to any polite signal."""
    note(log)
    os.kill(os.getpid(), signal.SIGSTOP)
    linger(until)


def mover(log: str, until: float, *, new_session: bool = False) -> None:
    """Forks and exits every 2 ms: its pid is stale whenever it is used."""
    os.setsid()
    note(log)
    while time.monotonic() < until:
        time.sleep(0.002)
        if os.fork():
            os._exit(0)
        if new_session:
            os.setsid()
        note(log)
    os._exit(0)


def restless_mover(log: str, until: float) -> None:
    """The same, in a new session at each hop: only a cgroup or a PID namespace can hold it."""
    mover(log, until, new_session=True)


def grow(dice: random.Random, log: str, until: float, restless: bool) -> None:
    """Three to seven random offspring, some of them with a tree of their own."""
    kinds = [
        plain,
        in_a_session_of_its_own,
        in_a_group_of_its_own,
        daemon,
        scrubbed,
        renamed,
        dead_links,
        stopped,
    ]
    kinds += [mover, restless_mover] if restless else [mover]
    for _ in range(dice.randint(3, 7)):
        choice = dice.random()
        if choice < 0.1:
            child(burst, log, until, dice.randint(2, 50))
        elif choice < 0.25:
            child(subtree, random.Random(dice.random()), log, until, restless)
        else:
            child(dice.choice(kinds), log, until)


def subtree(dice: random.Random, log: str, until: float, restless: bool) -> None:
    """A hostile tree below a session of its own whose root may leave."""
    os.setsid()
    note(log)
    for kind in (plain, daemon, mover):
        child(kind, log, until)
    if dice.random() < 0.5:
        os._exit(0)
    linger(until)


def main() -> None:
    """Grow the tree, then leave, fall to a signal, or hang."""
    seed, log = int(sys.argv[1]), sys.argv[2]
    dice = random.Random(seed)
    until = time.monotonic() + LIFE_S
    if dice.random() < 0.8:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
    note(log)
    grow(dice, log, until, "restless" in sys.argv[3:])
    time.sleep(dice.choice((0, 0, 0.01, 0.1)))
    print("tree grown", flush=True)
    ending = dice.choice(("exit", "kill", "hang", "hang"))
    if ending == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if ending == "hang":
        linger(until)
    os._exit(seed % 7)


if __name__ == "__main__":
    main()
