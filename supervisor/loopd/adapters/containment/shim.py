"""The shim of one container: forked, never executed, so that it costs a fork and not an interpreter (lean
half).

It outlives the supervisor. It claims the folder, starts the main process, records how that leaves, and is the
parent of every orphan until it is dismissed. Every signal is blocked in it.

Nothing is reaped while that can be avoided: the zombie of the main process pins its pid, and the zombies of
orphans betray the process groups of programs that keep moving.
"""

import contextlib
import os
import re
import resource
import select
import signal
import stat
import time
from typing import Any, NoReturn

from loopd.adapters.containment import channel, procfs, records

DISMISS = signal.SIGUSR1  # from the supervisor: everything is empty, reap and leave
ORPHANED = signal.SIGUSR2  # from the kernel: the helper, and so the supervisor, is gone

_MANY_ZOMBIES = 256
_KEPT_ZOMBIES = 32
_TRIM_PAUSE_S = 1.0
_EXEC_POLL_S = 0.001

Request = dict[str, Any]
Fault = dict[str, Any]


class LaunchError(Exception):
    """A step of the launch failed; nothing of it is left."""

    def __init__(self, stage: str, error: BaseException | None = None) -> None:
        super().__init__(stage)
        self.fault: Fault = {
            "stage": stage,
            "errno": getattr(error, "errno", None),
            "detail": str(error or ""),
        }


def run(supervisor: int) -> NoReturn:
    """Be the shim of the containers that are described on the socket `supervisor`, one after the other.

    A shim whose container was proven empty is as good as a new one, and costs no fork. Without a supervisor, or when
    a launch failed, it leaves.
    """
    try:
        os.setsid()
        while (request := channel.receive(supervisor)) is not None and _contain(supervisor, request):
            channel.send(supervisor, {"ready": True})
    except LaunchError as error:
        channel.send(supervisor, {"error": error.fault})
    except BaseException as error:
        channel.send(supervisor, {"error": LaunchError("shim", error).fault})
    finally:
        os._exit(1)


def _contain(supervisor: int, request: Request) -> bool:
    """Hold one container until it is dismissed; whether this shim can be used again."""
    folder, me = request["folder"], procfs.read_process(os.getpid())
    assert me is not None
    facts = {**request["record"], "boot_id": procfs.boot_id(), "shim": me.identity}
    if not records.take_claim(folder, {**facts, "by": "shim"}):
        raise LaunchError("claim")
    status = os.pipe() if request["bubblewrap"] else None
    try:
        at_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        record = {**facts, "at_s": at_s, **_launch(request, status)}
    except BaseException:
        _undo(request)
        raise
    records.add(folder, records.STARTED, record)
    channel.send(supervisor, {"started": record})
    dismissed = _stay(folder, record["main"][0], at_s)
    if status is not None:
        os.close(status[0])
    if dismissed:
        records.add(folder, records.CLEARED, {})  # this shim may hold another container from now on
    return dismissed and not request["data_bytes"]


def _launch(request: Request, status: tuple[int, int] | None) -> dict[str, procfs.Identity | None]:
    """Start the main process; returns who is who in it."""
    streams = _streams(request)
    _prepare(request)
    main = _spawn(request, streams, status)
    process = procfs.read_process(main)
    assert process is not None  # only this shim can reap it
    init, agent = _settle(main, status, _agent_number(request["program"])) if status else (None, None)
    return {"main": process.identity, "init": init, "agent": agent}


def _streams(request: Request) -> list[int]:
    """Open what becomes 0, 1 and 2."""
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    wanted = [
        ("stdin", request["stdin"], os.O_RDONLY),
        ("stdout", request["record"]["stdout"], append),
        ("stderr", request["record"]["stderr"], append),
    ]
    opened = []
    for stage, path, flags in wanted:
        try:
            opened.append(os.open(path, flags, 0o600))
        except OSError as error:
            raise LaunchError(stage, error) from error
    return opened


def _prepare(request: Request) -> None:
    """What the main process will inherit from the shim: the folder, the limits, the cgroup."""
    stage = "cwd"
    try:
        os.chdir(request["cwd"])
        stage = "limits"
        if request["data_bytes"]:
            resource.setrlimit(resource.RLIMIT_DATA, (request["data_bytes"], request["data_bytes"]))
        stage = "cgroup"
        if group := request["record"]["cgroup"]:
            os.mkdir(group)
            for name, value in request["cgroup_files"].items():
                _put(f"{group}/{name}", value)
            _put(f"{group}/cgroup.procs", "0")
    except (OSError, ValueError) as error:
        raise LaunchError(stage, error) from error


def _spawn(request: Request, streams: list[int], status: tuple[int, int] | None) -> int:
    """Start the program in a session of its own, with default signals; returns its pid once it has executed.

    posix_spawn shares the memory until then, which costs half of what a second fork would.
    """
    argv = request["argv"]
    if status is not None:
        os.set_inheritable(status[1], True)
        argv = [argv[0], "--json-status-fd", str(status[1]), *argv[1:]]
    actions = [(os.POSIX_SPAWN_DUP2, opened, target) for target, opened in enumerate(streams)]
    try:
        return os.posix_spawn(
            request["program"], argv, request["env"], file_actions=actions, setsid=True, setsigmask=()
        )
    except (OSError, ValueError) as error:
        raise LaunchError("exec", error) from error
    finally:
        os.chdir("/")
        if request["record"]["cgroup"]:
            _put(f"{request['own_cgroup']}/cgroup.procs", "0")
        for descriptor in [*streams, *(status or ())[1:]]:
            os.close(descriptor)


def _agent_number(bubblewrap: str) -> int:
    """The agent's pid in its namespace. Installed setuid, bubblewrap forks a helper of its own before the agent."""
    return 3 if os.stat(bubblewrap).st_mode & stat.S_ISUID else 2


def _settle(main: int, status: tuple[int, int], number: int) -> tuple[procfs.Identity | None, procfs.Identity | None]:
    """Wait until bubblewrap runs the agent; returns its pid 1 and the agent, as far as they were seen.

    The reading end stays open: bubblewrap would die of SIGPIPE when it reports the exit.
    """
    told = b""
    while b"}" not in told and (part := os.read(status[0], 4096)):
        told += part
    found = re.search(rb'"child-pid":\s*(\d+)', told)
    init = procfs.read_process(int(found[1])) if found else None
    if init is not None and (agent := _executed_child(init.pid, main, number)):
        return init.identity, agent
    while part := os.read(status[0], 4096):  # to its end: main has left
        told += part
    if b"exit-code" not in told:  # only written when the exec succeeded: the agent has come and gone
        raise LaunchError("sandbox")
    return init.identity if init else None, None


def _executed_child(init: int, main: int, number: int) -> procfs.Identity | None:
    """The agent, as soon as its exec succeeded; None when bubblewrap has left before that was seen.

    Only its number tells it from an orphan that it left to pid 1 of the namespace.
    """
    gone = os.pidfd_open(main)
    try:
        while True:
            for pid in _children(init):
                child = procfs.read_process(pid)
                if child is not None and child.alive and child.has_exec and procfs.pid_inside(pid) == number:
                    return child.identity
            if select.select([gone], [], [], _EXEC_POLL_S)[0]:
                return None
    finally:
        os.close(gone)


def _undo(request: Request) -> None:
    """Leave no container behind: neither process nor cgroup nor claim."""
    for child in _children(os.getpid()):  # what a failed bubblewrap has left
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if group := request["record"]["cgroup"]:
        with contextlib.suppress(OSError):
            os.rmdir(group)
    records.withdraw(request["folder"])


def _stay(folder: str, main: int, at_s: float) -> bool:
    """Record how the main process leaves, then hold its orphans; asleep otherwise. Whether it was dismissed.

    Without a supervisor nobody dismisses: then there is nothing to wait for once the last process has left.
    """
    gone = os.pidfd_open(main)
    recorded = orphaned = False
    try:
        while (told := signal.sigwait({signal.SIGCHLD, DISMISS, ORPHANED})) != DISMISS:
            orphaned = orphaned or told == ORPHANED
            if not recorded and (left := os.waitid(os.P_PID, main, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
                records.add(folder, records.EXIT, _exit_record(left, at_s))
                recorded = True
                if not orphaned:
                    continue
            if recorded and orphaned and not _any_alive():
                return False
            _trim(main)
            if not recorded:
                select.select([gone], [], [], _TRIM_PAUSE_S)
            elif signal.sigtimedwait({DISMISS}, _TRIM_PAUSE_S):
                break
        return True
    finally:
        os.close(gone)
        _reap_all()


def _any_alive() -> bool:
    children = (procfs.read_process(pid) for pid in _children(os.getpid()))
    return any(child is not None and child.alive for child in children)


def _exit_record(left: os.waitid_result, at_s: float) -> records.Record:
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
    """Keep a restless program from filling the process table; the newest zombies still betray its groups."""
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


def _put(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
