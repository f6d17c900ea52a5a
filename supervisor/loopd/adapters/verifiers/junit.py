"""JUnit XML, as every runner writes it a little differently; read as a stream, with bounds on all it holds.

A document type is refused, so that no entity can be defined; depth and the number of tests are limited.
"""

from collections.abc import Mapping
from xml.parsers import expat

from loopd.adapters.verifiers.reports import ID_LIMIT, MESSAGE_BYTES, ReportError
from loopd.domain.reports import TestReport
from loopd.domain.text import head_and_tail, safe_line, safe_text
from loopd.domain.verdict import Finding

DEPTH_LIMIT = 100
TESTS_LIMIT = 500_000


def parse_junit(data: bytes) -> TestReport:
    """The tests of a JUnit XML report. Raises `ReportError`.

    An id that occurs more than once counts with its worst result. Failures outside of a test (a suite that
    could not be collected) and failures that a suite declares without naming them are findings too.
    """
    junit = _JUnit()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.StartElementHandler = junit.start
    parser.EndElementHandler = junit.end
    parser.CharacterDataHandler = junit.text
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise ReportError(f"the report is not well-formed XML: {error}") from None
    return junit.report()


def _refuse_doctype(*_: object) -> None:
    raise ReportError("the report declares a document type, which is refused: it could define entities")


class _JUnit:
    """Collects tests while the parser walks; holds one test at a time."""

    def __init__(self) -> None:
        self._depth = 0
        self._results: dict[str, str] = {}
        self._findings: list[Finding] = []
        self._test: dict[str, str] | None = None
        self._result = "passed"
        self._suites: list[str] = []
        self._told: dict[str, str] | None = None  # the attributes of the failure being read
        self._words: list[str] = []
        self._words_length = 0
        self._declared = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > DEPTH_LIMIT:
            raise ReportError(f"the report is nested deeper than {DEPTH_LIMIT} elements")
        if self._depth == 1 and _local(name) not in ("testsuites", "testsuite"):
            raise ReportError(f"the report is not JUnit XML: its root is <{safe_line(_local(name), 40)}>")
        match _local(name):
            case "testsuite":
                self._suites.append(attributes.get("name", ""))
                self._declared = max(self._declared, _count(attributes, "failures") + _count(attributes, "errors"))
            case "testcase":
                self._start_test(attributes)
            case "failure" | "error":
                self._result = "failed"
                self._told, self._words, self._words_length = attributes, [], 0
            case "skipped" if self._result == "passed":
                self._result = "skipped"

    def _start_test(self, attributes: dict[str, str]) -> None:
        if len(self._results) >= TESTS_LIMIT:
            raise ReportError(f"the report names more than {TESTS_LIMIT} tests")
        self._test = attributes
        not_run = attributes.get("status") in ("notrun", "disabled")
        self._result = "skipped" if not_run else "passed"

    def text(self, words: str) -> None:
        if self._told is not None and self._words_length < 8 * MESSAGE_BYTES:
            self._words.append(words)
            self._words_length += len(words)

    def end(self, name: str) -> None:
        self._depth -= 1
        match _local(name):
            case "testsuite":
                self._suites.pop()
            case "failure" | "error" if self._told is not None:
                self._findings.append(self._finding(self._told, "".join(self._words)))
                self._told = None
            case "testcase" if self._test is not None:
                test = _id(self._test)
                self._results[test] = _worst(self._results.get(test), self._result)
                self._test = None

    def _finding(self, told: Mapping[str, str], words: str) -> Finding:
        message = "\n".join(part for part in (told.get("message", ""), words) if part)
        test = self._test or {}
        line = test.get("line", "")
        return Finding(
            message=head_and_tail(safe_text(message or told.get("type", "failed")), MESSAGE_BYTES),
            rule=_id(test) if test else safe_line(self._suites[-1] if self._suites else "", ID_LIMIT),
            file=safe_line(test.get("file", ""), ID_LIMIT),
            line=int(line) if line.isascii() and line.isdigit() and len(line) < 9 else 0,
        )

    def report(self) -> TestReport:
        if self._declared and not self._findings:
            self._findings.append(Finding(f"a suite declares {self._declared} failures without naming them"))
        by_result = {
            kind: tuple(sorted(test for test, result in self._results.items() if result == kind))
            for kind in ("passed", "failed", "skipped")
        }
        return TestReport(**by_result, findings=tuple(self._findings))


def _local(name: str) -> str:
    return name.rsplit(" ", 1)[-1]


def _id(test: Mapping[str, str]) -> str:
    parts = (test.get("classname", ""), test.get("name", ""))
    return safe_line("::".join(part for part in parts if part), ID_LIMIT) or "(unnamed)"


def _worst(known: str | None, new: str) -> str:
    order = ("failed", "skipped", "passed")
    return new if known is None else min(known, new, key=order.index)


def _count(attributes: Mapping[str, str], name: str) -> int:
    value = attributes.get(name, "0")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 9 else 0
