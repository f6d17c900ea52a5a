"""A sliding-window rate limiter."""

from collections import deque


class Limiter:
    """Allows `calls` calls in any `window_s` seconds. The caller's clock is used, so it never sleeps."""

    def __init__(self, calls, window_s):
        self._calls, self._window_s = calls, window_s
        self._hits = deque()

    def allow(self, now):
        """Whether a call at `now` (seconds, never going back) is allowed; it counts if so."""
        while self._hits and self._hits[0] < now - self._window_s:
            self._hits.popleft()
        if len(self._hits) >= self._calls:
            return False
        self._hits.append(now)
        return True
