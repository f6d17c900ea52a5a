"""The machine's clocks."""

import time
from datetime import UTC, datetime

import anyio

# The kernel's timers stand still while the machine sleeps, CLOCK_BOOTTIME does not: a wait looks up this
# often, so that it is over within seconds of waking. Costs about 0.1 ms of CPU a look.
_LOOK_UP_S = 5.0


class SystemClock:
    """The clock port on `CLOCK_BOOTTIME`, which goes on during suspend."""

    def elapsed(self) -> float:
        """Seconds since the machine was booted, suspended time included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def now(self) -> datetime:
        """The present instant, in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Return when `elapsed` has moved on by `seconds`; for zero or less after one checkpoint."""
        until = self.elapsed() + seconds
        rest = max(seconds, 0.0)
        while True:
            await anyio.sleep(min(rest, _LOOK_UP_S))
            rest = until - self.elapsed()
            if rest <= 0:
                return
