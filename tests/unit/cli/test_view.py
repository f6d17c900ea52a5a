"""Watching a run: plain lines, NDJSON, the live screen, and terminals that die."""

import errno
import io
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import pytest
from rich.console import Console, Group

from loopd.adapters.ledger import read_ledger
from loopd.cli.live import LiveScreen, last_line
from loopd.cli.view import EventStream, PlainLines, Quiet, View, open_view
from loopd.domain.attempt import Usage
from loopd.domain.record import Record, apply
from sample_runs import SampleRun, typical, verdict

NOW = datetime(2026, 1, 2, 3, 20, 0, tzinfo=UTC)
HOSTILE = "\x1b[?1049h\x1b[?2004h\x1b]52;c;QUFB\x07\u202egone"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Dead(io.StringIO):
    """A stream whose reader is gone."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def write(self, text: str) -> int:
        raise OSError(self.number, os.strerror(self.number))


def play(run: SampleRun, view: View) -> None:
    """Show every event of the run to the view, as the engine would have."""
    record = Record()
    with view:
        for kind, data in run.seen:
            record = apply(record, kind, data, "2026-01-02T03:04:05+00:00")
            view.observe(record, kind, data)


def plain(run: SampleRun) -> list[str]:
    out = io.StringIO()
    play(run, PlainLines(contract="goals/retry.yaml", stream=Quiet(out), now=lambda: NOW))
    return [line.split("  ", 1)[1] for line in out.getvalue().splitlines()]


def screen(run: SampleRun, width: int, height: int, criteria: tuple[str, ...] = ("tests", "types", "lint")) -> str:
    view = LiveScreen(run.folder, criteria=criteria, contract="c.yaml", stream=Quiet(io.StringIO()), now=lambda: NOW)
    record = Record()
    for kind, data in run.seen:
        record = apply(record, kind, data, "2026-01-02T03:04:05+00:00")
        view.observe(record, kind, data)
    out = io.StringIO()
    view._console = console = Console(file=out, width=width, height=height, force_terminal=False)
    console.print(Group(*view.screen()))
    return out.getvalue()


def test_each_event_worth_telling_is_one_timestamped_line(tmp_path: Path) -> None:
    told = plain(typical(tmp_path))
    assert told[0].startswith(("setting ", "by default: "))
    lines = told[told.index("run retry-client-k3f9 starts") :]
    assert lines[0] == "run retry-client-k3f9 starts"
    assert "before the first attempt 1 of 3 criteria hold" in lines
    assert "attempt 1 of 30 starts" in lines
    assert "attempt 1 ended: finished, after 1 min, exit 0, 0.41 USD, 120k tokens" in lines
    assert "attempt 2 tests: pass (2 s)" in lines
    assert "go on: 1 of 3 criteria fail: lint" in lines


def test_a_restored_path_is_told_once(tmp_path: Path) -> None:
    run = typical(tmp_path).ends(restored=(".github/ci.yml", "tox.ini"))
    told = [line for line in plain(run) if line.startswith("put back")]
    assert told == [
        "put back, since the contract protects it: .github/ci.yml",
        "put back, since the contract protects it: tox.ini",
    ]


def test_a_wait_is_told_with_its_end_and_its_reason(tmp_path: Path) -> None:
    run = typical(tmp_path).ends(effect=False).judged(a=verdict("tests", "fail"))
    run.decided("wait", "3 attempts in a row changed nothing", wait_until="2026-01-02T03:32:00+00:00")
    [line] = [line for line in plain(run) if line.startswith("waiting")]
    assert line.startswith("waiting: 3 attempts in a row changed nothing; next attempt at ")
    assert line.endswith("(in 12 min)")


@pytest.mark.parametrize(
    ("state", "next_step"),
    [
        ("met", "loopd show retry-client-k3f9"),
        ("exhausted", "loopd diff retry-client-k3f9 --best; loopd extend retry-client-k3f9 --attempts +10"),
        ("blocked", "mend it, then loopd resume retry-client-k3f9"),
        ("stopped", "loopd run --new goals/retry.yaml"),
    ],
)
def test_an_ending_names_its_reason_and_the_next_step(tmp_path: Path, state: str, next_step: str) -> None:
    lines = plain(typical(tmp_path).over(state, "because of this", remedy="install it"))
    assert lines[-3:] == [f"{state}: because of this", "install it", f"next: {next_step}"]


def test_every_way_an_attempt_can_end_is_told_with_its_why(tmp_path: Path) -> None:
    run = typical(tmp_path).ends(
        outcome="timed_out", reason="ended after 2700 s", usage=Usage(1.0, None, partial=True), tampered="pin changed"
    )
    lines = plain(run)
    assert "attempt 3 ended: timed out, after 1 min, ended after 2700 s, 1.00 USD (partial)" in lines
    assert "tampering: pin changed" in lines
    assert "background work found alive was ended: python train.py" in lines


def test_json_is_every_event_of_the_ledger_as_it_was_recorded(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    out = io.StringIO()
    with EventStream(run.folder, Quiet(out)) as view:
        run.note("host.paused", seconds=3.0)
        run.ledger.append("recorded.elsewhere", {"by": "other code"})
        run.note("attention", text="look")
        view.observe(run.record, "attention", {})
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [set(event) for event in told] == [{"format", "seq", "at", "kind", "data"}] * 3
    recorded = list(read_ledger(run.folder.ledger))[-3:]
    assert [(one["seq"], one["at"], one["kind"], one["data"]) for one in told] == [
        (event.seq, event.at, event.kind, event.data) for event in recorded
    ]
    assert {one["format"] for one in told} == {"loopd.event/1"}


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO])
@pytest.mark.parametrize("kind", ["plain", "json", "live"])
def test_a_dead_terminal_never_ends_a_run(
    tmp_path: Path, number: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream: TextIO = Dead(number)
    if kind == "live":
        stream.isatty = lambda: True  # type: ignore[method-assign]
    run = typical(tmp_path)
    play(run, open_view(run.folder, criteria=("tests",), contract="c", stream=stream, as_json=kind == "json"))


def test_after_a_closed_pipe_nothing_fails_when_the_interpreter_leaves(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stream:
        quiet = Quiet(stream)
        quiet.write("a\n")
        assert quiet.dead
        stream.write("left over")  # what an exit would flush
        stream.flush()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60), (40, 12), (20, 6)])
def test_the_live_screen_fits_terminals_of_any_size(tmp_path: Path, width: int, height: int) -> None:
    lines = screen(typical(tmp_path), width, height).splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_the_live_screen_says_what_a_person_looks_for(tmp_path: Path) -> None:
    run = typical(tmp_path).note("attention", text="same path three times")
    text = screen(run, 100, 30)
    assert "retry-client-k3f9  running" in text
    assert "attempt 3: the agent is at work" in text
    assert "of at most 45 min" in text
    assert "attempts 2 of 30" in text
    assert "tests      fail   fail   pass   -" in text
    assert "best: attempt 2, 2 of 3 criteria hold" in text
    assert "agent: thinking about lint" in text
    assert "attention: same path three times" in text


def test_with_many_criteria_the_failing_ones_are_shown_first(tmp_path: Path) -> None:
    names = tuple(f"c{number:02}" for number in range(40))
    run = SampleRun(tmp_path).baseline(**{name: verdict(name, "pass" if name != "c39" else "fail") for name in names})
    text = screen(run, 80, 24, names)
    assert "c39" in text
    assert "more" in text


def test_pipe_5_nothing_an_agent_or_a_verifier_prints_is_live_in_a_view(tmp_path: Path) -> None:
    """Alternate screen, bracketed paste and OSC 52 become text, in lines and on the live screen."""
    run = SampleRun(tmp_path).baseline(a=verdict("tests", "fail", HOSTILE))
    run.attempt(1, out=HOSTILE.encode() + b"\n").ends(reason=HOSTILE, ended=(HOSTILE,), restored=(HOSTILE,))
    run.judged(a=verdict("tests", "fail", HOSTILE)).decided("continue", HOSTILE).note("attention", text=HOSTILE)
    run.over("blocked", HOSTILE, remedy=HOSTILE)
    for text in ("\n".join(plain(run)), screen(run, 80, 40)):
        assert "gone" in text
        assert not set(text) & {"\x1b", "\x07", "\u202e"}


def test_pipe_5_the_live_view_sends_no_escape_of_the_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a real terminal stream only the view's own sequences appear."""
    monkeypatch.setenv("TERM", "xterm")
    run = SampleRun(tmp_path).baseline(a=verdict("tests", "fail", HOSTILE)).attempt(1, out=HOSTILE.encode() + b"\n")
    out = Terminal()
    play(run, open_view(run.folder, criteria=("tests",), contract="c", stream=out))
    assert "\x1b]52" not in out.getvalue()
    assert "\x1b[?2004h" not in out.getvalue()
    assert out.getvalue().count("\x1b[?1049h") == out.getvalue().count("\x1b[?1049l") == 1


def test_no_color_leaves_the_live_view_without_colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    run = typical(tmp_path)
    out = Terminal()
    play(run, open_view(run.folder, criteria=("tests", "types", "lint"), contract="c", stream=out))
    assert not [code for code in ("\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[36m") if code in out.getvalue()]


def test_the_story_stays_on_the_terminal_after_the_live_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    run = typical(tmp_path).over("exhausted", "spent")
    out = Terminal()
    play(run, open_view(run.folder, criteria=("tests",), contract="c", stream=out))
    after = out.getvalue().rpartition("\x1b[?1049l")[2]
    assert "attempt 1 of 30 starts" in after
    assert "next: loopd diff" in after


def test_the_last_line_of_a_growing_log_is_safe_and_short(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    assert last_line(log) == ""
    log.write_bytes(b"x" * 20_000 + b"\n\x1b[1mlast\x1b[0m\n\n")
    assert last_line(log) == "last"
    log.write_bytes(b"token sk-ant-REDACTED_0123456789abcdefghij\n".replace(b"REDACTED_", b"a1b2"))
    assert "0123456789" not in last_line(log)
