"""What pydantic says about a contract, in words for its author: place, full name, value, mend."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from loopd.adapters.contract_shape import homes, key_at
from loopd.adapters.contract_yaml import Place, dotted
from loopd.domain.consistency import did_you_mean, nearest
from loopd.domain.contract import METRIC, Goal
from loopd.domain.environment import VARIABLE
from loopd.domain.errors import Problem
from loopd.domain.quantities import kind_of
from loopd.domain.written import NAME, NOT_BLANK, SLUG, Loc

_TURNS = "write attempts: N for the run, or attempt: {turns: N} for the agent's own limit in each attempt"
# Keys people reach for, and what they mean here.
_HINTS: Mapping[str, str] = {
    "budget.turns": _TURNS,
    "budget.iterations": "write attempts: N",
    "budget.max_attempts": "write attempts: N",
    "budget.timeout": "write time: 4h for the run, or attempt: {time: 45m}",
    "criteria.command": "write run: COMMAND",
    "criteria.cmd": "write run: COMMAND",
    "prompt": "write objective: TEXT, or objective: {file: PROMPT.md}",
    "checks": "write criteria: with one - run: COMMAND for each check",
}
_PATTERNS: Mapping[str, str] = {
    NOT_BLANK: "a text that is not blank is needed",
    SLUG: "a name of a-z, 0-9 and hyphens is needed, at most 60 characters, such as retry-client",
    NAME: "a name of letters, digits, _ and - is needed, at most 64 characters",
    METRIC: "a metric of a criterion is needed, such as coverage.line_percent",
    VARIABLE: "the name of an environment variable is needed",
}


class Places:
    """Finds where a value stands; what is not in the file itself is found at the nearest thing around it."""

    def __init__(self, file: str, places: Mapping[Loc, Place]) -> None:
        self.file = file
        self._places = places

    def known(self, loc: Loc) -> Loc:
        """The longest part of `loc` that stands in the file."""
        while loc and loc not in self._places:
            loc = loc[:-1]
        return loc

    def place(self, loc: Loc) -> Place:
        """Of the value, or of what is nearest around it."""
        return self._places.get(self.known(loc)) or Place(1, 1, 1, 1)

    def at_value(self, loc: Loc, message: str) -> Problem:
        """A problem of a value, with its full name and the value as written."""
        place = self.place(loc)
        if place.empty:
            return self.at_key(loc, f"{dotted(loc)}: {message}")
        raw = f" is `{place.raw}`" if place.raw else ""
        name = dotted(self.known(loc))
        return Problem(f"{name}{raw}: {message}" if name else message, self.file, place.line, place.column)

    def at_key(self, loc: Loc, message: str) -> Problem:
        """A problem of a key."""
        place = self.place(loc)
        return Problem(message, self.file, place.key_line, place.key_column)


def problems_of(error: ValidationError, places: Places, model: type[BaseModel] = Goal) -> Iterator[tuple[Loc, Problem]]:
    """Each fault of a `model`'s text, with the place to which it belongs."""
    for detail in error.errors(include_url=False):
        loc = tuple(part for part in detail["loc"] if part != "[key]")
        match detail["type"]:
            case "too_short" if detail["input"]:
                pass  # every item was wrong, and is told by itself
            case "extra_forbidden":
                yield loc, places.at_key(loc, _unknown_key(loc, model))
            case "missing":
                yield loc, places.at_key(loc[:-1], _missing(loc))
            case _:
                yield loc, places.at_value(loc, _said(detail, loc, places))


def _said(detail: ErrorDetails, loc: Loc, places: Places) -> str:
    place = places.place(loc)
    doubt = place.doubt if detail["type"] != "contract" or not place.doubt.startswith("`") else ""
    return "; ".join(filter(None, (_mend(detail, loc), doubt)))


def _mend(detail: ErrorDetails, loc: Loc) -> str:
    """What would be right instead of this value."""
    value, context = detail["input"], detail.get("ctx", {})
    if isinstance(value, float) and not math.isfinite(value):
        return "a finite number is needed"
    match detail["type"]:
        case "int_type" | "int_from_float":
            return _needed("a whole number", value)
        case "float_type":
            return _needed("a number", value)
        case "string_type":
            return _needed("text", value) + ("; put it in quotes" if isinstance(value, int | float) else "")
        case "dict_type" | "model_type" | "model_attributes_type":
            return _needed("text or a mapping of keys" if _has_short_form(loc) else "a mapping of keys", value)
        case "tuple_type":
            return f"{_needed('a list', value)}; write [first, second], or each in a line of its own after -"
        case "literal_error":
            return _choice(str(context.get("expected", "")), value)
        case "string_pattern_mismatch":
            return _PATTERNS.get(str(context.get("pattern")), detail["msg"])
        case "greater_than_equal":
            return f"at least {context['ge']} is needed"
        case "less_than_equal":
            return f"at most {context['le']} is possible"
        case "too_short":
            return "the list is empty; at least one is needed"
        case _:
            return detail["msg"]


def _needed(what: str, value: Any) -> str:
    return f"{what} is needed, got {kind_of(value)}"


def _choice(expected: str, value: Any) -> str:
    choices = expected.replace("'", "").replace(" or ", ", ").split(", ")
    near = did_you_mean(value, choices) if isinstance(value, str) else f", got {kind_of(value)}"
    return f"{' or '.join(choices) if len(choices) < 3 else 'one of ' + ', '.join(choices)} is needed{near}"


def _has_short_form(loc: Loc) -> bool:
    path = _path(loc)
    return path[-1:] != () and path[-1] in {
        "objective", "agent", "report", "sandbox", "deliver", "fallback", "constraints", "ladder", "notify",
    }  # fmt: skip


def _path(loc: Loc) -> tuple[str, ...]:
    return tuple(part for part in loc if isinstance(part, str))


def _missing(loc: Loc) -> str:
    key = key_at(_path(loc))
    what = f" ({key.info.description})" if key and key.info.description else ""
    return f"{dotted(loc)} is missing{what}"


def _unknown_key(loc: Loc, model: type[BaseModel]) -> str:
    *parents, name = _path(loc)
    prefix = "".join(f"{parent}." for parent in parents)
    siblings = [key for key, found in homes(model).items() if tuple(parents) in found]
    hinted = [path.removeprefix(prefix) for path in _HINTS if path.rpartition(".")[0] == ".".join(parents)]
    near = nearest(name, (*siblings, *hinted))
    if near in hinted:
        meant = "" if near == name else f" did you mean {near}?"
        return f"unknown key {dotted(loc)};{meant} {_HINTS[prefix + near]}"
    return f"unknown key {dotted(loc)}{_elsewhere(name, model) or did_you_mean(name, siblings) or _list(siblings)}"


def _elsewhere(name: str, model: type[BaseModel]) -> str:
    parents = sorted((parent for parent in homes(model).get(name, ()) if len(parent) < 3), key=len)
    if not parents:
        return ""
    return f"; it belongs below {' or '.join('.'.join(parent) or 'the top level' for parent in parents[:3])}"


def _list(siblings: Iterable[str]) -> str:
    listed = ", ".join(siblings)
    return f"; the keys here are {listed}" if listed else ""
