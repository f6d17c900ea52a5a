"""What an event of the ledger means in a line or two; most events need no line."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from textwrap import wrap
from typing import Any

from msgspec import Struct, field

from loopd.cli.words import count, span, until, usd
from loopd.domain.record import Record
from loopd.domain.run import State, next_step
from loopd.domain.text import redact, safe_line

LIMIT = 300  # characters of one line
_SHOWN = 5  # paths or commands named in one line


class Line(Struct, frozen=True):
    """One line for people, and whether it is good, bad, a warning, or none of them."""

    text: str
    tone: str = ""  # "good" | "bad" | "warn" | ""


class Teller(Struct):
    """Tells events of one run; what was told once is not told again."""

    contract: str
    now: Callable[[], datetime]
    restored: set[str] = field(default_factory=set)

    def tell(self, record: Record, kind: str, data: Mapping[str, Any]) -> tuple[Line, ...]:
        """The lines of one event, `record` being what the run is after it. Safe to print."""
        say = _SAYINGS.get(kind)
        said = say(self, record, data) if say else ()
        lines = (Line(said),) if isinstance(said, str) else said
        return tuple(Line(redact(safe_line(line.text, LIMIT)), line.tone) for line in lines if line.text)


Said = str | Sequence[Line]


def verdict_line(data: Mapping[str, Any], note: str = "") -> Line:
    """Such as "tests: fail (2.1 s), 3 failing tests"."""
    status = str(data["status"])
    took = f" ({span(data['duration_s'])})" if data.get("duration_s", 0) >= 1 else ""
    why = data.get("reason") or ("" if status == "pass" else data.get("summary", ""))
    flags = f" [{', '.join(data['flags'])}]" if data.get("flags") else ""
    text = f"{data['criterion']}: {status}{note}{took}{f', {why}' if why else ''}{flags}"
    return Line(text, {"pass": "good", "skip": "warn"}.get(status, "bad"))


def usage_text(usage: Mapping[str, Any] | None) -> str:
    """Such as "0.41 USD, 120k tokens (partial)"; empty when nothing was told."""
    if not usage:
        return ""
    cost, tokens = usage.get("cost_usd"), usage.get("tokens")
    figures = [f"{usd(cost)} USD"] if cost is not None else []
    figures += [f"{count(tokens)} tokens"] if tokens is not None else []
    marks = [mark for mark in ("partial", "estimated") if usage.get(mark)] if figures else []
    return ", ".join(figures) + (f" ({', '.join(marks)})" if marks else "")


def exit_text(left: Mapping[str, Any]) -> str:
    """Such as "exit 3", "SIGKILL", "lost"."""
    if left.get("lost"):
        return "lost"
    return str(left.get("signal") or f"exit {left.get('status')}")


def named(items: Sequence[str]) -> str:
    """The first few, and how many more."""
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more


def number_of(amount: int, thing: str) -> str:
    """Such as "1 file", "3 files"."""
    return f"{amount} {thing}" if amount == 1 else f"{amount} {thing}s"


def _opened(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    """The settings that hold, each with who said so; what nobody said is a default, told in a few lines."""
    settings = data.get("settings", ())
    said = [
        f"setting {one['name']}: {one['value']} ({one['source']})" for one in settings if one["source"] != "default"
    ]
    rest = [f"{one['name']} {one['value']}" for one in settings if one["source"] == "default"]
    by_default = wrap(f"by default: {' · '.join(rest)}", 100, break_on_hyphens=False) if rest else []
    return [Line(row) for row in (*said, *by_default)]


def _started(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    return f"run {record.run} {'goes on' if data.get('resumed') else 'starts'}"


def _asked(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    if data.get("at_once"):
        return [Line(f"{data['signal']}: leaving now; what is at work is ended first", "warn")]
    return [Line("leaving when this attempt is judged; Ctrl-C once more leaves now", "warn")]


def _prepared(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    setup = f", setup {span(data['setup_s'])}" if data.get("setup_s", 0) >= 1 else ""
    agent = f"; agent: {data['agent']}" if data.get("agent") else ""
    lines = [Line(f"tree prepared: {number_of(data.get('files', 0), 'file')}{setup}{agent}")]
    return [*lines, *(Line(f"note: {note}", "warn") for note in data.get("notes", ()))]


def _baseline(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    line = verdict_line(data["verdict"])
    return [Line(f"baseline {line.text}")]


def _preflight(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    verdicts = record.baseline_verdicts.values()
    held = sum(verdict.status == "pass" for verdict in verdicts)
    lines = [f"before the first attempt {held} of {len(verdicts)} criteria hold", data.get("forecast", "")]
    return [Line(line) for line in lines]


def _edited(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    return f"your edits are taken over: {named(data['paths'])}" if data.get("paths") else ""


def _launched(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    if data.get("adopted"):
        return f"attempt {data['attempt']} is adopted: its agent is still at work"
    rung = f", told anew ({record.current.rung})" if record.current and record.current.rung else ""
    return f"attempt {data['attempt']} of {record.allowance.attempts} starts{rung}"


def _voided(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    return f"attempt {data['attempt']} was never launched; it starts now"


def _ended(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    left, reason = data.get("exit", {}), data.get("reason", "")
    took = left.get("duration_s", 0)
    facts = [f"after {span(took)}" if took >= 1 else "", reason or exit_text(left), usage_text(data.get("usage"))]
    outcome = str(data["outcome"]).replace("_", " ")
    tone = "" if outcome == "finished" else "warn"
    lines = [Line(f"attempt {data['attempt']} ended: {outcome}, {', '.join(fact for fact in facts if fact)}", tone)]
    if data.get("ended"):
        lines.append(Line(f"background work found alive was ended: {named(data['ended'])}", "warn"))
    return lines


def _captured(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    changed = data.get("changed", ())
    what = f"changed {number_of(len(changed), 'file')}: {named(changed)}" if changed else "changed nothing that counts"
    lines = [Line(f"attempt {data['attempt']} {what}", "" if changed else "warn")]
    fresh = [path for path in data.get("restored", ()) if path not in teller.restored]
    teller.restored.update(fresh)
    if fresh:
        lines.append(Line(f"put back, since the contract protects it: {named(fresh)}", "warn"))
    if data.get("tampered"):
        lines.append(Line(f"tampering: {data['tampered']}", "bad"))
    return lines


def _verdict(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    note = " on a fresh tree" if data.get("fresh") else ""
    note += ", as before on this tree" if data["verdict"].get("cached") else ""
    line = verdict_line(data["verdict"], note)
    return [Line(f"attempt {data.get('attempt', record.number)} {line.text}", line.tone)]


def _assessed(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    return [Line(data["broken"], "bad")] if data.get("broken") else ()


def _decided(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    reason, decision = data["reason"], data["decision"]
    pause = f"; next attempt at {until(data['wait_until'], teller.now())}" if data.get("wait_until") else ""
    match decision:
        case "met" | "stop":
            return ()  # told when the run ends
        case "escalate":
            return [Line(f"stuck: {reason}; the next attempt is told anew ({data['rung']}){pause}", "warn")]
        case "wait":
            return [Line(f"waiting: {reason}{pause}", "warn")]
    return f"go on: {reason}"


def _waited(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    return f"waited {span(data.get('waited_s', 0))}; going on"


def _paused(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    return f"this machine stood still for {span(data['seconds'])}"


def _steered(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    return f"your note goes into the next instruction: {data['text']}"


def _extended(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    allowance = record.allowance
    return f"budget extended: now {allowance.attempts} attempts, {span(allowance.time_s)}"


def _amended(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    return "the contract was amended; the baseline is measured again"


def _reopened(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    return "reopened by its owner"


def _delivered(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    return [Line(f"delivered: {data['text']}", "good")]


def _attention(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    return [Line(f"attention: {data['text']}", "warn")]


def _interrupted(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    return [Line(data.get("reason") or "interrupted", "warn"), Line(f"next: {_next(teller, record)}")]


def _over(teller: Teller, record: Record, data: Mapping[str, Any]) -> Said:
    tone = "good" if record.state is State.MET else "bad"
    remedy = [Line(data["remedy"])] if data.get("remedy") else []
    evidence = [Line(f"evidence: {data['evidence']}")] if data.get("evidence") else []
    return [Line(f"{record.state}: {record.reason}", tone), *remedy, *evidence, Line(f"next: {_next(teller, record)}")]


def _next(teller: Teller, record: Record) -> str:
    return next_step(record.state, record.run, teller.contract)


_SAYINGS: Mapping[str, Callable[[Teller, Record, Mapping[str, Any]], Said]] = {
    "run.opened": _opened,
    "run.started": _started,
    "interrupt.asked": _asked,
    "tree.prepared": _prepared,
    "baseline.verdict": _baseline,
    "preflight.passed": _preflight,
    "owner.edited": _edited,
    "attempt.started": _launched,
    "attempt.voided": _voided,
    "attempt.ended": _ended,
    "attempt.captured": _captured,
    "verdict": _verdict,
    "attempt.assessed": _assessed,
    "decision": _decided,
    "wait.ended": _waited,
    "host.paused": _paused,
    "owner.steered": _steered,
    "owner.extended": _extended,
    "owner.amended": _amended,
    "run.reopened": _reopened,
    "delivered": _delivered,
    "attention": _attention,
    "run.interrupted": _interrupted,
    "run.ended": _over,
}
