"""A calm screen for a run at work. On leaving, the terminal is as before, with the story of the run in plain lines."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self, TextIO, cast

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from loopd.adapters.state import RunFolder
from loopd.cli.telling import Line, Teller
from loopd.cli.view import Quiet
from loopd.cli.words import (
    STATE_COLOURS,
    VERDICT_COLOURS,
    attempts_text,
    cost_text,
    span,
    time_text,
    tokens_text,
    until,
)
from loopd.domain.record import Current, Record, Step
from loopd.domain.run import State
from loopd.domain.status import status
from loopd.domain.text import redact, safe_line
from loopd.domain.verdict import Verdict

KEPT = 500  # lines of the story
CLOCK_S = 1.0  # between paints while nothing happens
CALM_S = 0.2  # at least, between two paints
LONGEST_PAINT_S = 2.0
LEAVING = "Ctrl-C leaves after this step, twice at once; loopd resume goes on"
_TAIL_BYTES = 8192
_COLUMN = 7
_TONES = {"good": "green", "bad": "red", "warn": "yellow"}
_PHASES = {
    Step.PREFLIGHT: "the baseline is measured",
    Step.LAUNCH: "the next attempt is prepared",
    Step.WATCH: "the agent is at work",
    Step.CAPTURE: "its changes are taken",
    Step.VERIFY: "the criteria are checked",
    Step.DECIDE: "what follows is decided",
    Step.CLOSE: "the result is delivered",
}


class LiveScreen:
    """See `view.View`. Everything of the agent's is shown through the safe view."""

    def __init__(
        self,
        folder: RunFolder,
        *,
        criteria: Sequence[str],
        contract: str,
        stream: Quiet,
        now: Callable[[], datetime] | None = None,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._criteria = tuple(criteria)
        self._contract = contract
        self._now = now or (lambda: datetime.now(UTC))
        self._elapsed = elapsed
        self._teller = Teller(contract, self._now)
        self._story: deque[tuple[datetime, Line]] = deque(maxlen=KEPT)
        self._record, self._at = Record(), elapsed()
        self._console = Console(file=cast(TextIO, stream), highlight=False, markup=False, emoji=False)
        self._live = Live(
            console=self._console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._painted: object = None
        self._news, self._over = Event(), False
        self._painter = Thread(target=self._paint_on, name="screen", daemon=True)

    def observe(self, record: Record, kind: str, data: Mapping[str, Any]) -> None:
        """See `View`."""
        at = self._now().astimezone()
        self._story.extend((at, line) for line in self._teller.tell(record, kind, data))
        self._record, self._at = record, self._elapsed()
        self._news.set()

    def __enter__(self) -> Self:
        self._live.start()
        self._painter.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        self._news.set()
        self._painter.join(LONGEST_PAINT_S)
        self._live.stop()
        for at, line in self._story:
            self._console.print(_told(at, line), soft_wrap=True)

    def _paint_on(self) -> None:
        while not self._over:
            self._paint()
            self._news.wait(CLOCK_S)
            self._news.clear()
            time.sleep(CALM_S)

    def _paint(self) -> None:
        """Rendering costs ten times more than composing: an unchanged screen is left alone."""
        size, lines = self._console.size, self.screen()
        if (size, lines) != self._painted:
            self._painted = (size, lines)
            self._live.update(Group(*lines), refresh=True)

    def screen(self) -> list[Text]:
        """The lines on the screen now, made for its present size."""
        width, height = self._console.size
        record = self._record
        head = [*self._head(record), Text(), *self._budget(record, width), Text()]
        foot = [*self._facts(record), Text()]
        room = max(3, height - len(head) - len(foot) - 4)
        matrix = _matrix(record, self._criteria, width, min(len(self._criteria), room - 1))
        rest = max(0, height - len(head) - len(matrix) - len(foot) - 1)
        story = [_told(at, line) for at, line in list(self._story)[-rest:]] if rest else []
        lines = [*head, *matrix, *foot, *story][: height - 1]
        lines += [Text() for _ in range(height - 1 - len(lines))]
        lines.append(Text(LEAVING, style="dim"))
        for line in lines:
            line.truncate(width, overflow="ellipsis")
            line.no_wrap = True
        return lines

    def _head(self, record: Record) -> Iterator[Text]:
        state = str(record.state)
        yield Text.assemble((record.run or "loopd", "bold"), "  ", (state, STATE_COLOURS.get(state, "")))
        yield Text(f"  {self._phase(record)}")

    def _phase(self, record: Record) -> str:
        current = record.current
        if record.step is Step.OVER:
            return safe_line(record.reason)
        if record.state is State.WAITING and record.wait_until:
            return f"until {until(record.wait_until, self._now())}: {safe_line(record.reason)}"
        phase = _PHASES.get(record.step, str(record.step))
        if current is None or record.step in (Step.PREFLIGHT, Step.LAUNCH):
            return phase
        age = ""
        if record.step is Step.WATCH:
            age = f", {span(self._active_s(record) - current.started_s)} of at most {span(current.reserve.time_s)}"
        return f"attempt {current.number}: {phase}{age}"

    def _active_s(self, record: Record) -> float:
        working = record.step is not Step.OVER and record.state is not State.WAITING
        return record.spent.time_s + (self._elapsed() - self._at if working else 0.0)

    def _budget(self, record: Record, width: int) -> Iterator[Text]:
        told = status(record, (), active_s=self._active_s(record), contract=self._contract, workspace="")["budget"]
        first, second = [attempts_text(told), time_text(told)], [cost_text(told), tokens_text(told)]
        whole = " · ".join(first + second)
        if len(whole) <= width:
            yield Text(whole)
            return
        yield Text(" · ".join(first))
        yield Text(" · ".join(second))

    def _facts(self, record: Record) -> Iterator[Text]:
        if record.best:
            yield Text(
                f"best: attempt {record.best.number}, {record.best.score.met} of {len(self._criteria)} criteria hold"
            )
        if record.attention:
            yield Text(f"attention: {redact(safe_line(record.attention[-1]))}", style="yellow")
        if record.current and (said := last_line(self._folder.attempt(record.current.number) / "stdout.log")):
            yield Text(f"agent: {said}", style="dim")


def last_line(path: Path) -> str:
    """The last line a process has printed, safe; empty when there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return ""
    said = (redact(safe_line(line)) for line in reversed(lines))
    return next((line for line in said if line), "")


def _matrix(record: Record, criteria: Sequence[str], width: int, rows: int) -> list[Text]:
    """Criteria by attempts: the baseline, then as many of the last attempts as there is room for."""
    wide = min(max(9, *(len(name) for name in criteria)), 30) if criteria else 9
    columns = _columns(record)
    columns = [columns[0], *columns[1:][-max(1, (width - wide - 2) // _COLUMN - 1) :]]
    shown = list(criteria)
    latest = next((verdicts for _, verdicts in reversed(columns) if verdicts), {})
    holding = {name for name in criteria if name in latest and latest[name].status == "pass"}
    if len(shown) > rows:
        shown = sorted(criteria, key=holding.__contains__)[: max(1, rows - 1)]
    lines = [Text(f"{'criterion':<{wide}}  " + "".join(f"{label:<{_COLUMN}}" for label, _ in columns), style="dim")]
    for name in shown:
        line = Text(f"{name[:wide]:<{wide}}  ")
        for _, verdicts in columns:
            word = str(verdicts[name].status) if name in verdicts else "-"
            line.append(f"{word:<{_COLUMN}}", style=VERDICT_COLOURS.get(word, "dim"))
        lines.append(line)
    if more := len(criteria) - len(shown):
        held = len(holding.difference(shown))
        lines.append(Text(f"and {more} more, of which {held} hold", style="dim"))
    return lines


def _columns(record: Record) -> list[tuple[str, Mapping[str, Verdict]]]:
    columns: list[tuple[str, Mapping[str, Verdict]]] = [("before", record.baseline_verdicts)]
    columns += [(f"#{summary.number}", summary.verdicts) for summary in record.recent]
    current = record.current
    if current and (not record.recent or current.number > record.recent[-1].number):
        columns.append((f"#{current.number}", _verdicts(current)))
    return columns


def _verdicts(current: Current) -> Mapping[str, Verdict]:
    return {**current.verdicts, **current.fresh}


def _told(at: datetime, line: Line) -> Text:
    return Text.assemble((f"{at:%H:%M:%S}  ", "dim"), (line.text, _TONES.get(line.tone, "")))
