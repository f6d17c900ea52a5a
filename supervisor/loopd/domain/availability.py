"""What the contract can say and loopd cannot do yet: refused by name, never ignored.

A key whose value equals the default asks for nothing and passes. To build something, delete its row here.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from loopd.domain.contract import Goal
from loopd.domain.written import Loc

Built = Callable[[Any], bool]


def _never(_value: Any) -> bool:
    return False


def _only(*values: Any) -> Built:
    return lambda value: value in values


def _but(*values: Any) -> Built:
    return lambda value: value not in values


def _ends_with(*endings: str) -> Built:
    return lambda value: not str(value).endswith(endings)


# Path in the contract (`*` is any item of a list or any name) → which values work already.
TABLE: Mapping[str, Built] = {
    "isolation": _only("inplace", "clone"),
    "sandbox.mode": _only("auto", "none"),
    "sandbox.write": _never,
    "environment.mount": _never,
    "environment.services": _never,
    "environment.env.*": _but("free-port"),
    "scope.max_files": _never,
    "constraints.*.check": _never,
    "criteria.*.use": _never,
    "criteria.*.require": _never,
    "criteria.*.report.file": _ends_with(".tap", ".sarif", ".sarif.json"),
    "criteria.*.lock": _never,
    "criteria.*.confirm": _only("again"),
    "criteria.*.baseline_metrics": _never,
    "criteria.*.sealed": _never,
    "criteria.*.visibility": _only("open", "verdict"),
    "criteria.*.max_checks": _never,
    "criteria.*.role": _never,
    "evidence": _never,
    "watch": _never,
    "progress": _never,
    "keep": _only("all"),
    "until": _only("met"),
    "stages": _never,
    "budget.attempt.turns": _never,
    "budget.waiting": _never,
    "roles.executor.model": _never,
    "roles.executor.env": _never,
    "roles.executor.fallback": _never,
    "roles.planner": _never,
    "roles.evaluator": _never,
    "roles.visual": _never,
    "context": _only("fresh"),
    "ladder.*.name": _only("rephrase", "fresh", "stop"),
    "ladder.*.executor": _never,
    "share": _only("none"),
    "deliver.pr": _never,
    "deliver.run": _never,
    "notify": _never,
}


def unavailable(goal: Goal) -> Iterator[tuple[Loc, Any]]:
    """Where the contract asks for something that is not built, and what it asks for."""
    said = goal.model_dump(by_alias=True, exclude_defaults=True)
    for path, built in TABLE.items():
        for loc, value in _at(said, path.split(".")):
            if not built(value):
                yield loc, value


def _at(value: Any, path: list[str], loc: Loc = ()) -> Iterator[tuple[Loc, Any]]:
    """The values that `path` leads to."""
    if not path:
        yield loc, value
    elif path[0] == "*":
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in items:
            yield from _at(item, path[1:], (*loc, key))
    elif value is not None and path[0] in value:
        yield from _at(value[path[0]], path[1:], (*loc, path[0]))
