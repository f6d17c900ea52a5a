"""`loopd ps` and `loopd status [RUN]`: where runs stand, answered within two or three bare interpreter starts.

`--json` prints one object. `loopd.status/1`: the shape of `domain.status`, and of the run `folder`, `started_at`,
`changed_at` (UTC), `pid` (0 when no supervisor lives), `pid_start`, `alive`, `crashed`. `loopd.ps/1`: `total`,
`runs`; each run has `run, goal, state, reason, next, attempt, budget, best, attention, workspace, contract` as in
`loopd.status/1`, and the same seven of the run itself; one that cannot be read has the state `unreadable` and no
budget. Both may gain fields; a field never changes its meaning.
"""

import json
import sys

from loopd.cli.index import all_runs, pick, read_status
from loopd.cli.words import (
    STATE_COLOURS,
    VERDICT_COLOURS,
    ago,
    attempts_text,
    clean,
    cost_text,
    paint,
    say,
    span,
    time_text,
    tokens_text,
    until,
    wants_colour,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any

PS_FORMAT = "loopd.ps/1"
SHOWN = 20  # runs; the rest with --all
LINES = 24
WIDTH = 79
_LEFT_OUT_OF_PS = ("format", "criteria", "step", "delivered", "wait_until")


def glance(words: list[str]) -> int:
    """Answer `ps` or `status`; the exit status. Raises `UsageError`, `StateError`."""
    command, *rest = words
    options = [word for word in rest if word.startswith("-")]
    names = [word for word in rest if not word.startswith("-")]
    known = {"ps": {"--json", "--all"}, "status": {"--json"}}[command]
    if {"-h", "--help"} & set(options):
        return _help(command)
    _refuse(command, [option for option in options if option not in known], names)
    if command == "ps":
        return _ps(as_json="--json" in options, everything="--all" in options)
    return _status(names[0] if names else "last", as_json="--json" in options)


def _status(name: str, *, as_json: bool) -> int:
    status = read_status(pick(all_runs(), name))
    say(_json(status) if as_json else "\n".join(status_lines(status, _now(), colour=wants_colour(sys.stdout))))
    return 0


def _ps(*, as_json: bool, everything: bool) -> int:
    runs = all_runs()
    shown = [_readable(run) for run in (runs if everything else runs[:SHOWN])]
    if as_json:
        brief = [{key: value for key, value in run.items() if key not in _LEFT_OUT_OF_PS} for run in shown]
        say(_json({"format": PS_FORMAT, "total": len(runs), "runs": brief}))
        return 0
    say("\n".join(ps_lines(shown, len(runs), _now(), colour=wants_colour(sys.stdout))))
    return 0


def _readable(run: "dict[str, Any]") -> "dict[str, Any]":
    """One run that cannot be read (its folder was removed, a later loopd wrote it) must not hide the others."""
    try:
        return read_status(run)
    except Exception as error:
        from loopd.domain.errors import StateError

        if not isinstance(error, StateError):
            raise
        reason = str(error).partition("\n")[0]
        return {**run, "state": "unreadable", "reason": reason, "next": "", "attempt": 0, "budget": None} | _LIFELESS


_LIFELESS: "dict[str, Any]" = {"best": None, "attention": [], "alive": False, "crashed": False}


def ps_lines(shown: "list[dict[str, Any]]", total: int, now: "datetime", *, colour: bool) -> list[str]:
    """One line a run, the most recently changed first."""
    if not shown:
        return ["no runs yet; `loopd init` writes a contract, `loopd run CONTRACT` starts a run"]
    width = min(max(3, *(len(run["run"]) for run in shown)), 30)
    lines = [paint(f"{'RUN':<{width}}  {'STATE':<11}  {'ATTEMPTS':>8}  {'TIME':>11}  CHANGED", "dim", on=colour)]
    for run in shown:
        budget = run["budget"]
        attempts = "{used}/{allowed}".format_map(budget["attempts"]) if budget else "-"
        state = paint(f"{run['state']:<11}", STATE_COLOURS.get(run["state"]), on=colour)
        spent = span(budget["time_s"]["used"]) if budget else "-"
        lines.append(
            f"{clean(run['run'], width):<{width}}  {state}  {attempts:>8}  {spent:>11}  {ago(run['changed_at'], now)}"
        )
        if run["crashed"]:
            lines.append(f"{'':<{width}}  crashed; {run['next']}")
        if not budget:
            lines.append(f"  {clean(run['reason'], WIDTH - 2)}")
    if total > len(shown):
        lines.append(f"and {total - len(shown)} older ones: loopd ps --all")
    return lines


def status_lines(status: "dict[str, Any]", now: "datetime", *, colour: bool) -> list[str]:
    """One screen, at most 24 lines of 80 columns, the most needed first."""
    head = [*_head(status, now, colour=colour), "", *_budget(status)]
    tail = [*_attention(status, colour=colour), *_rows("delivered", [status["delivered"]])[:2]]
    tail += [*_rows("workspace", [status["workspace"]])[:2], *_rows("next", [status["next"]])]
    room = LINES - len(head) - len(tail) - 3
    return [*head, *_criteria(status, room, colour=colour), *_best(status), "", *tail]


def _head(status: "dict[str, Any]", now: "datetime", *, colour: bool) -> list[str]:
    state = paint(status["state"], STATE_COLOURS.get(status["state"]), on=colour)
    name, since = clean(status["run"], WIDTH), f"{state}, {ago(status['changed_at'], now)}"
    fits = len(name) + len(status["state"]) + 20 <= WIDTH
    title = [f"{paint(name, 'bold', on=colour)}  {since}"] if fits else [paint(name, "bold", on=colour), f"  {since}"]
    reason = clean(status["reason"], 3 * WIDTH) if status["reason"] else ""
    if status["crashed"]:
        reason = f"crashed; {status['next']}"
    elif status["state"] == "waiting" and status["wait_until"]:
        reason = f"until {until(status['wait_until'], now)}: {reason}"
    elif status["state"] == "running" and status["attempt"]:
        reason = f"attempt {status['attempt']}: {_STEPS.get(status['step'], status['step'])}"
    elif status["state"] == "running":
        reason = _STEPS.get(status["step"], status["step"])
    return [*title, *(f"  {line}" for line in _wrapped(reason, WIDTH - 2)[:3])]


_STEPS = {
    "preflight": "the baseline is measured",
    "launch": "the next attempt is prepared",
    "watch": "the agent is at work",
    "capture": "its changes are taken",
    "verify": "the criteria are checked",
    "decide": "what follows is decided",
    "wait": "waiting",
    "close": "the result is delivered",
}


def _budget(status: "dict[str, Any]") -> list[str]:
    budget = status["budget"]
    waited = [f"waited {span(budget['waited_s'])}"] if budget["waited_s"] >= 1 else []
    parts = [attempts_text(budget), time_text(budget), cost_text(budget), tokens_text(budget), *waited]
    lines = _joined(parts, " · ", WIDTH - 11)
    return [f"{'budget' if number == 0 else '':<11}{line}" for number, line in enumerate(lines)]


def _criteria(status: "dict[str, Any]", room: int, *, colour: bool) -> list[str]:
    """The matrix: what holds now, before, at best; with too many, those that do not hold come first."""
    shown = criteria = status["criteria"]
    if not criteria:
        return []
    if len(criteria) > room:
        shown = sorted(criteria, key=lambda criterion: bool(criterion["holds"]))[: room - 1]
    width = min(max(9, *(len(criterion["name"]) for criterion in shown)), 24)
    lines = [paint(f"{'criterion':<{width}}  {'now':<7}{'baseline':<10}best", "dim", on=colour)]
    lines += [_criterion(criterion, width, colour=colour) for criterion in shown]
    if left := len(criteria) - len(shown):
        held = sum(bool(criterion["holds"]) for criterion in criteria) - sum(bool(row["holds"]) for row in shown)
        lines.append(f"and {left} more, of which {held} hold; loopd show tells all")
    return lines


def _criterion(criterion: "dict[str, Any]", width: int, *, colour: bool) -> str:
    cells = [_cell(criterion[column], size, colour=colour) for column, size in (("now", 7), ("baseline", 10))]
    line = f"{clean(criterion['name'], width):<{width}}  {''.join(cells)}"
    summary = clean(criterion["summary"], WIDTH - width - 26) if criterion["now"] and not criterion["holds"] else ""
    return f"{line}{_cell(criterion['best'], 7, colour=colour)}{summary}".rstrip()


def _cell(word: str | None, width: int, *, colour: bool) -> str:
    return paint(word or "-", VERDICT_COLOURS.get(word or ""), on=colour) + " " * (width - len(word or "-"))


def _best(status: "dict[str, Any]") -> list[str]:
    best = status["best"]
    text = f"attempt {best['attempt']}: {best['met']} of {best['of']} criteria hold" if best else "no attempt yet"
    return [f"{'best':<11}{text}"]


def _attention(status: "dict[str, Any]", *, colour: bool) -> list[str]:
    items = status["attention"]
    more = [f"and {len(items) - 2} earlier ones; loopd show tells all"] if len(items) > 2 else []
    lines = _rows("attention", [clean(item, WIDTH - 11) for item in items[-2:]] + more)
    return [paint(line, "yellow", on=colour) for line in lines]


def _rows(label: str, items: list[str]) -> list[str]:
    texts = [line for item in items if item for line in _wrapped(clean(item, 4 * WIDTH), WIDTH - 11)[:4]]
    return [f"{label if number == 0 else '':<11}{text}" for number, text in enumerate(texts)]


def _wrapped(text: str, width: int) -> list[str]:
    return _joined(text.split(" "), " ", width) if text else []


def _joined(parts: list[str], between: str, width: int) -> list[str]:
    """Parts put into as few lines as they need; a part longer than a line has one of its own, cut."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(between) + len(part) <= width:
            lines[-1] += between + part
        else:
            lines.append(part if len(part) <= width else part[: width - 1] + "…")
    return lines


def _refuse(command: str, unknown: list[str], names: list[str]) -> None:
    if not unknown and len(names) <= (command == "status"):
        return
    from loopd.domain.errors import UsageError

    if unknown:
        raise UsageError(f"{command} has no option {clean(unknown[0])}; see loopd {command} --help")
    raise UsageError(f"{command}: one argument too many: {clean(names[-1])}; see loopd {command} --help")


def _help(command: str) -> int:
    with open(f"{__file__.rpartition('/')[0]}/help/{command}.txt", encoding="utf-8") as file:  # noqa: PTH123
        say(file.read().rstrip("\n"))
    return 0


def _now() -> "datetime":
    from datetime import UTC, datetime

    return datetime.now(UTC)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, indent=1)
