"""Numbers as people say them, and colour where a terminal wants it. Imports next to nothing: `loopd status` is here."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any, TextIO

_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
GOOD, BAD, WARN = "green", "red", "yellow"

VERDICT_COLOURS = {"pass": GOOD, "fail": BAD, "error": WARN, "tamper": BAD, "skip": WARN}
STATE_COLOURS = {
    "met": GOOD,
    "running": "cyan",
    "waiting": WARN,
    "interrupted": WARN,
    "exhausted": BAD,
    "stuck": BAD,
    "halted": BAD,
    "blocked": BAD,
    "failed": BAD,
}


def wants_colour(stream: "TextIO") -> bool:
    """A terminal that was not asked to stay plain (NO_COLOR, TERM=dumb)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str | None, *, on: bool) -> str:
    """`text` in `colour`; unchanged when colour is off."""
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if on and colour and text else text


def clean(value: object, limit: int = 200) -> str:
    """One printable line. The slow path is for text that could act on a terminal, and for bare surrogates."""
    text = str(value)
    if text.isprintable():
        return text if len(text) <= limit else text[: limit - 1] + "…"
    from loopd.domain.text import safe_line

    return safe_line(text, limit)


def span(seconds: float) -> str:
    """A length of time in words: "12 s", "3 min 20 s", "41 min", "2 h 05 min", "3 d 4 h"."""
    whole = round(seconds)
    minutes, hours = whole // 60, whole // 3600
    if whole < 60:
        return f"{whole} s"
    if minutes < 10:
        return f"{minutes} min {whole % 60:02} s" if whole % 60 else f"{minutes} min"
    if hours < 1:
        return f"{minutes} min"
    if hours < 48:
        return f"{hours} h {minutes % 60:02} min" if minutes % 60 else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h" if hours % 24 else f"{hours // 24} d"


def ago(at: str, now: "datetime") -> str:
    """How long before `now` the instant `at` (ISO 8601) was: "just now", "3 min ago"."""
    seconds = since(at, now)
    return "just now" if seconds < 5 else f"{span(seconds)} ago"


def until(at: str, now: "datetime") -> str:
    """An instant to come, on the clock of this machine and in words: "14:02:10 (in 12 min)"."""
    seconds = -since(at, now)
    clock = local(at).strftime("%H:%M:%S" if seconds < 86400 else "%Y-%m-%d %H:%M")
    return f"{clock} (in {span(seconds)})" if seconds > 0 else f"{clock} (now)"


def since(at: str, now: "datetime") -> float:
    """Seconds from the instant `at` to `now`; negative when it is still to come."""
    return (now - local(at)).total_seconds()


def local(at: str) -> "datetime":
    """The instant `at` in the time zone of this machine."""
    from datetime import datetime

    return datetime.fromisoformat(at).astimezone()


def usd(amount: float) -> str:
    """Dollars: cents, or four digits below a cent."""
    return f"{amount:.4f}" if 0 < amount < 0.01 else f"{amount:.2f}"


def count(number: float) -> str:
    """A big number at a glance: "950", "12k", "1.2M"."""
    if number < 10_000:
        return f"{number:.0f}"
    return f"{number / 1e3:.0f}k" if number < 1e6 else f"{number / 1e6:.1f}M"


def attempts_text(budget: "dict[str, Any]") -> str:
    """Such as "attempts 3 of 30"."""
    return "attempts {used} of {allowed}".format_map(budget["attempts"])


def time_text(budget: "dict[str, Any]") -> str:
    """Such as "time 41 min of 8 h"."""
    return f"time {span(budget['time_s']['used'])} of {span(budget['time_s']['allowed'])}"


def cost_text(budget: "dict[str, Any]") -> str:
    """Such as "cost 2.10 of 20.00 USD (estimated)"; unknown is said, never shown as zero."""
    cost = budget["cost_usd"]
    marks = [mark for mark in ("partial", "estimated") if cost.get(mark)] if cost["used"] is not None else []
    used = "unknown" if cost["used"] is None else usd(cost["used"])
    bound = ", no limit" if cost["allowed"] is None else f" of {usd(cost['allowed'])} USD"
    unit = " USD" if cost["allowed"] is None and cost["used"] is not None else ""
    return f"cost {used}{unit}{bound}" + (f" ({', '.join(marks)})" if marks else "")


def tokens_text(budget: "dict[str, Any]") -> str:
    """Such as "tokens 1.2M of 20M"; unknown is said."""
    tokens = budget["tokens"]
    used = "unknown" if tokens["used"] is None else count(tokens["used"])
    return f"tokens {used}" + (", no limit" if tokens["allowed"] is None else f" of {count(tokens['allowed'])}")


def say(text: str) -> None:
    """Print to standard output at once, so that a closed pipe is noticed here."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
