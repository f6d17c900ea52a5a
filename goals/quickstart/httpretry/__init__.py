"""How long an HTTP client should wait before it asks again."""

from httpretry.backoff import backoff_s
from httpretry.header import retry_after_s

__all__ = ["backoff_s", "retry_after_s"]
