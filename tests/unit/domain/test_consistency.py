"""What a contract as a whole must be: named, free of contradictions, built already; and the forecast."""

from typing import Any

import pytest

from contract_models import EVERYTHING, goal_of
from loopd.domain.availability import TABLE, unavailable
from loopd.domain.consistency import did_you_mean, inconsistencies, named
from loopd.domain.contract import Goal
from loopd.domain.forecast import forecast


@pytest.mark.parametrize(
    ("commands", "names"),
    [
        (["pytest -q"], ["pytest"]),
        (["pytest -q", "pytest -x"], ["pytest", "pytest-2"]),
        (["python -m mypy src"], ["mypy-src"]),
        ([["sh", "-c", "make && make test"]], ["make-make-test"]),
        (["./scripts/check.sh --fast"], ["check-sh"]),
        (["python3 -"], ["python3"]),
        ([["§"]], ["criterion"]),
        (["pytest --junitxml={out}/x.xml tests/unit/"], ["pytest-unit"]),
    ],
)
def test_a_criterion_without_a_name_is_named_after_its_command(commands: list[object], names: list[str]) -> None:
    goal = named(goal_of(criteria=[{"run": command} for command in commands]))
    assert [criterion.name for criterion in goal.criteria] == names


def test_a_generated_name_gives_way_to_a_given_one() -> None:
    goal = named(goal_of(criteria=[{"run": "pytest"}, {"name": "pytest", "run": "x"}, {"use": "judge"}]))
    assert [criterion.name for criterion in goal.criteria] == ["pytest-2", "pytest", "judge"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"criteria": [{"name": "a", "run": "x"}, {"name": "a", "run": "y"}]}, "share this name"),
        ({"stages": [{"name": "a"}, {"name": "a"}]}, "share this name"),
        ({"criteria": [{"run": "pytest", "needs": ["pytst"]}]}, "did you mean pytest?"),
        ({"criteria": [{"run": "pytest", "needs": ["zz"]}]}, "there are pytest"),
        ({"criteria": [{"name": "a", "run": "x", "needs": ["a"]}]}, "circle: a → a"),
        (
            {"criteria": [{"name": "a", "run": "x", "needs": ["b"]}, {"name": "b", "run": "y", "needs": ["a"]}]},
            "need each other in a circle",
        ),
        ({"stages": [{"name": "s", "criteria": ["nope"]}]}, "no criterion has this name"),
        ({"constraints": [{"text": "t", "check": "nope"}]}, "no criterion has this name"),
        ({"progress": {"metric": "nope.m"}}, "no criterion has this name"),
        ({"criteria": [{"run": "x {output}"}]}, "{output} is no placeholder; did you mean {out}?"),
        ({"criteria": [{"run": "x {zzz}"}]}, "there are {out}, {sealed}, {baseline}, {tree}"),
        ({"criteria": [{"run": "x", "report": "{ouu}/j.xml"}]}, "did you mean {out}?"),
        ({"criteria": [{"run": "x {sealed}"}]}, "named by `sealed`, which is missing"),
        ({"criteria": [{"run": "x", "with": {"a": 1}}]}, "reads no parameters"),
        ({"criteria": [{"run": "x", "rule": "majority"}]}, "at least 3 runs"),
        ({"criteria": [{"run": "x", "max_checks": 3}]}, "add `visibility: hidden`"),
        ({"criteria": [{"run": "x", "role": "planner"}]}, "a command has no role"),
        ({"criteria": [{"run": "x", "baseline": "pass"}]}, "nothing tells done from now"),
        ({"keep": "better"}, "write isolation: clone"),
        ({"environment": {"services": {"up": "a", "down": "b"}}}, "write network: host"),
        ({"ladder": ["stop", "fresh"]}, "nothing is tried after stop"),
    ],
)
def test_a_contract_that_contradicts_itself_is_told_so(changes: dict[str, Any], message: str) -> None:
    faults = list(inconsistencies(goal_of(**changes)))
    assert [message in text for _, text in faults] == [True]


def test_a_contract_that_agrees_with_itself_has_no_faults() -> None:
    assert list(inconsistencies(Goal.model_validate(EVERYTHING))) == []
    assert (
        list(
            inconsistencies(
                goal_of(criteria=[{"run": "x {out} {tree} {baseline} {a,b}", "runs": 3, "rule": "majority"}])
            )
        )
        == []
    )


def test_what_is_not_built_is_named_at_every_place() -> None:
    found = {loc for loc, _ in unavailable(Goal.model_validate(EVERYTHING))}
    assert ("sandbox", "write") in found
    assert ("criteria", 1, "use") in found
    assert ("criteria", 3, "visibility") in found
    assert ("environment", "env", "WEB_PORT") in found
    assert ("environment", "env", "CI") not in found
    assert ("ladder", 2, "name") in found
    assert ("ladder", 0, "name") not in found
    assert ("budget", "attempt", "turns") in found
    assert ("budget", "waiting") not in found


def test_a_value_that_equals_its_default_asks_for_nothing() -> None:
    changes = {"sandbox": "auto", "keep": "all", "until": "met", "share": "none", "context": "fresh", "stages": []}
    assert list(unavailable(goal_of(**changes, budget={"waiting": "12h"}, deliver="branch"))) == []


@pytest.mark.parametrize("path", sorted(TABLE))
def test_every_row_of_the_table_is_a_key_of_the_contract(path: str) -> None:
    """A row that leads nowhere would refuse nothing."""
    model: Any = Goal.model_json_schema(by_alias=True)
    top = model
    for part in path.split("."):
        model = _inside(model, top, part)
        assert model is not None, path


def _inside(model: dict[str, Any], top: dict[str, Any], part: str) -> dict[str, Any] | None:
    for choice in (model, *model.get("anyOf", ())):
        resolved = top["$defs"][choice["$ref"].rpartition("/")[2]] if "$ref" in choice else choice
        if part == "*":
            inner = (
                resolved.get("items")
                or resolved.get("additionalProperties")
                or next(iter(resolved.get("patternProperties", {}).values()), None)
            )
            if inner:
                return dict(inner)
        elif part in resolved.get("properties", {}):
            return dict(resolved["properties"][part])
    return None


def test_a_near_miss_is_suggested_and_a_far_one_is_not() -> None:
    assert did_you_mean("attemps", ["attempts", "time"]) == "; did you mean attempts?"
    assert did_you_mean("zzz", ["attempts", "time"]) == ""


@pytest.mark.parametrize(
    ("figures", "line"),
    [
        (
            {"check_s": 360, "setup_s": 180, "attempts": 30, "disk_bytes": 4_100_000_000},
            "one verification ≈ 6 min (setup 3 min, once) · 30 attempts ≈ 3 h of checking · disk 4.1 GB",
        ),
        (
            {"check_s": 0.2, "setup_s": 0, "attempts": 1, "disk_bytes": 2_000},
            "one verification ≈ 1 s · 1 attempt ≈ 1 s of checking · disk 2.0 kB",
        ),
        (
            {"check_s": 100, "setup_s": 45, "attempts": 500, "disk_bytes": 0, "setup_cached": True},
            "one verification ≈ 1.7 min (setup 45 s, cached) · 500 attempts ≈ 14 h of checking · disk 0 B",
        ),
    ],
)
def test_the_forecast_is_one_line(figures: dict[str, Any], line: str) -> None:
    assert forecast(**figures) == line
