"""Facts about processes, read from /proc. Part of the lean half: imports nothing that costs."""

import functools
import os
import signal
from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

_FORKED_WITHOUT_EXEC = 0x40  # PF_FORKNOEXEC of the kernel's task flags, cleared by a successful exec

_AT_ONCE = 1 << 16
_SURELY_WHOLE = 2048  # /proc hands out a page at a time; what is much shorter has been read to its end


class Identity(NamedTuple):
    """A process beyond doubt, within one boot: a pid alone may be somebody else's by now."""

    pid: int
    start: int  # clock ticks since boot, field 22 of /proc/PID/stat


class Process(NamedTuple):
    """One line of /proc/PID/stat, as far as it matters here."""

    pid: int
    start: int
    parent: int
    group: int
    state: str
    flags: int
    ticks: int  # CPU time of the process and of the children it has reaped, in clock ticks

    @property
    def identity(self) -> Identity:
        """The pair that names this process."""
        return Identity(self.pid, self.start)

    @property
    def alive(self) -> bool:
        """False for a zombie: it can neither run nor fork, whoever has forgotten to reap it."""
        return self.state not in "ZX"

    @property
    def has_exec(self) -> bool:
        """True once the process runs a program of its own rather than a copy of its parent."""
        return not self.flags & _FORKED_WITHOUT_EXEC


@functools.cache
def boot_id() -> str:
    """The name of this boot of the machine; start times mean nothing across boots."""
    return _read("/proc/sys/kernel/random/boot_id").decode().strip()


def read_process(pid: int) -> Process | None:
    """The process that has this pid now, zombies included; None when there is none."""
    try:
        text = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    field = text[text.rindex(b")") + 2 :].split()  # the name before it may hold spaces and parentheses
    return Process(
        pid=pid,
        start=int(field[19]),
        parent=int(field[1]),
        group=int(field[2]),
        state=field[0].decode(),
        flags=int(field[6]),
        ticks=sum(map(int, field[11:15])),
    )


def is_alive(identity: Identity) -> bool:
    """True while exactly this process exists and is no zombie."""
    process = read_process(identity.pid)
    return process is not None and process.start == identity.start and process.alive


def pids() -> list[int]:
    """Every pid there is."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def process_table() -> dict[int, Process]:
    """Every process there is, by pid. Not a moment's picture: processes come and go while it is read."""
    return {pid: process for pid in pids() if (process := read_process(pid)) is not None}


def descendants(roots: Iterable[int], table: dict[int, Process]) -> list[Process]:
    """Children of `roots` at any depth, zombies included, the roots themselves not."""
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    found: dict[int, Process] = {}
    todo = list(roots)
    while todo:
        for child in children.get(todo.pop(), ()):
            if child.pid not in found:
                found[child.pid] = child
                todo.append(child.pid)
    return list(found.values())


def children_of(pid: int) -> list[int] | None:
    """Direct children of a single-threaded process; None where the kernel does not tell
    (CONFIG_PROC_CHILDREN).
    """
    try:
        return [int(child) for child in _read(f"/proc/{pid}/task/{pid}/children").split()]
    except OSError:
        return None


def marked(name: str, value: str, leave_out: Container[int] = frozenset()) -> Iterator[int]:
    """Processes whose environment, as it was given to them, holds exactly this variable; the caller's own
    and those in `leave_out` left out.

    Only processes of the caller's user can be read (all of them for root).
    """
    needle = b"\0%s=%s\0" % (os.fsencode(name), os.fsencode(value))
    me = os.getpid()
    return (pid for pid in pids() if pid != me and pid not in leave_out and needle in _environment(pid))


def variable(pid: int, name: str) -> str | None:
    """One variable of the environment that a process was given; None when unset, scrubbed or unreadable."""
    _, found, rest = _environment(pid).partition(b"\0" + os.fsencode(name) + b"=")
    return os.fsdecode(rest.split(b"\0")[0]) if found else None


def pid_inside(pid: int) -> int | None:
    """The pid of a process in the namespace below ours; None when it is gone or in ours."""
    try:
        _, _, rest = _read(f"/proc/{pid}/status").partition(b"\nNSpid:")
    except OSError:
        return None
    numbers = rest.partition(b"\n")[0].split()
    return int(numbers[1]) if len(numbers) > 1 else None


def command_line(pid: int) -> str:
    """The command as people know it, safe to print, at most 200 characters; empty when it is gone."""
    for source in ("cmdline", "comm"):
        try:
            text = _read(f"/proc/{pid}/{source}").rstrip(b"\0\n").replace(b"\0", b" ")
        except OSError:
            return ""
        if text:
            break
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text.decode(errors="replace"))[:200]


def open_pidfd(identity: Identity) -> int | None:
    """A descriptor that becomes readable when the process leaves; None when it is gone. Close it."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except OSError:
        return None
    process = read_process(identity.pid)
    if process is not None and process.start == identity.start:
        return descriptor
    os.close(descriptor)
    return None


def send_signal(identity: Identity, number: int) -> bool:
    """Signal exactly this process; False when it is gone or not ours to signal."""
    descriptor = open_pidfd(identity)
    if descriptor is None:
        return False
    try:
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _environment(pid: int) -> bytes:
    try:
        return b"\0" + _read(f"/proc/{pid}/environ")
    except OSError:
        return b""


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        text = os.read(descriptor, _AT_ONCE)
        if len(text) < _SURELY_WHOLE:
            return text
        while more := os.read(descriptor, _AT_ONCE):
            text += more
        return text
    finally:
        os.close(descriptor)
