"""Run one command and print what its whole process tree used, as JSON. Usage: meter.py CGROUP|- LOG COMMAND…

Two ways to see a tree. With a cgroup (cgroup2, a folder made by the caller): `cpu.stat` counts every process in it,
those in PID namespaces and those that nobody waited for too. Without: this program is the subreaper and waits for
every orphan, so all that were waited for are in its `RUSAGE_CHILDREN`; a tree inside a PID namespace is not.
"""

import ctypes
import json
import os
import resource
import sys
import threading
import time

PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Run, wait for everything, tell."""
    group, log, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = cgroup_cpu_s(group)
    began = time.monotonic()
    pid = start(command, log, group)
    peak = Peak(pid)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    wall_s = time.monotonic() - began
    _, status = os.waitpid(pid, 0)
    left = wait_for_orphans()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = usage.ru_utime + usage.ru_stime if group == "-" else cgroup_cpu_s(group) - before
    result = {
        "status": os.waitstatus_to_exitcode(status),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "rss_mb": peak.mb,
        "left": left,
    }
    print(json.dumps(result))


def start(command: list[str], log: str, group: str) -> int:
    """The pid of the command; stdin is empty, stdout and stderr go to the log."""
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    if group == "-":
        return os.posix_spawnp(command[0], command, os.environ, file_actions=files)
    # A process can only move itself before the program begins, so the fork joins first and becomes the program then.
    pid = os.fork()
    if pid == 0:
        try:
            with open(f"{group}/cgroup.procs", "w") as file:
                file.write(str(os.getpid()))
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.execvp(command[0], command)
        finally:
            os._exit(127)
    return pid


class Peak:
    """VmHWM of one process, looked at 50 times a second: it is gone with its memory at the exit."""

    def __init__(self, pid: int) -> None:
        self.mb = 0.0
        self._path = f"/proc/{pid}/status"
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            try:
                with open(self._path) as file:
                    found = [int(line.split()[1]) for line in file if line.startswith("VmHWM")]
            except OSError:
                return
            if not found:
                return
            self.mb = found[0] / 1024  # the last one: the first may be of the fork, before it became the program
            time.sleep(0.02)


def wait_for_orphans() -> int:
    """Wait until no descendant is left, at most 5 s; how many had to be killed."""
    deadline, killed = time.monotonic() + 5, 0
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return killed
        if pid == 0:
            if time.monotonic() > deadline:
                killed += kill_children()
            time.sleep(0.005)


def kill_children() -> int:
    """Kill what this program has inherited."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        pids = [int(pid) for pid in file.read().split()]
    for pid in pids:
        os.kill(pid, 9)
    return len(pids)


def cgroup_cpu_s(group: str) -> float:
    """Seconds of CPU that the cgroup used so far."""
    if group == "-":
        return 0.0
    with open(f"{group}/cpu.stat") as file:
        return int(file.readline().split()[1]) / 1e6


main()
