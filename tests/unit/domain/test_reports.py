"""The baseline rule for tests, and one verdict from several runs."""

import pytest

from loopd.domain.repeats import combine
from loopd.domain.reports import TestReport, judge_report, stable_tests
from loopd.domain.verdict import Finding, Metric, Status, Verdict


def passing(*tests, skipped=()):
    """A pass that ran these tests."""
    return Verdict("tests", Status.PASS, tests=tests, skipped=skipped)


def judged(baseline, now, may_go=()):
    """The rule on two verdicts."""
    stable = (*baseline.tests, *baseline.skipped)
    return tuple(f.rule for f in judge_report(stable, baseline.skipped, now.tests, now.skipped, may_go))


def test_a_test_of_the_baseline_may_not_disappear():
    """What the baseline skipped may stay skipped or run; new tests are welcome."""
    baseline = passing("a", "b", skipped=("s",))
    assert judged(baseline, passing("a", skipped=("s",))) == ("b",)
    assert judged(baseline, passing("a", "b", "s", "new")) == ()


def test_no_test_may_be_newly_skipped():
    """Neither one that ran nor a new one; the findings name them."""
    assert judged(passing("a", "b"), passing("a", skipped=("b", "new"))) == ("b", "new")
    (missing,) = judge_report(("a",), (), (), ())
    assert missing.message == "a ran on the baseline and is missing now"


@pytest.mark.parametrize(
    ("glob", "covered"),
    [
        ("tests/old/**", True),
        ("tests/old/test_a.py", True),
        ("tests/old/", True),
        ("tests.old.test_a.TestX::test_1", True),
        ("tests.old.*", True),
        ("tests/older/**", False),
        ("tests/old/test_b.py", False),
        ("old/**", False),
    ],
)
def test_may_go_names_tests_by_id_or_by_path(glob, covered):
    """Reports name modules, people write paths."""
    test = "tests.old.test_a.TestX::test_1"
    assert judged(passing(test), passing(), (glob,)) == (() if covered else (test,))


def test_stable_tests_are_those_of_both_runs():
    """An id made from an address or a date is left out and shown."""
    assert stable_tests(passing("a", "b-1", skipped=("s",)), passing("a", "b-2", "s")) == (
        ("a", "s"),
        ("b-1", "b-2"),
    )


@pytest.mark.parametrize(
    ("report", "red"),
    [
        (TestReport(passed=("a",), skipped=("b",)), False),
        (TestReport(failed=("a",)), True),
        (TestReport(passed=("a",), findings=(Finding("a suite did not load"),)), True),
    ],
)
def test_a_report_is_red_with_any_failure(report, red):
    """A failure outside of a test counts as well; skipped tests did not run."""
    assert report.red is red
    assert report.ran == ("a",)


def runs(*statuses):
    """Verdicts of several runs, a second each, with a metric."""
    return [
        Verdict("t", status, duration_s=1.0, metrics={"m": Metric(float(n))}, findings=(Finding(str(n)),))
        for n, status in enumerate(statuses)
    ]


PASS, FAIL, ERROR, SKIP = Status.PASS, Status.FAIL, Status.ERROR, Status.SKIP


@pytest.mark.parametrize(
    ("statuses", "rule", "status", "flags"),
    [
        ((PASS, PASS, PASS), "all", PASS, ()),
        ((FAIL, FAIL), "all", FAIL, ()),
        ((PASS, FAIL, PASS), "all", FAIL, ("flaky",)),
        ((PASS, FAIL, PASS), "majority", PASS, ("flaky",)),
        ((FAIL, FAIL, PASS), "majority", FAIL, ("flaky",)),
        ((PASS, FAIL), "majority", FAIL, ("flaky",)),
        ((PASS, ERROR, PASS), "majority", ERROR, ()),
        ((PASS, SKIP), "all", SKIP, ()),
    ],
)
def test_runs_that_disagree_are_flaky(statuses, rule, status, flags):
    """All or a majority must pass; an error is never a vote."""
    combined = combine(runs(*statuses), rule)
    assert (combined.status, combined.flags) == (status, flags)
    assert combined.duration_s == len(statuses)


def test_metrics_of_several_runs_are_medians():
    """One outlier does not decide; findings are those of the deciding run."""
    combined = combine(runs(PASS, FAIL, FAIL), "all")
    assert combined.metrics["m"].value == 1.0
    assert combined.findings[0].message == "1"
    assert combined.summary == "1 of 3 runs passed"
