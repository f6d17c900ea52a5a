"""The Retry-After header (RFC 9110, section 10.2.3): a number of seconds, or an HTTP date."""

from datetime import datetime
from email.utils import parsedate_to_datetime


def retry_after_s(value: str, now: datetime) -> float:
    """Seconds to wait, never negative. `now` is zone-aware; an unreadable header means 0."""
    try:
        return float(value)
    except ValueError:
        return (parsedate_to_datetime(value) - now).total_seconds()
