"""What an agent says it cost, read as what it is: text from outside. What is no plain figure is unknown, never zero."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from loopd.domain.attempt import Usage

MOST_TOKENS = 10**15
GROUPS = ("cost", "tokens", "cost_add", "tokens_add")


def cost_of(value: object) -> float | None:
    """US dollars as a finite number from 0 on; booleans, NaN, negative numbers and texts are None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        cost = float(value)
    except OverflowError:
        return None
    return cost if math.isfinite(cost) and cost >= 0 else None


def tokens_of(value: object) -> int | None:
    """A whole number of tokens, or None."""
    count = cost_of(value)
    return int(count) if count is not None and count < MOST_TOKENS and count == int(count) else None


def usage_from_json(data: bytes) -> Usage | None:
    """Usage from an object with `cost_usd` and `tokens` (or `input_tokens` and `output_tokens`); else None."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return usage_from(value) if isinstance(value, dict) else None


def usage_from(told: Mapping[str, Any]) -> Usage | None:
    """The same from an object that is already parsed; None when it holds no figure."""
    tokens = tokens_of(told.get("tokens"))
    if tokens is None and "tokens" not in told:
        parts = [tokens_of(told.get(name)) for name in ("input_tokens", "output_tokens")]
        tokens = None if None in parts else sum(part for part in parts if part is not None)
    usage = Usage(cost_of(told.get("cost_usd")), tokens)
    return None if usage == Usage() else usage


class PatternMeter:
    """Adds up the figures that a pattern finds in an agent's output.

    Groups `cost` and `tokens` are totals so far: the last one counts. `cost_add` and `tokens_add` are parts, summed;
    they count only while no total was seen.
    """

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self._figures: dict[str, float] = {}

    def feed(self, text: str) -> bool:
        """Take in one line; whether it told anything."""
        found = [self._take(match) for match in self._pattern.finditer(text)]
        return any(found)

    def _take(self, match: re.Match[str]) -> bool:
        told = False
        for name, value in match.groupdict().items():
            figure = _figure(value) if name in GROUPS and value else None
            if figure is None:
                continue
            self._figures[name] = figure + (self._figures.get(name, 0.0) if name.endswith("_add") else 0.0)
            told = True
        return told

    def usage(self) -> Usage | None:
        """The total so far; None when nothing was told."""
        cost = self._figures.get("cost", self._figures.get("cost_add"))
        tokens = self._figures.get("tokens", self._figures.get("tokens_add"))
        usage = Usage(cost_of(cost), tokens_of(tokens))
        return None if usage == Usage() else usage


def _figure(text: str) -> float | None:
    try:
        return cost_of(float(text.replace(",", "").strip()))
    except ValueError:
        return None
