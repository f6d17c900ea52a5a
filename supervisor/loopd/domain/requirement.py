"""What a metric must be: `>= 90`, `<= 0.9 * baseline`, `> baseline + 2`."""

import math
import operator
import re
from dataclasses import dataclass

_OPERATORS = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}
_UNSIGNED = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,2})?"
_NUMBER = rf"[-+]?{_UNSIGNED}"
_PLAIN = re.compile(rf"(>=|<=|==|!=|>|<)\s*({_NUMBER})", re.ASCII)
_RELATIVE = re.compile(rf"(>=|<=|==|!=|>|<)\s*(?:({_NUMBER})\s*\*\s*)?baseline(?:\s*([-+])\s*({_UNSIGNED}))?", re.ASCII)
REQUIREMENT_PATTERN = r"^\s*(>=|<=|==|!=|>|<)\s*\S.*$"


@dataclass(frozen=True, slots=True)
class Requirement:
    """A comparison with `factor * baseline + offset`; a factor of 0 leaves a plain number."""

    operator: str
    factor: float = 0.0
    offset: float = 0.0

    def bound(self, baseline: float | None) -> float | None:
        """The number to compare with; None when the baseline is needed and not known."""
        if self.factor == 0:
            return self.offset
        return None if baseline is None else self.factor * baseline + self.offset

    def holds(self, value: float, baseline: float | None = None) -> bool:
        """Whether `value` satisfies it; an unknown baseline never does."""
        bound = self.bound(baseline)
        return bound is not None and bool(_OPERATORS[self.operator](value, bound))

    def __str__(self) -> str:
        """As one would write it in a contract."""
        if self.factor == 0:
            return f"{self.operator} {_shortest(self.offset)}"
        times = "" if self.factor == 1 else f"{_shortest(self.factor)} * "
        plus = f" {'-' if self.offset < 0 else '+'} {_shortest(abs(self.offset))}" if self.offset else ""
        return f"{self.operator} {times}baseline{plus}"


def _shortest(number: float) -> str:
    """The fewest digits that read back to the same number."""
    return repr(number).removesuffix(".0")


def parse_requirement(text: str) -> Requirement:
    """The requirement written as `text`. Raises ValueError saying what would be right."""
    found = _understood(text.strip())
    if found is None or not (math.isfinite(found.factor) and math.isfinite(found.offset)):
        raise ValueError('a comparison is needed, such as ">= 90", "<= 0.9 * baseline" or "> baseline + 2"')
    return found


def _understood(text: str) -> Requirement | None:
    if plain := _PLAIN.fullmatch(text):
        return Requirement(plain[1], offset=float(plain[2]))
    if relative := _RELATIVE.fullmatch(text):
        offset = float(relative[4] or 0) * (-1 if relative[3] == "-" else 1)
        return Requirement(relative[1], float(relative[2] or 1), offset)
    return None
