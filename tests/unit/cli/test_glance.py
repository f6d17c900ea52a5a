"""The screens of `loopd status` and `loopd ps`."""

import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from loopd.cli.glance import glance, ps_lines, status_lines
from loopd.cli.index import all_runs, read_status
from sample_runs import SampleRun, typical, verdict

NOW = datetime(2026, 1, 2, 3, 20, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOOPD_STATE", str(tmp_path))
    return tmp_path


def screen(run: SampleRun, *, colour: bool = False, **more: Any) -> list[str]:
    run.publish(**more)
    [row] = [row for row in all_runs() if row["run"] == run.run]
    return status_lines(read_status(row), NOW, colour=colour)


def ended(state: Path, decision: str, run_state: str, reason: str) -> SampleRun:
    run = typical(state).ends().judged(a=verdict("tests", "pass"))
    return run.decided(decision, reason, state=run_state).over(run_state, reason)


def test_one_look_says_state_budget_criteria_best_and_what_to_do(state: Path) -> None:
    text = "\n".join(screen(typical(state)))
    assert "retry-client-k3f9  interrupted" in text
    assert "attempts 2 of 30" in text
    assert "cost 2.41 of 20.00 USD (estimated)" in text
    assert "lint       fail   fail      fail   src/client.py:10 E501" in text
    assert "best       attempt 2: 2 of 3 criteria hold" in text
    assert "next       loopd resume retry-client-k3f9" in text


@pytest.mark.parametrize("colour", [False, True])
def test_a_screen_with_everything_too_long_fits_into_24_lines_of_80_columns(state: Path, colour: bool) -> None:
    run = SampleRun(state, run="a" * 50 + "-k3f9", workspace=Path("/home/ada/" + "long folder/" * 20))
    many = {f"c{n}": verdict(f"criterion-{n:02}-with-a-long-name", "fail", "word " * 60) for n in range(40)}
    run.baseline(**many)
    run.attempt(1).ends().judged(**{**many, "c0": verdict("criterion-00-with-a-long-name", "pass")})
    for number in range(6):
        run.note("attention", text=f"look at this, number {number}: " + "word " * 60)
    run.note("delivered", text="branch " + "x" * 300)
    lines = screen(run.decided("continue", "word " * 100), colour=colour)
    plain = [line.replace("\x1b[", "\0") for line in lines]
    assert len(lines) <= 24
    if not colour:
        assert max(map(len, lines)) < 80
        assert not any("\0" in line for line in plain)
    assert any("of which" in line for line in lines)


@pytest.mark.parametrize(
    ("decision", "run_state", "next_step"),
    [
        ("met", "met", "loopd show"),
        ("stop", "exhausted", "--best"),
        ("stop", "stuck", "loopd steer"),
        ("stop", "halted", "--tamper"),
    ],
)
def test_state_7_a_finished_run_offers_no_plain_resume(
    state: Path, decision: str, run_state: str, next_step: str
) -> None:
    """A run that came to its end is not called interrupted, although no supervisor lives."""
    lines = screen(ended(state, decision, run_state, "because"))
    [row] = [line for line in lines if line.startswith("next ")]
    assert next_step in row
    assert run_state in lines[0]
    assert not any("crashed" in line or line.endswith(f"loopd resume {'retry-client-k3f9'}") for line in lines[:2])


def test_state_7_an_interrupted_run_offers_to_resume(state: Path) -> None:
    """A clean signal is told as such, and the way on is named."""
    run = typical(state).note("run.interrupted", signal="SIGINT", reason="interrupted by SIGINT")
    lines = screen(run)
    assert "interrupted by SIGINT" in lines[1]
    assert "next       loopd resume retry-client-k3f9" in lines


def test_a_supervisor_that_is_gone_without_a_word_is_said_to_have_crashed(state: Path) -> None:
    lines = screen(typical(state))
    assert lines[1] == "  crashed; loopd resume retry-client-k3f9"


def test_a_wait_is_told_with_its_end(state: Path) -> None:
    run = typical(state, pid=1, pid_start=_start_of_init()).ends(effect=False).judged(a=verdict("tests", "fail"))
    run.decided("wait", "4 attempts in a row changed nothing", wait_until="2026-01-02T03:32:00+00:00")
    lines = screen(run)
    assert "waiting" in lines[0]
    assert "(in 12 min): 4 attempts in a row changed nothing" in lines[1]


def test_pipe_5_a_summary_that_holds_escapes_is_shown_without(state: Path) -> None:
    """What a verifier printed is text on the screen and nothing else."""
    run = SampleRun(state).baseline(a=verdict("tests", "fail"))
    run.attempt(1).ends().judged(a=verdict("tests", "fail", "\x1b[?1049h\x1b]52;c;QUFB\x07gone"))
    text = "\n".join(screen(run))
    assert "\x1b" not in text
    assert "gone" in text


def test_colour_marks_verdicts_and_nothing_else_differs(state: Path) -> None:
    run = typical(state).publish()
    [row] = all_runs()
    status = read_status(row)
    assert run.run in status_lines(status, NOW, colour=False)[0]
    coloured = "\n".join(status_lines(status, NOW, colour=True))
    assert "\x1b[31mfail\x1b[0m" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == "\n".join(status_lines(status, NOW, colour=False))


def test_ps_tells_the_newest_first_and_how_many_more_there_are(state: Path) -> None:
    typical(state, run="older-aaaa").publish()
    newest = SampleRun(state, run="newer-bbbb")
    newest.clock.advance(600)
    newest.baseline(a=verdict("tests", "pass")).over("met", "all hold").publish()
    shown = [read_status(row) for row in all_runs()]
    lines = ps_lines(shown, 27, NOW, colour=False)
    assert lines[1].startswith("newer-bbbb  met")
    assert lines[2].startswith("older-aaaa  interrupted")
    assert "loopd resume older-aaaa" in lines[3]
    assert lines[-1] == "and 25 older ones: loopd ps --all"
    assert max(map(len, lines)) < 80


def test_a_run_that_cannot_be_read_does_not_hide_the_others(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = typical(state, run="gone-aaaa").publish()
    typical(state, run="here-bbbb").publish()
    shutil.rmtree(gone.folder.root)
    assert glance(["ps"]) == 0
    said = capsys.readouterr().out
    assert "gone-aaaa  unreadable" in said
    assert "here-bbbb  interrupted" in said
    assert glance(["ps", "--json"]) == 0
    assert {run["state"] for run in json.loads(capsys.readouterr().out)["runs"]} == {"unreadable", "interrupted"}


def test_ps_without_runs_says_how_to_begin() -> None:
    nothing: list[dict[str, Any]] = []
    assert "loopd init" in ps_lines(nothing, 0, NOW, colour=False)[0]


def _start_of_init() -> int:
    from loopd.adapters.liveness import start_time

    return start_time(1) or 0
