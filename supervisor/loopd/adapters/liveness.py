"""Whether a process is still the one it was: pid, start time and boot, since a pid alone is no identity."""

from pathlib import Path

_PROC = Path("/proc")


def start_time(pid: int) -> int | None:
    """When `pid` started, in clock ticks since boot (field 22 of its stat); None when it is gone or a zombie."""
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    state, *fields = stat[stat.rindex(b")") + 1 :].split()  # the name before it may hold spaces and brackets
    return None if state in (b"Z", b"X") else int(fields[18])


def is_alive(pid: int, pid_start: int) -> bool:
    """Whether the very process that had this pid at that start time still runs, on this boot."""
    return pid > 0 and start_time(pid) == pid_start


def boot_id() -> str:
    """A name of this boot; start times of different boots must not be compared. Empty where there is none."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
