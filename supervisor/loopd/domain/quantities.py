"""Durations, money, tokens and sizes as people write them: strict, with units, never guessed.

Every parser takes the value as YAML gave it and raises `QuantityError`: its message says what would be right.
"""

import math
import re

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", re.ASCII)
_DURATION_UNITS_S = (86400.0, 3600.0, 60.0, 1.0)
_CLOCK = re.compile(r"(\d+):([0-5]?\d)(?::([0-5]?\d))?", re.ASCII)
_NUMBER = re.compile(r"[-+]?\d[\d_]*(\.\d*)?", re.ASCII)
_MONEY = re.compile(r"(\d+(?:\.\d+)?) USD", re.ASCII)
_TOKENS = re.compile(r"(\d+(?:\.\d+)?)([kM]?)", re.ASCII)
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kMGT]?B|[KMGT]iB)", re.ASCII)
_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_LONGEST_S = 366 * 86400.0

DURATION_PATTERN = r"^(?=\d)(\d+d)?(\d+(\.\d+)?h)?(\d+(\.\d+)?m)?(\d+(\.\d+)?s)?$"
MONEY_PATTERN = r"^\d+(\.\d+)? USD$"
TOKENS_PATTERN = r"^\d+(\.\d+)?[kM]?$"
SIZE_PATTERN = r"^\d+(\.\d+)? ?([kMGT]?B|[KMGT]iB)$"


class QuantityError(ValueError):
    """A value that is not the quantity asked for; the message says what would be right."""


def kind_of(value: object) -> str:
    """What YAML made of a value, in words for a message: "a boolean", "text", "a list"."""
    if value is None:
        return "nothing"
    if isinstance(value, float) and not math.isfinite(value):
        return "a number that is not finite"
    kinds = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "a mapping",
    }
    return kinds.get(type(value), "something else")


def parse_duration(value: object) -> float:
    """Seconds of "10m", "8h", "1h30m", "45s", "2d": units are mandatory, the result is above zero."""
    text = _text(value, "a duration with its unit is needed, such as 45s, 30m or 8h")
    if clock := _CLOCK.fullmatch(text):
        raise QuantityError(f"a duration with its unit is needed; {_clock_hint(clock)}")
    if _NUMBER.fullmatch(text):
        plain = text.lstrip("+-0_") or "0"
        raise QuantityError(f"the unit is missing; write {plain}s, {plain}m or {plain}h")
    match = _DURATION.fullmatch(text)
    if not match or not any(match.groups()):
        raise QuantityError("a duration with its unit is needed, such as 45s, 30m, 1h30m or 8h")
    seconds = sum(float(part or 0) * unit for part, unit in zip(match.groups(), _DURATION_UNITS_S, strict=True))
    if not 0 < seconds <= _LONGEST_S:
        raise QuantityError("a duration above zero and at most 366 days is needed")
    return seconds


def parse_money(value: object) -> float:
    """US dollars of "20 USD" or "0.50 USD"; above zero."""
    text = _text(value, "an amount with its currency is needed, such as 20 USD")
    if _NUMBER.fullmatch(text):
        raise QuantityError(f"the currency is missing; write {text.lstrip('+-')} USD")
    match = _MONEY.fullmatch(text)
    if not match:
        raise QuantityError("an amount in US dollars is needed, such as 20 USD or 0.50 USD")
    amount = float(match[1])
    if not 0 < amount < math.inf:
        raise QuantityError("a finite amount above zero is needed")
    return amount


def parse_tokens(value: object) -> int:
    """Tokens of "20M", "500k" or 1200000; at least 1."""
    if isinstance(value, int) and not isinstance(value, bool):
        count: float = value
    else:
        text = _text(value, "a number of tokens is needed, such as 1200000, 500k or 20M")
        match = _TOKENS.fullmatch(text)
        if not match:
            raise QuantityError("a number of tokens is needed, such as 1200000, 500k or 20M")
        count = float(match[1]) * {"": 1, "k": 1e3, "M": 1e6}[match[2]]
    if not 1 <= count < 1e15 or count != int(count):
        raise QuantityError("a whole number of tokens, at least 1, is needed")
    return int(count)


def parse_size(value: object) -> int:
    """Bytes of "500 MB", "2GiB": units are mandatory (kB = 1000, KiB = 1024)."""
    text = _text(value, "a size with its unit is needed, such as 500 MB or 2 GiB")
    match = _SIZE.fullmatch(text)
    if not match:
        raise QuantityError("a size with its unit is needed, such as 500 MB or 2 GiB")
    count = float(match[1]) * _BYTES[match[2]]
    if not count < 2**63:
        raise QuantityError("a size below 2**63 bytes is needed")
    return int(count)


def format_duration(seconds: float) -> str:
    """The shortest form `parse_duration` reads back to the same value: "1h30m", "45s", "0.5s"."""
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    parts = ((f"{hours:.0f}h", hours), (f"{minutes:.0f}m", minutes), (f"{_plain(rest)}s", rest))
    return "".join(text for text, amount in parts if amount) or "0s"


def format_money(amount_usd: float) -> str:
    """Cents, or as many digits as a smaller amount needs: "20 USD", "0.50 USD", "0.0004 USD"."""
    if amount_usd == int(amount_usd):
        return f"{amount_usd:.0f} USD"
    cents = f"{amount_usd:.2f}"
    return f"{cents if float(cents) == amount_usd else _plain(amount_usd)} USD"


def format_tokens(count: int) -> str:
    """The exact count, with a unit where it loses nothing: "20M", "1500k", "1234"."""
    for unit, size in (("M", 10**6), ("k", 10**3)):
        if count and count % size == 0:
            return f"{count // size}{unit}"
    return str(count)


def format_size(count: float) -> str:
    """For people, one decimal: "4.1 GB", "512 B"."""
    for unit in ("TB", "GB", "MB", "kB"):
        if count >= _BYTES[unit]:
            return f"{count / _BYTES[unit]:.1f} {unit}"
    return f"{count:.0f} B"


def _text(value: object, needed: str) -> str:
    """The value as text; a bare number is kept for the message about its unit."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise QuantityError(f"a finite number is needed: {needed}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _plain(value)
    raise QuantityError(f"{needed}, got {kind_of(value)}")


def _clock_hint(clock: re.Match[str]) -> str:
    first, second, third = clock.groups()
    if third:
        return f"write {int(first)}h{int(second)}m{int(third)}s"
    hours, minutes = f"{int(first)}h{int(second)}m", f"{int(first)}m{int(second)}s"
    return f"write {hours} for hours and minutes, {minutes} for minutes and seconds"


def _plain(number: float) -> str:
    """Digits without an exponent and without trailing zeros."""
    return f"{number:.9f}".rstrip("0").rstrip(".") if isinstance(number, float) else str(number)
