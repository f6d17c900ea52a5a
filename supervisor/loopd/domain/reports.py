"""What a test report says, and what a complete one holds: the tests of the baseline, none newly skipped."""

from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from loopd.domain.verdict import Finding, Verdict


class TestReport(Struct, frozen=True):
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
    tests: Collection[str],
    skipped: Collection[str],
    may_go: Sequence[str] = (),
) -> tuple[Finding, ...]:
    """What a green report lacks: baseline tests that did not run, and tests that are newly skipped; none: complete.

    `baseline_tests` are the stable ids, skipped ones included; `tests` ran now, passing or failing. A test that is
    new and skipped is newly skipped too. `may_go` holds globs of ids or of paths ("tests/old/**"): such tests may
    disappear or be skipped.
    """
    missing = {*baseline_tests} - {*tests} - {*skipped}
    newly = {*skipped} - {*baseline_skipped}
    return (
        *(Finding(f"{test} ran on the baseline and is missing now", rule=test) for test in _kept(missing, may_go)),
        *(Finding(f"{test} is skipped now", rule=test) for test in _kept(newly, may_go)),
    )


def _kept(tests: Iterable[str], may_go: Sequence[str]) -> list[str]:
    return sorted(test for test in tests if not any(_covers(glob, test) for glob in may_go))


def _covers(glob: str, test: str) -> bool:
    # Reports name modules ("tests.old.test_a"), people write paths ("tests/old/**", "tests/old/test_a.py").
    path = test.split("::", 1)[0].replace(".", "/")
    stem = glob.removesuffix(".py").rstrip("/")
    return any(fnmatchcase(name, form) for name in (test, path) for form in (glob, stem, f"{stem}/*"))
