"""Emptying a container: find everything that belongs to it, kill it, and see that nothing is left.

killpg or a walk of parents alone reaches no hostile tree: agents start every tool in a session of its own,
and a program that forks and exits every 2 ms is gone before its pid is used. What works together: the cgroup
or the namespace where there is one; below the shim, killing whole process groups, those of zombies included,
as kill(-pgid) is atomic and a mover cannot slip through it; and the marker, for what was started on the
container's behalf elsewhere or has lost its shim.
"""

import os
import signal
from contextlib import suppress

import anyio

from loopd.adapters.containment import cgroup, procfs
from loopd.adapters.containment.launched import Launched
from loopd.adapters.containment.procfs import Identity, Process
from loopd.domain.attempt import Ended

MARKER = "LOOPD_MARKER"

_MOST_NAMED = 100  # a program that keeps moving would fill the ledger otherwise
_EAGER_PASSES = 50
_PAUSE_S = 0.01


async def clear(held: Launched, within_s: float) -> tuple[tuple[Ended, ...], tuple[Ended, ...]]:
    """Kill until two looks running find nothing; at most for `within_s` seconds.

    Returns the strays that had to be killed, their command lines read before, and those that are still alive.
    """
    ended: dict[Identity, Ended] = {}
    deadline = anyio.current_time() + within_s
    passes = quiet = 0
    while quiet < 2:
        alive = _strike(held, ended, by_marker=quiet == 0)
        if alive and anyio.current_time() > deadline:
            survivors = {process.identity: _named(process) for process in alive}
            return tuple(e for i, e in ended.items() if i not in survivors), tuple(survivors.values())
        quiet = 0 if alive else quiet + 1
        passes += 1
        await anyio.sleep(_PAUSE_S if alive and passes > _EAGER_PASSES else 0)
    return tuple(ended.values()), ()


def belonging(held: Launched, *, by_marker: bool = False) -> list[Process]:
    """Every process of the container, zombies and bubblewrap's own included, the shim not.

    With `by_marker` also those that are no descendants; without a live shim they are looked for in any case.
    """
    sheltered = procfs.is_alive(held.shim)
    roots = set(cgroup.members(held.cgroup) if held.cgroup else ())
    if by_marker or not sheltered:
        roots.update(procfs.marked(MARKER, held.marker))
    if sheltered and not roots and _only_zombies(held.shim.pid):
        return []
    table = procfs.process_table()
    known = {i for i in (held.main, held.init, held.agent) if i is not None}
    roots = {pid for pid in roots if pid in table} | {i.pid for i in known if _is_in(table, i)}
    below = procfs.descendants([*roots, *([held.shim.pid] if sheltered else [])], table)
    return list({process.pid: process for process in [*(table[pid] for pid in roots), *below]}.values())


def used_ticks(held: Launched) -> int:
    """CPU time of the tree in clock ticks: of the living, the dead, and the dead already reaped."""
    table = procfs.process_table()
    if not _is_in(table, held.shim):
        return sum(process.ticks for process in belonging(held))
    below = procfs.descendants([held.shim.pid], table)
    return table[held.shim.pid].ticks + sum(process.ticks for process in below)


def _strike(held: Launched, ended: dict[Identity, Ended], *, by_marker: bool) -> list[Process]:
    """One look and one blow; returns what was alive."""
    tree = belonging(held, by_marker=by_marker)
    alive = [process for process in tree if process.alive]
    if not alive:
        return []
    for process in alive:
        if _is_stray(held, process) and process.identity not in ended and len(ended) < _MOST_NAMED:
            ended[process.identity] = _named(process)
    if held.cgroup:
        cgroup.kill(held.cgroup)
    if held.init:
        procfs.send_signal(held.init, signal.SIGKILL)  # takes the whole namespace along
    for group in {process.group for process in tree} - {0, 1, os.getpgrp(), held.shim.pid}:
        with suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    for process in alive:
        procfs.send_signal(process.identity, signal.SIGKILL)
    return alive


def _only_zombies(shim: int) -> bool:
    """True when nothing below the shim can run any more: then there is no need to walk over every process.

    Whoever dies hands its children to the shim in the same instant. So when all its children are zombies, and
    a second look at the list finds no new one, nothing was alive at that look, and only the living fork.
    """
    children = procfs.children_of(shim)
    if children is None:
        return False
    processes = [procfs.read_process(pid) for pid in children]
    return not any(p is None or p.alive for p in processes) and procfs.children_of(shim) == children


def _is_in(table: dict[int, Process], identity: Identity) -> bool:
    return identity.pid in table and table[identity.pid].start == identity.start


def _is_stray(held: Launched, process: Process) -> bool:
    return process.identity not in held.scaffold and process.identity not in (held.main, held.agent)


def _named(process: Process) -> Ended:
    return Ended(process.pid, procfs.command_line(process.pid))
