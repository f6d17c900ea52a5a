"""From how a check ended, and what it wrote, to a verdict. Doubt is an error, never a pass."""

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from loopd.adapters.verifiers.reports import ReportError, read_report
from loopd.domain.attempt import Exit
from loopd.domain.reports import TestReport
from loopd.domain.text import head_and_tail, safe_text
from loopd.domain.verdict import Status, Verdict

SUMMARY_BYTES = 2_000
PROTOCOL = {0: Status.PASS, 1: Status.FAIL, 2: Status.ERROR, 77: Status.SKIP}


class Declared(Struct, frozen=True):
    """The report a check is to write, and what stood there before it began."""

    path: Path
    format: str  # "junit" | "loopd"
    required: bool
    before: tuple[int, int, int] | None = None


def declare(path: Path, report_format: str, *, required: bool = True) -> Declared:
    """Note what lies at `path` now: a report that was there before is not one that the check wrote."""
    return Declared(path, report_format, required, _identity(path))


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def judge(criterion: str, left: Exit, declared: Declared | None, protocol: bool) -> Verdict:
    """The verdict of one run whose main process left by itself. Reads the report; raises nothing."""
    verdict = Verdict(criterion, Status.ERROR, exit=left.status, duration_s=left.duration_s)
    if left.lost:
        return replace(verdict, reason="how it ended is not known: the machine was restarted")
    if left.signal or left.status is None:
        return replace(verdict, reason=f"killed by {left.signal}")
    status = _by_exit(left.status, protocol)
    if status is None:
        return replace(verdict, reason=f"exit {left.status} is not part of the protocol (0, 1, 2, 77)")
    verdict = replace(verdict, status=status, summary=f"exit {left.status}")
    try:
        return _with_report(verdict, declared) if declared else _explained(verdict)
    except ReportError as error:
        return replace(verdict, status=Status.ERROR, reason=f"exit {left.status}, but {error}")


def _by_exit(status: int, protocol: bool) -> Status | None:
    if protocol:
        return PROTOCOL.get(status)
    return Status.PASS if status == 0 else Status.FAIL


def _explained(verdict: Verdict) -> Verdict:
    return replace(verdict, reason="it says so itself") if verdict.status is Status.ERROR else verdict


def _with_report(verdict: Verdict, declared: Declared) -> Verdict:
    found = _identity(declared.path)
    if found is None and not declared.required:
        return _explained(verdict)
    if found is not None and found == declared.before:
        raise ReportError("the report was there before and was not written anew")
    data = read_report(declared.path)
    if declared.format == "junit":
        from loopd.adapters.verifiers.junit import parse_junit

        return _with_tests(verdict, parse_junit(data))
    return _with_answer(verdict, data)


def _with_tests(verdict: Verdict, report: TestReport) -> Verdict:
    ran = report.ran
    if verdict.status is Status.PASS and report.red:
        raise ReportError(f"the report tells of {max(len(report.failed), 1)} failures")
    if verdict.status is Status.PASS and not ran:
        raise ReportError("the report names no test that ran")
    if verdict.status is Status.FAIL and ran and not report.red:
        raise ReportError("the report shows no failure; check what else fails by a criterion of its own")
    return replace(
        verdict,
        summary=_counted(report) if ran else verdict.summary,
        findings=report.findings,
        tests=ran,
        skipped=report.skipped,
    )


def _counted(report: TestReport) -> str:
    number = len(report.ran)
    told = f"{len(report.failed)} of {number} tests failed" if report.failed else f"{number} tests passed"
    return f"{told}, {len(report.skipped)} skipped" if report.skipped else told


def _with_answer(verdict: Verdict, data: bytes) -> Verdict:
    from loopd.adapters.verifiers.answer import parse_loopd

    report = parse_loopd(data)
    if report.status != verdict.status:
        raise ReportError(f'the report says "{report.status}"')
    summary = head_and_tail(safe_text(report.summary), SUMMARY_BYTES)
    return replace(
        verdict,
        summary=summary or verdict.summary,
        reason=(summary or "it says so itself") if verdict.status is Status.ERROR else "",
        metrics=report.domain_metrics(),
        findings=report.domain_findings(),
        evidence=report.evidence,
    )
