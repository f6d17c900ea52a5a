"""Progress is measured on verdicts, never on what an agent printed."""

import pytest
from msgspec.structs import replace

from loopd.domain.progress import Score, fingerprint, score
from loopd.domain.verdict import Finding, Status, Verdict

GREEN = Verdict("lint", Status.PASS)
RED = Verdict(
    "tests",
    Status.FAIL,
    summary="2 failed in 3.41 s at 0x7f3a",
    exit=1,
    findings=(Finding("boom", rule="t::b"), Finding("boom", rule="t::a")),
)


def test_a_score_counts_criteria_that_hold_and_spares_failing_tests() -> None:
    assert score([GREEN, RED]) == Score(met=1, spared=-2)
    assert score([]) == Score()


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (Score(2, -9), Score(1, 0)),
        (Score(1, -2), Score(1, -3)),
        (Score(1, 0), Score(0, 0)),
    ],
)
def test_criteria_outrank_tests_and_fewer_failing_tests_are_better(better: Score, worse: Score) -> None:
    assert better > worse


@pytest.mark.parametrize("status", [Status.FAIL, Status.ERROR, Status.TAMPER, Status.SKIP])
def test_only_a_pass_counts(status: Status) -> None:
    assert score([replace(GREEN, status=status)]).met == 0


def test_a_test_that_fails_twice_and_a_warning_do_not_count_as_failing_tests() -> None:
    found = (
        Finding("a", rule="t::a"),
        Finding("b", rule="t::a"),
        Finding("w", level="warning", rule="x"),
        Finding("n"),
    )
    assert score([replace(RED, findings=found)]) == Score(0, -1)


def test_the_same_failure_has_the_same_fingerprint_whatever_its_times_and_addresses() -> None:
    again = replace(RED, summary="2 failed in 9.02 s at 0xdead", duration_s=9.0, output="elsewhere")
    assert fingerprint({"tests": RED, "lint": GREEN}) == fingerprint({"tests": again})


@pytest.mark.parametrize(
    "other",
    [
        replace(RED, summary="collection error"),
        replace(RED, exit=2),
        replace(RED, status=Status.ERROR),
        replace(RED, findings=()),
    ],
)
def test_another_failure_has_another_fingerprint(other: Verdict) -> None:
    assert fingerprint({"tests": RED}) != fingerprint({"tests": other})


def test_a_summary_with_undecodable_bytes_has_a_fingerprint() -> None:
    assert len(fingerprint({"tests": replace(RED, summary="\udcff")})) == 16
