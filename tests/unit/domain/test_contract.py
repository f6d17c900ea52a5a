"""The contract: what it can say, what it means without a word, and what its digest covers."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from loopd.domain.availability import TABLE, unavailable
from loopd.domain.consistency import did_you_mean, inconsistencies, named
from loopd.domain.contract import Goal, digest
from loopd.domain.forecast import forecast
from loopd.domain.requirement import Requirement, parse_requirement
from loopd.domain.written import RESOLVED

SMALL: dict[str, Any] = {"goal": "g", "objective": "The end.", "criteria": [{"run": "pytest -q"}]}

EVERYTHING: dict[str, Any] = {
    "goal": "retry-client",
    "objective": {"file": "specs/retry.md"},
    "references": ["SPEC.md", "design/*.png"],
    "workspace": ".",
    "isolation": "clone",
    "verification": "clean",
    "sandbox": {"write": ["/opt/x"]},
    "agent": {
        "command": ["prog", "arg"],
        "prompt": "file",
        "usage": {"pattern": "cost=(?P<cost>.*)"},
        "final": "^done",
    },
    "environment": {
        "carry": [".venv", "node_modules", ".env"],
        "mount": ["~/data/fineweb"],
        "env": {"CI": "true", "DATABASE_URL": "inherit", "WEB_PORT": "free-port"},
        "services": {"up": "docker compose up -d --wait", "down": "docker compose down -v"},
        "network": "host",
    },
    "setup": ["python -m venv .venv", [".venv/bin/pip", "install", "-e", ".[test]"]],
    "setup_when": ["pyproject.toml"],
    "scope": {"allow": ["src/**", "docs/**"], "add": ["tests/**"], "protect": [".github/**"], "max_files": 40},
    "constraints": ["No new runtime dependency.", {"text": "The public API stays as it is.", "check": "api"}],
    "tamper": 2,
    "criteria": [
        {
            "name": "tests",
            "run": "pytest -q --junitxml={out}/junit.xml",
            "report": {"file": "{out}/junit.xml", "may_go": ["tests/old/**"]},
            "baseline": "fail",
            "timeout": "10m",
            "runs": 3,
            "rule": "majority",
            "protocol": "none",
        },
        {"name": "api", "use": "coverage", "with": {"source": ["src"]}, "require": {"line_percent": ">= 90"}},
        {
            "name": "speed",
            "use": "benchmark",
            "with": {"run": "python bench.py", "runs": 7},
            "require": {"median_s": "<= 0.9 * baseline"},
            "layer": "slow",
            "lock": "quiet",
            "confirm": "again",
            "baseline_metrics": {"median_s": 1.42},
        },
        {
            "name": "other-inputs",
            "run": "pytest -q {sealed}",
            "sealed": "../checks/retry",
            "visibility": "hidden",
            "max_checks": 3,
        },
        {
            "name": "review",
            "use": "judge",
            "role": "evaluator",
            "with": {"rubric": ["Backoff is capped."]},
            "needs": ["tests"],
        },
    ],
    "evidence": ["REPORT.md", "plots/*.png", "screenshot:diff.png"],
    "watch": {"loss": {"file": "train.csv", "column": "loss"}},
    "progress": {"metric": "speed.median_s", "better": "lower"},
    "keep": "better",
    "until": "budget",
    "stages": [
        {"name": "pilot", "criteria": ["tests"], "with": {"cases": 20}, "budget": {"attempts": 3, "cost": "1 USD"}},
        {"name": "full"},
    ],
    "budget": {
        "attempts": 30,
        "time": "8h",
        "cost": "20 USD",
        "tokens": "20M",
        "attempt": {"time": "45m", "idle": "20m", "cost": "2 USD", "turns": 200},
        "waiting": "12h",
    },
    "roles": {
        "executor": {"model": "sonnet", "args": ["--x"], "env": ["TOKEN"], "fallback": "codex"},
        "planner": {"agent": "claude", "model": "opus"},
        "evaluator": {"agent": "codex"},
        "visual": {"agent": "gemini"},
    },
    "context": "continue-until-stuck",
    "ladder": ["rephrase", "fresh", "advise", {"executor": {"agent": "codex"}}, "restore-best", "stop"],
    "templates": "prompts/",
    "share": "evidence",
    "deliver": {"pr": "draft"},
    "notify": [{"on": ["stuck", "blocked", "halted"], "to": "env:PAGER"}, "desktop"],
}


def goal_of(**changes: Any) -> Goal:
    """The smallest contract with changes."""
    return Goal.model_validate(SMALL | changes)


def first_message(data: dict[str, Any]) -> str:
    """What is wrong first, in words."""
    with pytest.raises(ValidationError) as caught:
        Goal.model_validate(data)
    return caught.value.errors()[0]["msg"]


def test_g1_everything_the_contract_page_says_can_be_said() -> None:
    """Every documented field is understood, in its short and its long forms."""
    goal = Goal.model_validate(EVERYTHING)
    assert [criterion.name for criterion in goal.criteria] == ["tests", "api", "speed", "other-inputs", "review"]
    assert goal.budget.time_s == 28800
    assert goal.budget.attempt.turns == 200
    assert goal.setup[1][-1] == ".[test]"
    assert goal.criteria[2].require["median_s"].holds(1.2, baseline=1.42)
    assert goal.criteria[0].report is not None
    assert goal.criteria[0].report.format == "junit"
    assert goal.ladder[3].executor is not None


def test_g1_the_fields_are_the_documented_ones_and_no_others() -> None:
    """A new field must be added to the page, the reference and this list."""
    documented = """
        goal objective references workspace isolation verification sandbox agent environment setup setup_when
        scope constraints tamper criteria evidence watch progress keep until stages budget roles context ladder
        templates share deliver notify
    """
    assert list(Goal.model_fields) == documented.split()


@pytest.mark.parametrize(
    "data",
    [
        SMALL | {"gaol": "x"},
        SMALL | {"budget": {"attemps": 3}},
        SMALL | {"budget": {"turns": 3}},
        SMALL | {"scope": {"allowed": []}},
        SMALL | {"criteria": [{"run": "x", "time": "3m"}]},
        SMALL | {"roles": {"critic": {}}},
    ],
)
def test_g1_unknown_fields_are_errors_at_every_depth(data: dict[str, Any]) -> None:
    """Nothing that is written is dropped in silence."""
    with pytest.raises(ValidationError, match="Extra inputs"):
        Goal.model_validate(data)


def test_bud_2_a_contract_without_a_budget_has_the_documented_finite_limits() -> None:
    """20 attempts, 4 h, 45 min an attempt, 20 min idle, 10 min a verifier, 12 h waiting, 2 tamperings."""
    goal = goal_of()
    assert (goal.budget.attempts, goal.budget.time_s, goal.budget.waiting_s) == (20, 4 * 3600, 12 * 3600)
    assert (goal.budget.attempt.time_s, goal.budget.attempt.idle_s) == (45 * 60, 20 * 60)
    assert (goal.budget.cost_usd, goal.budget.tokens, goal.budget.attempt.cost_usd) == (None, None, None)
    assert (goal.criteria[0].timeout_s, goal.tamper, goal.environment.network) == (600, 2, "none")
    assert [rung.name for rung in goal.ladder] == ["rephrase", "fresh", "stop"]
    assert (goal.isolation, goal.verification, goal.sandbox.mode, goal.delivery.to) == (
        "inplace",
        "clean",
        "auto",
        "tree",
    )
    assert goal_of(isolation="clone").delivery.to == "branch"


@pytest.mark.parametrize("value", [None, 0, -1, True, "off", "none", "unlimited", float("inf"), 2.0])
def test_bud_2_no_value_lifts_the_limit_of_attempts(value: object) -> None:
    """Attempts are a whole number of at least 1, whatever else is unlimited."""
    with pytest.raises(ValidationError):
        goal_of(budget={"attempts": value})


@pytest.mark.parametrize("value", [None, 0, True, "off", "none", "unlimited", "0s", float("inf")])
def test_bud_2_no_value_lifts_the_limit_of_time(value: object) -> None:
    """Neither of the run nor of an attempt."""
    for budget in ({"time": value}, {"attempt": {"time": value}}):
        with pytest.raises(ValidationError):
            goal_of(budget=budget)


def test_the_executor_is_found_wherever_its_agent_is_written() -> None:
    short = goal_of(agent="claude", roles={"executor": {"args": ["-v"]}})
    long = goal_of(roles={"executor": {"agent": "claude", "args": ["-v"]}})
    assert short.executor == long.executor
    assert goal_of().executor.agent is None


def test_an_idle_limit_that_is_off_leaves_the_limit_of_the_attempt() -> None:
    attempt = goal_of(budget={"attempt": {"idle": "off"}}).budget.attempt
    assert (attempt.idle_s, attempt.time_s) == (None, 2700)


def test_g3_the_digest_covers_meaning_and_files_and_nothing_else() -> None:
    """Any change of meaning or of a pinned file is another contract; order and written defaults are not."""
    plain = digest(goal_of(), {"reference SPEC.md": "aa"})
    assert digest(goal_of(tamper=2, budget={"attempts": 20}), {"reference SPEC.md": "aa"}) == plain
    assert digest(Goal.model_validate(dict(reversed(SMALL.items()))), {"reference SPEC.md": "aa"}) == plain
    changed = [
        digest(goal_of(), {"reference SPEC.md": "ab"}),
        digest(goal_of(), {}),
        digest(goal_of(tamper=1), {"reference SPEC.md": "aa"}),
        digest(goal_of(objective="The end"), {"reference SPEC.md": "aa"}),
        digest(goal_of(criteria=[{"run": "pytest"}]), {"reference SPEC.md": "aa"}),
        digest(goal_of(criteria=[{"run": "pytest -q", "timeout": "11m"}]), {"reference SPEC.md": "aa"}),
    ]
    assert len({plain, *changed}) == 7


def test_g3_a_contract_cannot_be_changed_in_memory() -> None:
    """What was read is what is judged by."""
    goal = Goal.model_validate(EVERYTHING)
    for part, key in ((goal, "tamper"), (goal.budget, "attempts"), (goal.criteria[0], "run"), (goal.scope, "allow")):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(part, key, 1)


def test_g3_a_contract_that_is_kept_as_json_is_recalled_as_the_same() -> None:
    """Nothing of its meaning is lost on the way through a run's folder."""
    goal = Goal.model_validate(EVERYTHING)
    kept = json.loads(json.dumps(goal.model_dump(mode="json", by_alias=True, exclude_defaults=True)))
    recalled = Goal.model_validate(kept, context=RESOLVED)
    assert recalled == goal
    assert digest(recalled, {}) == digest(goal, {})


@given(st.floats(-1e20, 1e20), st.floats(-1e20, 1e20), st.sampled_from([">=", "<", "!="]))
def test_a_requirement_reads_back_to_the_last_digit(factor: float, offset: float, comparison: str) -> None:
    requirement = Requirement(comparison, 0.0 if abs(factor) < 1e-9 else factor, 0.0 if abs(offset) < 1e-9 else offset)
    assert parse_requirement(str(requirement)) == requirement


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"criteria": [{}]}, "either run"),
        ({"criteria": [{"run": "x", "use": "y"}]}, "either run"),
        ({"criteria": []}, "at least 1"),
        ({"objective": {}}, "a text or"),
        ({"objective": "  \n"}, "match pattern"),
        ({"agent": {"name": "a", "scripted": "b"}}, "exactly one"),
        ({"agent": {"name": "a", "prompt": "file"}}, "belong to an agent given by command"),
        ({"agent": {"command": "x", "usage": {}}}, "either file or pattern"),
        ({"agent": {"command": "x", "final": "("}}, "a regular expression is needed"),
        ({"agent": "a", "roles": {"executor": {"agent": "b"}}}, "write one of them"),
        ({"ladder": [{}]}, "a rung is"),
        ({"ladder": []}, "at least 1"),
        ({"deliver": {}}, "exactly one"),
        ({"deliver": "nowhere"}, "'tree' or 'branch'"),
        ({"criteria": [{"run": "x", "require": {"m": 3}}]}, "a comparison as text"),
        ({"criteria": [{"run": "x", "require": {"m": "about 3"}}]}, "a comparison is needed"),
        ({"setup": "make"}, "valid tuple"),
        ({"goal": "Retry"}, "match pattern"),
        ({"budget": {"attempt": {"idle": "no"}}}, "a duration"),
    ],
)
def test_g1_what_cannot_be_meant_is_refused_with_the_mend(changes: dict[str, Any], message: str) -> None:
    """Each model says what would be right."""
    assert message in first_message(SMALL | changes)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("pytest -q 'a b'", ("pytest", "-q", "a b")),
        ("grep -q 'x$|y' \"a;b\" c\\|d", ("grep", "-q", "x$|y", "a;b", "c|d")),
        (["sh", "-c", "a && b | c > d"], ("sh", "-c", "a && b | c > d")),
        ("pytest -q --junitxml={out}/j.xml\n", ("pytest", "-q", "--junitxml={out}/j.xml")),
        ("echo 100$ {a,b}", ("echo", "100$", "{a,b}")),
    ],
)
def test_a_command_is_a_list_or_a_text_split_without_a_shell(written: object, words: tuple[str, ...]) -> None:
    assert goal_of(criteria=[{"run": written}]).criteria[0].run == words


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("a && b", "`&&` needs a shell, and commands run without one; write \\[sh, -c, '…'\\]"),
        ("a | b", "`\\|` needs a shell"),
        ("a; b", "`;` needs a shell"),
        ("a > b", "`>` needs a shell"),
        ("echo $HOME", "`\\$HOME` needs a shell"),
        ('echo "${HOME}"', "`\\${` needs a shell"),
        ('echo "`id`"', "``` needs a shell"),
        ("(a)", "`\\(` needs a shell"),
        ("a\nb", "a line break needs a shell"),
        ("CI=1 pytest", "write \\[env, CI=1, …\\]"),
        ("echo 'open", "no closing quotation"),
        ("", "a command is needed"),
        ([], "a command is needed"),
        ([" "], "a command is needed"),
        ("-e .", "cannot begin with the option `-e`"),
        (["a", "b\0"], "NUL"),
        (["a", 4], "valid string"),
        (7, "valid tuple"),
    ],
)
def test_what_only_a_shell_understands_is_refused(written: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        goal_of(criteria=[{"run": written}])


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("{out}/j.xml", "junit"),
        ("{out}/report.json", "loopd"),
        ("t.tap", "tap"),
        ("a.sarif", "sarif"),
        ("a.sarif.json", "sarif"),
        ("odd", "junit"),
    ],
)
def test_the_format_of_a_report_follows_its_ending(file: str, kind: str) -> None:
    report = goal_of(criteria=[{"run": "x", "report": file}]).criteria[0].report
    assert report is not None
    assert report.format == kind


@pytest.mark.parametrize(
    ("text", "value", "baseline", "holds"),
    [
        (">= 90", 90, None, True),
        ("> 90", 90, None, False),
        ("<= 0.9 * baseline", 0.9, 1.0, True),
        ("<= 0.9*baseline", 0.91, 1.0, False),
        ("> baseline + 2", 12.5, 10, True),
        ("< baseline - 2", 8.5, 10, False),
        ("<= baseline", 3, None, False),
        ("== 0", 0, None, True),
        ("!= 1e3", 1000, None, False),
        (">= -5", -5, None, True),
    ],
)
def test_a_requirement_compares_with_a_number_or_the_baseline(
    text: str, value: float, baseline: float | None, holds: bool
) -> None:
    assert parse_requirement(text).holds(value, baseline) is holds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "90",
        ">= ninety",
        "=> 3",
        "~ 3",
        ">= nan",
        ">= inf",
        ">= " + "9" * 400,
        "<= baseline * 2",
        "> baseline + 1.2.3",
    ],
)
def test_a_requirement_that_is_none_says_what_would_be_right(text: str) -> None:
    with pytest.raises(ValueError, match="a comparison is needed"):
        parse_requirement(text)


@pytest.mark.parametrize(
    "text", [">= 90", "<= 0.9 * baseline", "> baseline + 2", "< 1.5 * baseline - 3", "== baseline"]
)
def test_a_requirement_is_shown_as_it_was_written(text: str) -> None:
    assert str(parse_requirement(text)) == text


def test_a_requirement_without_a_known_baseline_has_no_bound() -> None:
    assert Requirement("<=", factor=1.0).bound(None) is None


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
