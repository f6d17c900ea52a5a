"""The contract: what it can say, what it means without a word, and what its digest covers."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from contract_models import EVERYTHING, SMALL, first_message, goal_of
from loopd.domain.contract import Goal, digest
from loopd.domain.written import RESOLVED


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
