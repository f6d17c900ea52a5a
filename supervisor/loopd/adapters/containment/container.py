"""One process tree: waiting for it, looking at it, ending it."""

import os
import signal
from typing import Any, Protocol

import anyio

from loopd.adapters.containment import cgroup, procfs, records, sweep
from loopd.adapters.containment.launched import Launched
from loopd.adapters.containment.procfs import Identity
from loopd.adapters.containment.shim import DISMISS, signal_name
from loopd.domain.attempt import Exit
from loopd.ports.processes import Activity, Cleared, Containment, Grace

_RECORD_S = 10.0  # for a shim on a busy machine to write `exit` after the main process has left
_DISMISS_S = 1.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# bubblewrap reports a death by signal as 128 + n. These n are taken for signals; not 1: git exits with 129.
_TOLD_AS_STATUS = frozenset({2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 14, 15, 24, 25, 31})


class Lease(Protocol):
    """The supervisor's line to a shim, and with it the right to use that shim again."""

    async def give_back(self) -> bool:
        """Call once the shim is dismissed; False when it is of no further use."""
        ...


class OwnedContainer:
    """A tree below a shim; implements the port `Container`, for started and adopted ones alike."""

    def __init__(self, held: Launched, lease: Lease | None = None, *, is_empty: bool = False) -> None:
        self._held = held
        self._lease = lease
        self._is_empty = is_empty  # proven by whoever started it; its shim may hold another container by now
        self._exit: Exit | None = None
        self._cleared: Cleared | None = None
        self._ending = anyio.Lock()

    @property
    def containment(self) -> Containment:
        """The means that hold it."""
        return self._held.containment

    async def wait(self) -> Exit:
        """Return when the main process has left, with how. Cancelling leaves everything running."""
        if self._exit is None:
            if self._this_boot and not self._is_empty:
                await _until_gone(self._held.main)
            self._exit = await self._recorded_exit()
        return self._exit

    def activity(self) -> Activity:
        """Measure now. CPU time never falls while the shim lives; output is what the two files hold."""
        alive = [p for p in sweep.belonging(self._held) if p.alive and p.identity not in self._held.scaffold]
        return Activity(output_bytes=self._output_bytes(), cpu_s=self._cpu_s(), processes=len(alive))

    async def end(self, grace: Grace) -> Cleared:
        """Make the container empty; see the port. Called again after survivors it tries again."""
        with anyio.CancelScope(shield=True):
            async with self._ending:
                cleared = self._cleared or await self._empty(grace)
                self._cleared = None if cleared.survivors else cleared
        return cleared

    @property
    def _this_boot(self) -> bool:
        return self._held.boot_id == procfs.boot_id()

    async def _empty(self, grace: Grace) -> Cleared:
        if self._is_empty or not self._this_boot:
            return Cleared(await self.wait())
        _wake(self._held.shim)
        signals = await self._persuade(grace)
        ended, survivors = await sweep.clear(self._held, grace.sweep_s)
        if survivors:
            return Cleared(self._exit or Exit(lost=True), ended, survivors, signals)
        left = await self.wait()
        await self._dismiss()
        if self._held.cgroup:
            await cgroup.remove(self._held.cgroup)
        return Cleared(left, ended, (), signals)

    async def _persuade(self, grace: Grace) -> tuple[str, ...]:
        """The steps before the kill; returns the signals sent, the kill included when it is still due."""
        sent: list[str] = []
        for name, patience_s in _ladder(grace):
            if not procfs.is_alive(self._held.main):
                return tuple(sent)
            if self._signal(signal.Signals[name]):
                sent.append(name)
            with anyio.move_on_after(patience_s):
                await _until_gone(self._held.main)
        return (*sent, "SIGKILL") if procfs.is_alive(self._held.main) else tuple(sent)

    async def _dismiss(self) -> None:
        """Tell the shim that all is empty: it reaps and is ready for another container; one that is not is killed."""
        shim, lease, self._lease = self._held.shim, self._lease, None
        self._is_empty = True
        if procfs.send_signal(shim, DISMISS) and lease is not None and await lease.give_back():
            return
        if lease is None:  # nobody's line: it leaves by itself
            await _gone_soon(shim)
        if procfs.send_signal(shim, signal.SIGKILL):
            await _gone_soon(shim)

    def _signal(self, number: signal.Signals) -> bool:
        """To the program's own group, as a terminal would; and a stopped program shall be able to answer."""
        program = self._held.program
        process = procfs.read_process(program.pid) if program else None
        if process is None or process.identity != program or not process.alive:
            return False
        try:
            os.killpg(process.group, number)
            os.killpg(process.group, signal.SIGCONT)
        except OSError:
            return False
        return True

    async def _recorded_exit(self) -> Exit:
        """What the shim wrote; it does so within milliseconds, or never because it was killed."""
        pause_s = 0.0005
        with anyio.move_on_after(_RECORD_S):
            while True:
                orphaned = not (self._this_boot and procfs.is_alive(self._held.shim))
                recorded = records.read(str(self._held.folder)) or {}
                if records.EXIT in recorded:
                    return _parse_exit(recorded[records.EXIT], self._held.bubblewrap)
                if orphaned:
                    break
                await anyio.sleep(pause_s)
                pause_s = min(2 * pause_s, 0.05)
        return Exit(lost=True)

    def _output_bytes(self) -> int:
        return sum(_size(path) for path in {self._held.stdout, self._held.stderr})

    def _cpu_s(self) -> float:
        used = cgroup.cpu_s(self._held.cgroup) if self._held.cgroup else None
        return sweep.used_ticks(self._held) / _TICKS_PER_S if used is None else used


def _ladder(grace: Grace) -> list[tuple[str, float]]:
    """Signal and patience of each step; none is repeated: a second one means "at once" to many."""
    if grace.first == "SIGKILL":
        return []
    if grace.first == "SIGTERM":
        return [("SIGTERM", grace.interrupt_s + grace.terminate_s)]
    return [(grace.first, grace.interrupt_s), ("SIGTERM", grace.terminate_s)]


def _wake(shim: Identity) -> None:
    """A stopped shim records nothing."""
    process = procfs.read_process(shim.pid)
    if process is not None and process.state in "Tt":
        procfs.send_signal(shim, signal.SIGCONT)


async def _until_gone(identity: Identity) -> None:
    """Wait on a pidfd, which works for processes that are not ours to reap; a zombie counts as gone."""
    descriptor = procfs.open_pidfd(identity)
    if descriptor is None:
        return
    try:
        await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)


async def _gone_soon(identity: Identity) -> None:
    with anyio.move_on_after(_DISMISS_S):
        await _until_gone(identity)


def _parse_exit(record: dict[str, Any], bubblewrap: bool) -> Exit:
    status: int | None = record.get("status")
    name: str | None = record.get("signal")
    if bubblewrap and status is not None and status - 128 in _TOLD_AS_STATUS:
        name, status = signal_name(status - 128), None
    return Exit(status=status, signal=name, duration_s=record.get("duration_s", 0.0))


def _size(path: os.PathLike[str]) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
