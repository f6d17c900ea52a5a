"""Reports from code that is not trusted: read whole, bounded, strictly, or not at all."""

import json
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopd.adapters.verifiers import reports
from loopd.adapters.verifiers.answer import parse_loopd
from loopd.adapters.verifiers.junit import parse_junit
from loopd.adapters.verifiers.reports import ReportError, read_report

PYTEST = b"""<?xml version="1.0" encoding="utf-8"?>
<testsuites name="pytest tests"><testsuite name="pytest" errors="1" failures="1" skipped="1" tests="4">
<testcase classname="tests.test_a" name="test_ok" time="0.001"/>
<testcase classname="tests.test_a" name="test_bad[\xc3\xa9]" file="tests/test_a.py" line="7">
  <failure message="assert 1 == 2">def test_bad():&#10;&gt; assert 1 == 2</failure>
  <system-out>noise</system-out></testcase>
<testcase classname="tests.test_a" name="test_later"><skipped type="pytest.skip" message="later"/></testcase>
<testcase classname="" name="tests.test_b"><error message="collection failure">ImportError</error></testcase>
</testsuite></testsuites>"""


def test_a_junit_report_gives_stable_ids_results_and_places():
    """`classname::name`; message and text of a failure; file and line where they are told."""
    report = parse_junit(PYTEST)
    assert report.passed == ("tests.test_a::test_ok",)
    assert report.failed == ("tests.test_a::test_bad[é]", "tests.test_b")
    assert report.skipped == ("tests.test_a::test_later",)
    bad, broken = report.findings
    assert (bad.rule, bad.file, bad.line) == ("tests.test_a::test_bad[é]", "tests/test_a.py", 7)
    assert bad.message == "assert 1 == 2\ndef test_bad():\n> assert 1 == 2"
    assert broken.message == "collection failure\nImportError"


@pytest.mark.parametrize(
    ("xml", "passed", "failed", "skipped"),
    [
        ('<testsuite><testcase name="a"/></testsuite>', ("a",), (), ()),
        ('<testsuite xmlns="urn:x"><testcase name="a"/></testsuite>', ("a",), (), ()),
        ('<testsuite><testsuite><testcase name="a"/></testsuite></testsuite>', ("a",), (), ()),
        ('<testsuite><testcase name="a" status="notrun"/></testsuite>', (), (), ("a",)),
        ('<testsuite><testcase name="a"/><testcase name="a"><error/></testcase></testsuite>', (), ("a",), ()),
        ('<testsuite><testcase name="a"><error/></testcase><testcase name="a"/></testsuite>', (), ("a",), ()),
        ('<testsuite><testcase name="a"><failure/><skipped/></testcase></testsuite>', (), ("a",), ()),
        ("<testsuites/>", (), (), ()),
    ],
)  # fmt: skip
def test_junit_of_several_runners(xml, passed, failed, skipped):
    """Nested suites, namespaces, repeated ids (the worst counts), tests that did not run."""
    report = parse_junit(xml.encode())
    assert (report.passed, report.failed, report.skipped) == (passed, failed, skipped)


@pytest.mark.parametrize(
    "xml",
    [
        '<testsuite name="s"><error message="cannot load"/><testcase name="a"/></testsuite>',
        '<testsuite name="s" failures="3"><testcase name="a"/></testsuite>',
    ],
)
def test_a_failure_outside_of_any_test_is_red(xml):
    """A suite that could not be loaded, or that counts failures it does not name."""
    report = parse_junit(xml.encode())
    assert report.red
    assert report.passed == ("a",)


BOMB = """<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><testsuite name="&b;"/>"""


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        (BOMB, "document type"),
        ('<!DOCTYPE x SYSTEM "file:///etc/passwd"><testsuite/>', "document type"),
        ("<testsuite>" * 101, "nested deeper"),
        ('<testsuite><testcase name="a"/>', "not well-formed"),
        ("", "not well-formed"),
        ("not xml", "not well-formed"),
        ("<html/>", "root is <html>"),
        ('<testsuite name="&undefined;"/>', "not well-formed"),
    ],
)
def test_a_hostile_or_torn_junit_report_is_refused(xml, message):
    """Entities, depth, half a file, another document."""
    with pytest.raises(ReportError, match=message):
        parse_junit(xml.encode())


@given(st.binary(max_size=200))
def test_h7_no_bytes_make_a_parser_raise_anything_but_a_report_error(data):
    """A crash of the parser would be a crash of the supervisor."""
    for parse in (parse_junit, parse_loopd):
        with pytest.raises(ReportError):
            parse(data)


def test_escapes_and_line_breaks_in_ids_are_made_harmless():
    """An id is one bounded line."""
    name = "x" * 1_000 + "&#9;&#10;"
    report = parse_junit(f'<testsuite><testcase name="a&#10;b\u202e"/><testcase name="{name}"/></testsuite>'.encode())
    assert report.passed[0] == "a b"
    assert len(report.passed[1]) == 500


def test_a_report_of_100_000_tests_is_read_in_seconds():
    """Streamed; a long failure text is bounded."""
    one = '<testcase classname="c" name="t%d"><failure>%s</failure></testcase>'
    data = ("<testsuite>" + "".join(one % (n, "x" * 20) for n in range(100_000)) + "</testsuite>").encode()
    started = time.process_time()
    assert len(parse_junit(data).failed) == 100_000
    assert time.process_time() - started < 30


def test_a_full_loopd_report_becomes_facts():
    """Metrics and findings of the protocol."""
    report = parse_loopd(
        json.dumps(
            {
                "schema": "loopd.verifier/1", "status": "fail", "summary": "slow", "evidence": "private",
                "metrics": {"median_s": {"value": 2, "unit": "s", "better": "lower"}},
                "findings": [{"message": "\x1b[31mslow", "rule": "speed", "file": "a.py", "line": 3}],
                "artifacts": ["curve.svg"],
            }
        ).encode()
    )  # fmt: skip
    assert report.status == "fail"
    assert report.domain_metrics()["median_s"].value == 2.0
    (finding,) = report.domain_findings()
    assert (finding.message, finding.level, finding.line) == ("slow", "error", 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"status": "pass"}', "schema: Field required"),
        ('{"schema": "loopd.verifier/2", "status": "pass"}', "schema"),
        ('{"schema": "loopd.verifier/1", "status": "met"}', "status"),
        ('{"schema": "loopd.verifier/1", "status": "pass", "extra": 1}', "extra"),
        (
            '{"schema": "loopd.verifier/1", "status": "pass", "metrics": {"m": {"value": true}}}',
            "valid number",
        ),
        (
            '{"schema": "loopd.verifier/1", "status": "pass", "metrics": {"m": {"value": "1"}}}',
            "valid number",
        ),
        ('{"schema": "loopd.verifier/1", "status": "pass", "metrics": {"m": {"value": NaN}}}', "NaN"),
        ('{"schema": "loopd.verifier/1", "status": "pass", "metrics": {"m": {"value": 1e999}}}', "finite"),
        ('{"schema": "loopd.verifier/1", "status": "fail", "status": "pass"}', "twice"),
        ("[" * 100_000, "not JSON"),
        ('{"schema": "loopd.verifier/1", "sta', "not JSON"),
    ],
)
def test_a_loopd_report_is_validated_strictly(text, message):
    """Nothing is coerced, nothing unknown is ignored, no number that is not finite."""
    with pytest.raises(ReportError, match=message):
        parse_loopd(text.encode())


def test_a_report_that_is_no_plain_file_is_refused(tmp_path, monkeypatch):
    """A missing one, a link, a pipe (which must not block), a folder, one that is too long."""
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "long").write_bytes(b"x" * 101)
    monkeypatch.setattr(reports, "SIZE_LIMIT_BYTES", 100)
    assert read_report(tmp_path / "real") == b"x"
    for name, message in [
        ("none", "missing"), ("link", "cannot be read"), ("pipe", "not a regular"), (".", "not a regular"),
        ("long", "longer than"),
    ]:  # fmt: skip
        with pytest.raises(ReportError, match=message):
            read_report(tmp_path / name)
