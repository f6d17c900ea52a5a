"""Time, as an argument."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Durations run on `elapsed`; `now` is for people and for records."""

    def elapsed(self) -> float:
        """Seconds on a monotonic, suspend-aware hand; only differences mean anything."""
        ...

    def now(self) -> datetime:
        """The present instant, in UTC, zone-aware."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after at least `seconds`; cancellable."""
        ...
