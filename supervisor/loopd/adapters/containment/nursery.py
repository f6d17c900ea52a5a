"""The spawning helper: a small single-threaded process that forks one shim for each container (lean half).

Forked from a supervisor that is still lean, it makes a fork cost a fraction of a new interpreter, however
large the supervisor grows. It leaves when the supervisor does; the shims stay.
"""

import contextlib
import ctypes
import fcntl
import gc
import os
import signal
import socket
import sys
import weakref
from pathlib import Path
from typing import NoReturn

from loopd.adapters.containment import channel, procfs, shim

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36

_SERVE = """
import sys
sys.path.insert(0, sys.argv[1])
from loopd.adapters.containment.nursery import serve
serve(0)
"""

_libc = ctypes.CDLL(None, use_errno=True)


class Nursery:
    """The supervisor's end. Closing it, or losing it, ends the helper and no shim."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid = pid
        self._control = control
        self._close = weakref.finalize(self, _close, pid, control)

    def hand_over(self, theirs: socket.socket) -> None:
        """Have a shim forked that reads its request from `theirs`. `OSError`: the helper is gone."""
        socket.send_fds(self._control, [b"c"], [theirs.fileno()], socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """End the helper. Idempotent."""
        self._close()


def fork() -> Nursery:
    """Fork the helper from this process, which must be lean and single-threaded: call it before heavy
    imports.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        try:
            serve(theirs.detach())
        finally:
            os._exit(1)
    theirs.close()
    return Nursery(pid, ours)


def spawn() -> Nursery:
    """Start the helper as a fresh interpreter, once: for a process that is already large or has threads."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    package = str(Path(__file__).resolve().parents[3])
    argv = [sys.executable, "-I", "-S", "-c", _SERVE, package]
    actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)]
    pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=actions)
    theirs.close()
    return Nursery(pid, ours)


def serve(control: int) -> NoReturn:
    """Fork a shim for each descriptor that arrives on `control`; leave at the end of file."""
    control = _detach(control)
    with socket.socket(fileno=control) as orders:
        while True:
            word, supervisors, _, _ = socket.recv_fds(orders, 1, 1)
            if not word:
                os._exit(0)
            for supervisor in supervisors:
                os.set_inheritable(supervisor, False)  # recv_fds ignores MSG_CMSG_CLOEXEC
                _bear(supervisor, control)
                os.close(supervisor)


def _bear(supervisor: int, control: int) -> None:
    helper = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        channel.send(supervisor, {"error": shim.LaunchError("shim", error).fault})
        return
    if pid == 0:
        os.close(control)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _name("loopd-shim")
        _become_subreaper()
        _libc.prctl(_PR_SET_PDEATHSIG, shim.ORPHANED, 0, 0, 0)
        if os.getppid() != helper:
            os.kill(os.getpid(), shim.ORPHANED)  # blocked, so it waits until it is asked for
        shim.run(supervisor)


def _detach(control: int) -> int:
    """Let go of everything inherited: descriptors, terminal, signal dispositions, folder. The umask stays the
    user's.
    """
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)  # agents would inherit what nohup and `&` leave ignored
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the shims
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    os.setsid()
    os.chdir("/")
    keep = fcntl.fcntl(control, fcntl.F_DUPFD_CLOEXEC, 3)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor != keep:
            with contextlib.suppress(OSError):  # the listing's own descriptor is closed already
                os.close(descriptor)
    _name("loopd-nursery")
    _become_subreaper()  # an orphan whose shim was killed stays below the supervisor; its zombie is reaped
    procfs.boot_id()  # read once for all shims
    gc.disable()
    gc.freeze()
    return keep


def _name(name: str) -> None:
    _libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def _become_subreaper() -> None:
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _close(pid: int, control: socket.socket) -> None:
    control.close()
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return
