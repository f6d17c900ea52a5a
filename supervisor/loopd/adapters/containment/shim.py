"""The shim of one container: forked, never executed, so that it costs a fork and not an interpreter.

It outlives the supervisor. It claims the folder, starts the main process, records how that leaves, and is the
parent of every orphan until it is dismissed. Part of the lean half.

Order matters twice. `started` is written before the main process is let go, so a claim without `started` and
with a dead shim means that nothing ran. And nothing is reaped while it can be avoided: the zombie of the main
process pins its pid, and the zombies of orphans betray the process groups of programs that keep moving.
"""

import json
import os
import re
import resource
import select
import signal
import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from loopd.adapters.containment import procfs, records

DISMISS = signal.SIGUSR1  # from the supervisor: everything is empty, reap and leave
LENGTH = struct.Struct("!Q")

_MANY_ZOMBIES = 256
_KEPT_ZOMBIES = 32
_TRIM_PAUSE_S = 1.0
_EXEC_POLL_S = 0.001


class _Pipes(NamedTuple):
    """What connects shim and main process until its program runs."""

    go: tuple[int, int]  # a byte lets the main process go; the end of file (a dead shim) stops it
    fault: tuple[int, int]  # closed by a successful exec, else tells what went wrong
    status: tuple[int, int] | None  # bubblewrap's --json-status-fd


def run(channel: int) -> NoReturn:
    """Be the shim of the container described on `channel`, a connected stream socket. Every signal is blocked
    already.
    """
    try:
        os.setsid()
        request = receive(channel)
        if request is not None:  # None: the supervisor died while asking, nothing has happened
            _contain(channel, request)
    except BaseException as error:
        _reply(
            channel,
            {"error": {"stage": "shim", "errno": getattr(error, "errno", None), "detail": repr(error)}},
        )
    finally:
        os._exit(1)


def receive(channel: int) -> dict[str, Any] | None:
    """One message: eight bytes of length, then JSON. None when the other side closed before it was whole."""
    head = _exactly(channel, LENGTH.size)
    body = _exactly(channel, LENGTH.unpack(head)[0]) if head is not None else None
    message = json.loads(body) if body is not None else None
    return message if isinstance(message, dict) else None


def frame(message: dict[str, Any]) -> bytes:
    """The bytes `receive` reads back."""
    body = json.dumps(message).encode()
    return LENGTH.pack(len(body)) + body


def _contain(channel: int, request: dict[str, Any]) -> None:
    folder = request["folder"]
    me = procfs.read_process(os.getpid())
    assert me is not None
    claim = {
        "by": "shim",
        "pid": me.pid,
        "start": me.start,
        "boot_id": procfs.boot_id(),
        "cgroup": request["cgroup"],
    }
    if not records.take_claim(folder, claim):
        _reply(channel, {"error": {"stage": "claim"}})
        return
    launched = _launch(request, me.identity, claim["boot_id"])
    _reply(channel, launched)
    os.close(channel)
    if started := launched.get("started"):
        _stay(folder, started["main"][0], started["at_s"])


def _launch(request: dict[str, Any], me: procfs.Identity, boot: str) -> dict[str, Any]:
    """Start the main process: `{"started": record}` or, with everything undone, `{"error": fault}`."""
    folder, sandboxed = request["folder"], request["bubblewrap"]
    _make_cgroup(request)
    pipes = _Pipes(os.pipe(), os.pipe(), os.pipe() if sandboxed else None)
    at_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    main = os.fork()
    if main == 0:
        _become(request, pipes)
    process = procfs.read_process(main)
    assert process is not None  # it waits for `go`, and only this shim can reap it
    for end in (pipes.go[0], pipes.fault[1], *(pipes.status or ())[1:]):
        os.close(end)
    record = {**request["record"], "boot_id": boot, "shim": me, "main": process.identity, "at_s": at_s}
    records.write_record(folder, records.STARTED, record)
    os.write(pipes.go[1], b"g")
    os.close(pipes.go[1])
    fault = _fault(pipes.fault[0])
    if fault is None and pipes.status is not None:
        fault = _settle(main, pipes.status[0], record)
        records.write_record(folder, records.STARTED, record)
    if fault is not None:
        _undo(request, main)
        return {"error": fault}
    return {"started": record}


def _become(request: dict[str, Any], pipes: _Pipes) -> NoReturn:
    """In the child: turn into the main process, or tell on the fault pipe which step failed."""
    stage = "go"
    try:
        os.close(pipes.go[1])
        if not os.read(pipes.go[0], 1):
            os._exit(1)
        os.setsid()
        for stage in ("cgroup", "limits", "stdin", "stdout", "stderr", "cwd"):
            _STEPS[stage](request)
        stage = "exec"
        _execute(request, pipes.status)
    except BaseException as error:
        fault = {"stage": stage, "errno": getattr(error, "errno", None), "detail": str(error)}
        os.write(pipes.fault[1], json.dumps(fault).encode())
    finally:
        os._exit(127)


def _make_cgroup(request: dict[str, Any]) -> None:
    if request["cgroup"]:
        os.mkdir(request["cgroup"])
        for name, value in request["cgroup_files"].items():
            _put(os.path.join(request["cgroup"], name), value.encode())


def _enter_cgroup(request: dict[str, Any]) -> None:
    if request["cgroup"]:
        _put(os.path.join(request["cgroup"], "cgroup.procs"), b"0")


def _limit(request: dict[str, Any]) -> None:
    if request["data_bytes"]:
        resource.setrlimit(resource.RLIMIT_DATA, (request["data_bytes"], request["data_bytes"]))


def _attach(path: str, flags: int, target: int) -> None:
    descriptor = os.open(path, flags, 0o600)
    os.dup2(descriptor, target)  # 0, 1 and 2 are never free here: the helper holds them on /dev/null
    os.close(descriptor)


_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_STEPS: dict[str, Callable[[dict[str, Any]], None]] = {
    "cgroup": _enter_cgroup,
    "limits": _limit,
    "stdin": lambda request: _attach(request["stdin"], os.O_RDONLY, 0),
    "stdout": lambda request: _attach(request["record"]["stdout"], _APPEND, 1),
    "stderr": lambda request: _attach(request["record"]["stderr"], _APPEND, 2),
    "cwd": lambda request: os.chdir(request["cwd"]),
}


def _execute(request: dict[str, Any], status: tuple[int, int] | None) -> NoReturn:
    argv = request["argv"]
    if status is not None:
        os.set_inheritable(status[1], True)
        argv = [argv[0], "--json-status-fd", str(status[1]), *argv[1:]]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execvpe(argv[0], argv, request["env"])


def _fault(pipe: int) -> dict[str, Any] | None:
    text = _until_end(pipe)
    return dict(json.loads(text)) if text else None


def _settle(main: int, status: int, record: dict[str, Any]) -> dict[str, Any] | None:
    """Wait until bubblewrap runs the agent; puts `init` and `agent` into `record`. Returns a fault when it
    cannot.
    """
    record["init"] = record["agent"] = None
    told = b""
    while b"}" not in told and (chunk := os.read(status, 4096)):
        told += chunk
    if found := re.search(rb'"child-pid":\s*(\d+)', told):
        init = procfs.read_process(int(found[1]))
        record["init"] = init.identity if init else None
        record["agent"] = _executed_child(init.pid, main) if init else None
        if record["agent"]:
            return None  # `status` stays open: bubblewrap would die of SIGPIPE when it reports the exit
    told += _until_end(status)  # main has left, which closed its end
    if b"exit-code" in told:  # only written when the exec succeeded: the agent has come and gone
        return None
    return {"stage": "sandbox", "errno": None, "detail": ""}


def _executed_child(init: int, main: int) -> procfs.Identity | None:
    """The agent, as soon as its exec succeeded; None when bubblewrap has left before that was seen."""
    gone = os.pidfd_open(main)
    try:
        while True:
            for pid in _children(init):
                child = procfs.read_process(pid)
                if child is not None and child.alive and child.has_exec:
                    return child.identity
            if select.select([gone], [], [], _EXEC_POLL_S)[0]:
                return None
    finally:
        os.close(gone)


def _undo(request: dict[str, Any], main: int) -> None:
    """Leave no container behind: neither process nor record nor cgroup."""
    for child in _children(os.getpid()):
        if child != main:  # what a failed bubblewrap may have left; main itself is on its way out
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    os.waitpid(main, 0)
    if request["cgroup"]:
        os.rmdir(request["cgroup"])
    records.withdraw(request["folder"])


def _stay(folder: str, main: int, at_s: float) -> None:
    """Record how the main process leaves, then hold its orphans until dismissed; asleep otherwise."""
    gone = os.pidfd_open(main)
    recorded = False
    while signal.sigwait({signal.SIGCHLD, DISMISS}) != DISMISS:
        if not recorded and (left := os.waitid(os.P_PID, main, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
            records.write_record(folder, records.EXIT, _exit_record(left, at_s))
            recorded = True
            continue
        _trim(main)
        if not recorded:
            select.select([gone], [], [], _TRIM_PAUSE_S)
        elif signal.sigtimedwait({DISMISS}, _TRIM_PAUSE_S):
            break
    _reap_all()
    os._exit(0)


def _exit_record(left: os.waitid_result, at_s: float) -> dict[str, Any]:
    by_signal = left.si_code != os.CLD_EXITED
    return {
        "status": None if by_signal else left.si_status,
        "signal": signal_name(left.si_status) if by_signal else None,
        "duration_s": time.clock_gettime(time.CLOCK_BOOTTIME) - at_s,
    }


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; real-time signals have a number only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _trim(main: int) -> None:
    """Keep a restless program from filling the process table with zombies; the newest ones still betray its
    groups.
    """
    children = _children(os.getpid())
    if len(children) <= _MANY_ZOMBIES:
        return
    zombies = [p for pid in children if pid != main and (p := procfs.read_process(pid)) and not p.alive]
    for zombie in sorted(zombies, key=lambda process: process.start)[:-_KEPT_ZOMBIES]:
        os.waitpid(zombie.pid, os.WNOHANG)


def _children(pid: int) -> list[int]:
    children = procfs.children_of(pid)
    if children is not None:
        return children
    return [process.pid for process in procfs.process_table().values() if process.parent == pid]


def _reap_all() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _reply(channel: int, message: dict[str, Any]) -> None:
    try:
        view = memoryview(frame(message))
        while view:
            view = view[os.write(channel, view) :]
    except OSError:
        return  # the supervisor is gone; the next one adopts


def _exactly(channel: int, size: int) -> bytes | None:
    parts = []
    while size:
        part = os.read(channel, min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _until_end(pipe: int) -> bytes:
    parts = []
    while part := os.read(pipe, 4096):
        parts.append(part)
    os.close(pipe)
    return b"".join(parts)


def _put(path: str, text: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text)
    finally:
        os.close(descriptor)
