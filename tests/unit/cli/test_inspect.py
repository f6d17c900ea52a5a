"""`loopd show`, `loopd logs`, `loopd diff` from a run's own folder."""

import json
from pathlib import Path

import pytest

from loopd.cli.inspect import diff, logs, show, stat_lines
from loopd.domain.errors import UsageError
from sample_runs import SampleRun, typical, verdict

HOSTILE = "\x1b[?1049h\x1b]52;c;QUFB\x07gone"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOOPD_STATE", str(tmp_path))
    return tmp_path


def test_show_tells_settings_attempts_decisions_and_where_the_evidence_lies(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = typical(state).publish()
    assert show("last") == 0
    text = capsys.readouterr().out
    assert "budget.time      8h  flag --time" in text
    assert "1  finished   1 min  0.41 USD, 120k tokens  2 files  0 of 3" in text
    assert "2  finished   3 min  unknown" in text
    assert "2 of 3: tests, types" in text
    assert "3  left open" in text
    assert f"put back: .github/ci.yml; the changed versions: {run.folder.root}/attempts/0001/restored" in text
    assert "after attempt 2: continue: 1 of 3 criteria fail: lint" in text


def test_show_of_one_attempt_is_in_detail_and_of_that_one_only(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = typical(state).publish()
    show("retry-client", attempt=2)
    text = capsys.readouterr().out
    assert f"tests: pass (2 s); evidence: {run.folder.root}/checks/0002-tests" in text
    assert "Attempt 1" not in text
    with pytest.raises(UsageError, match="the last is attempt 3"):
        show("last", attempt=9)


def test_show_tamper_tells_only_attempts_that_touched_what_they_must_not(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typical(state).ends(tampered="pinned copies were changed: tests").publish()
    show("last", tamper=True)
    text = capsys.readouterr().out
    assert "### Attempt 1" in text
    assert "tampering: pinned copies were changed: tests" in text
    assert "### Attempt 2" not in text


def test_show_json_is_versioned_and_holds_every_attempt(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typical(state).publish()
    show("last", as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["format"] == "loopd.show/1"
    assert [one["attempt"] for one in told["attempts"]] == [1, 2, 3]
    assert told["status"]["crashed"] is True


def test_an_attempt_that_was_voided_and_reserved_again_is_told_as_two(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = typical(state).note("attempt.voided", attempt=3)
    run.note(
        "attempt.reserved", attempt=3, before="b", base="b", reserve={"time_s": 60.0}, instruction="i", notes_used=0
    )
    run.ends().publish()
    show("last", as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert [(one["attempt"], one["voided"], one["outcome"]) for one in told["attempts"][2:]] == [
        (3, True, None),
        (3, False, "finished"),
    ]


def test_pipe_5_show_and_logs_print_no_escape_of_a_program(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Alternate screen and OSC 52 in an agent's or a verifier's output reach the terminal as text only."""
    run = SampleRun(state).baseline(a=verdict("tests", "fail", HOSTILE)).attempt(1, out=HOSTILE.encode() + b"\nend")
    run.ends(reason=HOSTILE, ended=(HOSTILE,), tampered=HOSTILE).judged(a=verdict("tests", "fail", HOSTILE))
    run.decided("continue", HOSTILE).note("owner.steered", text=HOSTILE).note("attention", text=HOSTILE)
    run.over("blocked", HOSTILE, remedy=HOSTILE).publish()
    show("last")
    logs("last")
    text = capsys.readouterr().out
    assert text.count("gone") > 5
    assert "end\n" in text
    assert not set(text) & {"\x1b", "\x07"}


def test_pipe_5_the_raw_bytes_stay_in_the_file_and_are_there_for_who_asks(
    state: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """`--raw` is the log byte for byte."""
    out = HOSTILE.encode() + b"\n\xff\n"
    run = typical(state).ends()
    (run.folder.attempt(3) / "stdout.log").write_bytes(out)
    run.publish()
    logs("last", raw=True)
    assert capfdbinary.readouterr().out == out


def test_logs_are_of_the_last_attempt_unless_another_is_named(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = typical(state)
    (run.folder.attempt(3) / "stderr.log").write_bytes(b"trouble\n")
    run.publish()
    logs("last")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("thinking about lint\n", "trouble\n")
    logs("last", attempt=1)
    assert capsys.readouterr().out == "working\n"
    with pytest.raises(UsageError, match="no attempt 9"):
        logs("last", attempt=9)


def test_following_a_run_that_is_over_ends_at_once(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typical(state).ends().over("stopped", "by its owner").publish()
    logs("last", follow=True)
    assert capsys.readouterr().out == "thinking about lint\n"


def test_logs_redact_secrets_that_an_agent_printed(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = "gh" + "p_" + "a1" * 18
    run = typical(state)
    (run.folder.attempt(3) / "stdout.log").write_text(f"using {token} now\n")
    run.publish()
    logs("last")
    assert capsys.readouterr().out == "using [redacted] now\n"


def test_diff_says_what_there_is_when_an_attempt_is_missing(state: Path) -> None:
    SampleRun(state).baseline(a=verdict("tests", "fail")).publish()
    with pytest.raises(UsageError, match="no attempt has been captured yet"):
        diff("last")
    with pytest.raises(UsageError, match="no verified attempt"):
        diff("last", best=True)
    with pytest.raises(UsageError, match="not both"):
        diff("last", attempt=1, best=True)


def test_a_stat_counts_lines_and_is_not_misled_by_lines_that_look_like_headers() -> None:
    patch = (
        "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n--- old comment\n+++ new\n+x\n same\n"
        "diff --git a/b.bin b/b.bin\nBinary files differ\n"
    )
    assert list(stat_lines(patch)) == ["a.py   +2 -1", "b.bin  +0 -0"]
