"""The baseline rule for tests, and one verdict from several runs."""

import pytest

from loopd.domain.repeats import combine
from loopd.domain.reports import TestReport, hold_to_baseline, judge_report, stable_tests
from loopd.domain.verdict import Finding, Metric, Status, Verdict


def passing(*tests, skipped=()):
    """A pass that ran these tests."""
    return Verdict("tests", Status.PASS, tests=tests, skipped=skipped)


def test_a_test_of_the_baseline_may_fail_but_not_disappear():
    """Present is passing or failing; what the baseline skipped may stay skipped or run."""
    report = TestReport(passed=("a",), failed=("b",), skipped=("s",))
    assert judge_report(("a", "b", "c", "s"), ("s",), report) == (("c",), ())
    assert judge_report(("a", "b", "s"), ("s",), passing("a", "b", "s")) == ((), ())


def test_no_test_may_be_newly_skipped():
    """Neither one that ran nor a new one."""
    report = passing("a", skipped=("b", "new"))
    assert judge_report(("a", "b"), (), report) == ((), ("b", "new"))


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
    assert judge_report((test,), (), passing(), (glob,)) == (() if covered else (test,), ())


def test_a_pass_without_the_baseline_tests_is_a_fail_that_names_them():
    """A deleted test is found by its id."""
    baseline = passing("a", "b", skipped=("s",))
    held = hold_to_baseline(passing("a", skipped=("s", "x")), baseline)
    assert held.status is Status.FAIL
    assert held.failed_tests == ("b", "x")
    assert held.summary == "1 tests of the baseline missing, 1 newly skipped"


def test_a_complete_pass_and_every_other_verdict_stand():
    """The rule only ever takes a pass away."""
    baseline = passing("a", "b")
    for verdict in (passing("a", "b", "new"), Verdict("tests", Status.FAIL), Verdict("tests", Status.ERROR)):
        assert hold_to_baseline(verdict, baseline) is verdict
    assert hold_to_baseline(passing("a"), baseline, ("b",)).status is Status.PASS


def test_stable_tests_are_those_of_both_runs():
    """An id made from an address or a date is left out and shown."""
    assert stable_tests(passing("a", "b-1", skipped=("s",)), passing("a", "b-2", "s")) == (
        ("a", "s"),
        ("b-1", "b-2"),
    )


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
