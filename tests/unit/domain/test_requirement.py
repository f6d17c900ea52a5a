"""A requirement: what a result must be, against a number or the baseline."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopd.domain.requirement import Requirement, parse_requirement


@given(st.floats(-1e20, 1e20), st.floats(-1e20, 1e20), st.sampled_from([">=", "<", "!="]))
def test_a_requirement_reads_back_to_the_last_digit(factor: float, offset: float, comparison: str) -> None:
    requirement = Requirement(comparison, 0.0 if abs(factor) < 1e-9 else factor, 0.0 if abs(offset) < 1e-9 else offset)
    assert parse_requirement(str(requirement)) == requirement


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
