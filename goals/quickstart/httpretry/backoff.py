"""Exponential back-off with a cap."""


def backoff_s(attempt: int, base_s: float = 0.5, cap_s: float = 30.0) -> float:
    """Seconds to wait before retry number `attempt`, counted from 1."""
    if attempt < 1:
        raise ValueError("attempts are counted from 1")
    return min(cap_s, base_s * 2 ** (attempt - 1))
