"""What a test report says, and what a complete one holds: the tests of the baseline, none newly skipped."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from loopd.domain.verdict import Finding, Status, Verdict


@dataclass(frozen=True, slots=True)
class TestReport:
    """The tests of one run by id (`classname::name`), each in one of three tuples; sorted."""

    __test__ = False  # for pytest, which takes the name for a test class

    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()  # one a failing test, and failures outside of any test

    @property
    def ran(self) -> tuple[str, ...]:
        """Ids of the tests that passed or failed."""
        return tuple(sorted((*self.passed, *self.failed)))

    @property
    def red(self) -> bool:
        """Whether it tells of any failure."""
        return bool(self.failed or self.findings)


def stable_tests(first: Verdict, second: Verdict) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(stable, unstable) ids of two runs on the same tree; only the stable ones are asked for later."""
    one, two = {*first.tests, *first.skipped}, {*second.tests, *second.skipped}
    return tuple(sorted(one & two)), tuple(sorted(one ^ two))


def judge_report(
    baseline_tests: Collection[str],
    baseline_skipped: Collection[str],
    report: Verdict | TestReport,
    may_go: Sequence[str] = (),
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(missing, newly skipped) ids. `baseline_tests` are the stable ids, skipped ones included.

    A test that ran on the baseline and is skipped now is newly skipped, as is a new test that is skipped.
    `may_go` holds globs of ids or of paths ("tests/old/**"): such tests may disappear or be skipped.
    """
    ran = report.ran if isinstance(report, TestReport) else report.tests
    missing = {*baseline_tests} - {*ran} - {*report.skipped}
    skipped = {*report.skipped} - {*baseline_skipped}
    return tuple(_bound_to_stay(missing, may_go)), tuple(_bound_to_stay(skipped, may_go))


def _bound_to_stay(tests: Iterable[str], may_go: Sequence[str]) -> list[str]:
    return sorted(test for test in tests if not any(_covers(glob, test) for glob in may_go))


def _covers(glob: str, test: str) -> bool:
    # Reports name modules ("tests.old.test_a"), people write paths ("tests/old/**", "tests/old/test_a.py").
    path = test.split("::", 1)[0].replace(".", "/")
    stem = glob.removesuffix(".py").rstrip("/")
    return any(fnmatchcase(name, form) for name in (test, path) for form in (glob, stem, f"{stem}/*"))


def hold_to_baseline(verdict: Verdict, baseline: Verdict, may_go: Sequence[str] = ()) -> Verdict:
    """`verdict`, turned into a fail that names them when tests of the baseline are missing or newly skipped.

    `baseline.tests` and `baseline.skipped` hold the stable ids. Only a pass is turned; anything else stands.
    """
    if verdict.status is not Status.PASS:
        return verdict
    expected = (*baseline.tests, *baseline.skipped)
    missing, skipped = judge_report(expected, baseline.skipped, verdict, may_go)
    if not missing and not skipped:
        return verdict
    found = [Finding("this test of the baseline did not run", rule=test) for test in missing]
    found += [Finding("this test is skipped now", rule=test) for test in skipped]
    summary = f"{len(missing)} tests of the baseline missing, {len(skipped)} newly skipped"
    return replace(verdict, status=Status.FAIL, summary=summary, findings=(*verdict.findings, *found))
