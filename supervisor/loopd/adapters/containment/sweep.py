"""Emptying a container: find everything that belongs to it, kill it, and see that nothing is left.

killpg or a walk of parents alone reaches no hostile tree: agents start every tool in a session of its own,
and a program that forks and exits every 2 ms is gone before its pid is used. What works together: the cgroup
or the namespace where there is one; below the shim, killing whole process groups, those of zombies included,
as kill(-pgid) is atomic and a mover cannot slip through it; and the marker, for what was started on the
container's behalf elsewhere or has lost its shim.
"""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress

import anyio
from msgspec import Struct, field

from loopd.adapters.containment import cgroup, procfs
from loopd.adapters.containment.launched import Launched
from loopd.adapters.containment.procfs import Identity, Process
from loopd.domain.attempt import Ended

MARKER = "LOOPD_MARKER"

_MOST_NAMED = 100  # a program that keeps moving would fill the ledger otherwise
_MOVER = "(a process that kept moving)"
_EAGER_LOOKS = 50
_PAUSE_S = 0.01
_CALM = 2
_CALM_WITHOUT_SHIM = 20  # zombies are gone at once then, and a mover may be missed by any single look


class _Sweep(Struct):
    """What one sweep has learned so far."""

    held: Launched
    ended: dict[Identity, Ended] = field(default_factory=dict)
    seen: frozenset[Identity] = frozenset()
    looks: int = 0
    calm: int = 0  # looks running that found nothing


async def clear(held: Launched, within_s: float) -> tuple[tuple[Ended, ...], tuple[Ended, ...]]:
    """Kill until it is certain that nothing is left; at most for `within_s` seconds.

    Returns the strays that had to be killed, their command lines read before, and those that are still alive.
    """
    sweep = _Sweep(held)
    deadline = anyio.current_time() + within_s
    while sweep.calm < (_CALM if procfs.is_alive(held.shim) else _CALM_WITHOUT_SHIM):
        alive = _strike(sweep)
        if sweep.calm == 0 and anyio.current_time() > deadline:
            survivors = {process.identity: _named(process) for process in alive}
            ended = tuple(e for i, e in sweep.ended.items() if i not in survivors)
            return ended, tuple(survivors.values()) or (Ended(0, _MOVER),)
        await anyio.sleep(_PAUSE_S if sweep.looks > _EAGER_LOOKS else 0)
    return tuple(sweep.ended.values()), ()


def belonging(held: Launched, *, by_marker: bool = False, brief: bool = True) -> list[Process]:
    """Every process of the container, zombies and bubblewrap's own included, the shim not.

    With `by_marker` also those that are no descendants; without a live shim they are looked for in any case.
    `brief`: empty at once when nothing below the shim is alive, without a walk over all processes.
    """
    sheltered = procfs.is_alive(held.shim)
    roots = _read(cgroup.members(held.cgroup) if held.cgroup else ())
    if by_marker or not sheltered:
        roots |= _read(procfs.marked(MARKER, held.marker, _elders(held)))
    if brief and sheltered and not roots and _only_zombies(held.shim.pid):
        return []
    if not sheltered:
        roots |= _orphans(held)
    table = procfs.process_table()
    known = {i for i in (held.main, held.init, held.agent) if i is not None}
    roots |= {identity.pid: table[identity.pid] for identity in known if _is_in(table, identity)}
    below = procfs.descendants([*roots, *([held.shim.pid] if sheltered else [])], table)
    return list((roots | {process.pid: process for process in below}).values())


def used_ticks(held: Launched) -> int:
    """CPU time of the tree in clock ticks: of the living, the dead, and the dead already reaped."""
    table = procfs.process_table()
    if not _is_in(table, held.shim):
        return sum(process.ticks for process in belonging(held))
    below = procfs.descendants([held.shim.pid], table)
    return table[held.shim.pid].ticks + sum(process.ticks for process in below)


def _strike(sweep: _Sweep) -> list[Process]:
    """One look and one blow; returns what was seen alive.

    The blow falls on the groups of zombies even when nobody was seen alive: a mover leaves its zombies in the
    look and is itself a step ahead. A look counts as calm only when it found no new zombie either.
    """
    held = sweep.held
    tree = belonging(held, by_marker=sweep.calm == 0, brief=not sweep.seen)
    if _hides_its_strays(held, tree):
        tree = belonging(held, by_marker=True, brief=False)  # a parent that left during the look hid its children
    alive = [process for process in tree if process.alive]
    seen = frozenset(process.identity for process in tree)
    for process in tree:
        lived = process.alive or (sweep.looks and process.identity not in sweep.seen)
        if lived and _is_stray(held, process) and len(sweep.ended) < _MOST_NAMED:
            sweep.ended.setdefault(process.identity, _named(process))
    if _keeps_its_namespace(held, alive) and not sweep.ended and held.init:
        sweep.ended[held.init] = Ended(held.init.pid, _MOVER)
    sweep.calm = 0 if alive or not seen <= sweep.seen else sweep.calm + 1
    sweep.looks += 1
    sweep.seen |= seen
    if tree and held.cgroup:
        cgroup.kill(held.cgroup)
    if tree and held.init:
        procfs.send_signal(held.init, signal.SIGKILL)  # takes the whole namespace along
    for group in {process.group for process in tree} - {0, 1, os.getpgrp(), held.shim.pid}:
        with suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    for process in alive:
        procfs.send_signal(process.identity, signal.SIGKILL)
    return alive


def _keeps_its_namespace(held: Launched, alive: list[Process]) -> bool:
    """True when pid 1 of the namespace outlived the program: bubblewrap's leaves once it has no children."""
    identities = {process.identity for process in alive}
    return held.init in identities and held.main not in identities


def _elders(held: Launched) -> frozenset[int]:
    """Whom to leave out of a look at all environments: nearly everybody, while the container is young.

    Reading the environment of every process of a busy machine took half of a short attempt's processor time.
    """
    return held.elders if time.clock_gettime(time.CLOCK_BOOTTIME) < held.elders_until_s else frozenset()


def _hides_its_strays(held: Launched, tree: list[Process]) -> bool:
    alive = [process for process in tree if process.alive]
    return _keeps_its_namespace(held, alive) and not any(_is_stray(held, process) for process in alive)


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


def _read(found: Iterable[int]) -> dict[int, Process]:
    """Each process as it is in the moment it is found: a mover is gone a moment later, but its group is
    known.
    """
    return {pid: process for pid in found if (process := procfs.read_process(pid)) is not None}


def _orphans(held: Launched) -> dict[int, Process]:
    """Processes that a killed shim has left to the spawning helper and that bear no other container's marker.

    Shims and the helper share one command line, as none of them has executed anything.
    """
    helper = held.helper
    if helper is None or not procfs.is_alive(helper):
        return {}
    own = procfs.command_line(helper.pid)
    found = _read(procfs.children_of(helper.pid) or ())
    strange = {pid: process for pid, process in found.items() if procfs.command_line(pid) != own}
    return {pid: p for pid, p in strange.items() if procfs.variable(pid, MARKER) in (None, held.marker)}


def _is_in(table: dict[int, Process], identity: Identity) -> bool:
    return identity.pid in table and table[identity.pid].start == identity.start


def _is_stray(held: Launched, process: Process) -> bool:
    return process.identity not in held.scaffold and process.identity not in (held.main, held.agent)


def _named(process: Process) -> Ended:
    return Ended(process.pid, procfs.command_line(process.pid))
