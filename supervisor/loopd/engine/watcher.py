"""When an attempt is over: the first of exit, final event plus grace, idle, hard time, budget, operator."""

from collections.abc import Sequence

from msgspec import Struct

from loopd.domain.attempt import Outcome, Usage
from loopd.domain.budget import overrun
from loopd.domain.record import Current
from loopd.engine.owner import stop_asked
from loopd.engine.run import Run
from loopd.engine.together import first_of
from loopd.ports.agent import Final, Reader, Usages
from loopd.ports.output import Lines
from loopd.ports.processes import Activity, Container

QUIET_CPU_SHARE = 0.01  # of the time looked at: less processor time than this is silence (timers of an idle runtime)
CALM_AFTER_S = 2.0  # without a byte
CALM_PAUSE_S = 1.0  # between two looks then
PAUSE_S = 5.0  # a longer gap between two looks means that this machine was suspended


class Over(Struct, frozen=True):
    """Why an attempt is over, before its tree is ended."""

    outcome: Outcome | None  # None: the process left by itself
    reason: str = ""


class Output:
    """What an attempt has said so far: usage, final event, and how much."""

    def __init__(self, reader: Reader, files: Sequence[Lines]) -> None:
        self._reader, self._files = reader, files
        self.seen: Usage | None = None
        self.final = False

    def read(self) -> bool:
        """Take in new lines; whether there were any."""
        if not self._reader.listens:
            return any(file.grew() for file in self._files)
        moved = False
        for file in self._files:
            while lines := file.read():
                moved = True
                for line in lines:
                    self._take(line)
        return moved

    def total(self) -> Usage | None:
        """Usage after the end: what the agent reported in the way the contract names, else what was seen."""
        self.read()
        for file in self._files if self._reader.listens else ():
            if last := file.finish():
                self._take(last)
        return self._reader.usage() or self.seen

    def _take(self, line: bytes) -> None:
        for event in self._reader.feed(line):
            if isinstance(event, Usages):
                self.seen = event.usage
            elif isinstance(event, Final):
                self.final = True


class Idleness:
    """Three signals of life. Silence is dear to prove: processor time is looked at seldom, the workspace last."""

    def __init__(self, run: Run, container: Container, before: str) -> None:
        self._run, self._container, self._tree = run, container, before
        self._alive = self._looked = run.ports.clock.elapsed()
        self._last: Activity | None = None
        self._limit = run.record.allowance.attempt_idle_s

    def alive(self, now: float) -> None:
        """Something moved."""
        self._alive = self._looked = now

    def pardon(self, gap_s: float) -> None:
        """Time in which this machine was suspended is not silence."""
        self._alive += gap_s

    async def over(self, now: float) -> Over | None:
        """An ending when all three have been silent for the limit."""
        if self._limit is None or now - self._looked < min(self._run.timers.look_s, self._limit / 4):
            return None
        if self._worked(now) or now - self._alive < self._limit or await self._changed(now):
            return None
        return Over(Outcome.IDLE, f"no output, no processor time and no change for {self._limit:.0f} s")

    def _worked(self, now: float) -> bool:
        span, self._looked = now - self._looked, now
        last, self._last = self._last, self._container.activity()
        if last is None or self._last.cpu_s - last.cpu_s <= QUIET_CPU_SHARE * span:
            return False
        self._alive = now
        return True

    async def _changed(self, now: float) -> bool:
        known, self._tree = self._tree, (await self._run.ports.workspace.snapshot()).tree
        if known == self._tree:
            return False
        self._alive = now
        return True


class Watcher:
    """Watches one container until the first ending."""

    def __init__(self, run: Run, container: Container, output: Output, current: Current, age_s: float) -> None:
        self._run, self._container, self._output, self._current = run, container, output, current
        self._clock = run.ports.clock
        self._began = self._clock.elapsed() - age_s
        self._last_look = self._clock.elapsed()
        self._idleness = Idleness(run, container, current.before)
        self._final_at: float | None = None
        self._heard_s = self._last_look
        self._pause = run.timers.tick_s

    async def until_over(self) -> Over:
        """Return at the first ending; the container may still be running then."""
        return await first_of(self._exited, self._ran_out)

    async def _exited(self) -> Over:
        await self._container.wait()
        return Over(None)

    async def _ran_out(self) -> Over:
        over = None
        while over is None:  # the first look comes after a tick: who left before it was adopted has simply left
            self._pause = self._pause_s()
            await self._clock.sleep(self._pause)
            over = await self._look()
        return over

    def _pause_s(self) -> float:
        """A silent agent is looked at less often: exits come by themselves, and no limit is looked at too late."""
        timers, idle_s, now = self._run.timers, self._run.record.allowance.attempt_idle_s, self._clock.elapsed()
        if now - self._heard_s < CALM_AFTER_S or self._output.final:
            return timers.tick_s
        calm_s = CALM_PAUSE_S if idle_s is None else min(CALM_PAUSE_S, idle_s / 8)
        return max(timers.tick_s, min(calm_s, self._began + self._current.reserve.time_s - now))

    async def _look(self) -> Over | None:
        now = self._clock.elapsed()
        gap, self._last_look = now - self._last_look, now
        if gap > self._pause + PAUSE_S:
            self._idleness.pardon(gap)
            self._run.note("host.paused", durable=False, seconds=round(gap, 1))
        if self._output.read():
            self._heard_s = now
            self._idleness.alive(now)
        limits = self._owner() or self._room() or self._money() or self._grace(now) or self._hard_time(now)
        return limits or await self._idleness.over(now)

    def _owner(self) -> Over | None:
        return Over(Outcome.INTERRUPTED, "stopped by its owner") if stop_asked(self._run) else None

    def _room(self) -> Over | None:
        low = self._run.disk_low()
        return Over(Outcome.INTERRUPTED, low) if low else None

    def _money(self) -> Over | None:
        record = self._run.record
        if self._output.seen is None:
            return None
        reached = overrun(record.allowance, record.spent, self._output.seen)
        return Over(Outcome.OVER_BUDGET, reached) if reached else None

    def _grace(self, now: float) -> Over | None:
        if not self._output.final:
            return None
        self._final_at = self._final_at if self._final_at is not None else now
        if now - self._final_at < self._run.timers.final_grace_s:
            return None
        return Over(Outcome.FINISHED, "finished, did not exit")

    def _hard_time(self, now: float) -> Over | None:
        limit = self._current.reserve.time_s
        return Over(Outcome.TIMED_OUT, f"ended after {limit:.0f} s") if now - self._began >= limit else None
