"""What the ledger says about a run: a fold over its events, and nothing else is the run's state.

The loop asks the record which step comes next, so a crash re-enters exactly where the last event stands.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, ValidationError, convert, field, to_builtins
from msgspec.structs import replace

from loopd.domain.attempt import Exit, Outcome, Usage
from loopd.domain.budget import Allowance, Reserve, Spent, settle
from loopd.domain.current import Current as Current
from loopd.domain.current import Summary as Summary
from loopd.domain.decision import History, Rung
from loopd.domain.progress import Score, score
from loopd.domain.run import State
from loopd.domain.verdict import Verdict

KEPT = 20  # attempts kept in the record; the ledger has them all


class Step(StrEnum):
    """The step that comes next."""

    PREFLIGHT = "preflight"
    LAUNCH = "launch"
    WATCH = "watch"  # an attempt is reserved; its agent may be running
    CAPTURE = "capture"
    VERIFY = "verify"
    DECIDE = "decide"
    WAIT = "wait"
    CLOSE = "close"
    OVER = "over"


# Where an amended run measures the baseline first; an agent at work, and its capture, are seen to their end before.
MEASURED_ANEW = frozenset({Step.LAUNCH, Step.VERIFY, Step.DECIDE, Step.WAIT})


class Record(Struct, frozen=True):
    """A run as its ledger tells it. Bounded: it does not grow with the number of attempts."""

    run: str = ""
    goal: str = ""
    contract_digest: str = ""
    step: Step = Step.PREFLIGHT
    state: State = State.READY
    reason: str = ""
    baseline: str = ""  # tree before the first attempt
    base: str = ""  # the baseline with the owner's later edits taken over
    baseline_verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    baseline_score: Score = field(default_factory=Score)  # of the layers that an attempt would have reached
    stable_tests: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    last_after: str = ""  # the workspace as the last attempt left it
    current: Current | None = None
    last: Current | None = None  # the one before it: what is told of when `current` never launched
    recent: tuple[Summary, ...] = ()
    best: Summary | None = None
    number: int = 0
    spent: Spent = field(default_factory=Spent)
    waited_s: float = 0.0
    allowance: Allowance = field(default_factory=lambda: Allowance(attempts=20, time_s=14400.0))
    history: History = field(default_factory=History)
    rung: Rung | None = None  # how the next attempt is to be told
    notes: tuple[str, ...] = ()  # the operator's, for the next instruction, each used once
    attention: tuple[str, ...] = ()
    wait_until: str = ""  # UTC
    broken: str = ""  # a verifier that cannot run here, in words; cleared when the run is reopened
    heard: tuple[int, ...] = ()  # numbers of the owner's requests that are recorded
    signal: str = ""
    delivered: str = ""  # what was delivered where, in words
    resume_at: Step = Step.LAUNCH  # where a reopened run goes on


def apply(record: Record, kind: str, data: Mapping[str, Any], at: str = "") -> Record:
    """The record after one more event. Unknown kinds change nothing but the time spent."""
    if (elapsed := data.get("elapsed_s")) is not None:
        record = replace(record, spent=replace(record.spent, time_s=max(record.spent.time_s, elapsed)))
    if request := data.get("request"):
        record = replace(record, heard=(*record.heard, request)[-KEPT:])
    fold = _FOLDS.get(kind)
    return fold(record, data, at) if fold else record


def dump(record: Record) -> dict[str, Any]:
    """JSON values from which `load` makes an equal record."""
    data: dict[str, Any] = to_builtins(record)
    return data


def load(data: Mapping[str, Any]) -> Record:
    """The record that `dump` took apart. Raises `ValueError` when it does not fit."""
    record: Record = _value(Record, data)
    return record


def dump_value(value: object) -> Any:
    """One fact of the domain as JSON values, for an event."""
    return to_builtins(value)


def _opened(record: Record, data: Mapping[str, Any], at: str) -> Record:
    return replace(
        record,
        run=data["run"],
        goal=data["goal"],
        contract_digest=data["contract_digest"],
        allowance=_value(Allowance, data["allowance"]),
        state=State.READY,
    )


def _started(record: Record, data: Mapping[str, Any], at: str) -> Record:
    """A decided end stays decided: what died before it was recorded goes on with it."""
    if record.step in (Step.CLOSE, Step.OVER):
        return replace(record, signal="")
    state = State.WAITING if record.step is Step.WAIT else State.RUNNING
    return replace(record, state=state, signal="", reason="")


def _baseline_verdict(record: Record, data: Mapping[str, Any], at: str) -> Record:
    verdict = _value(Verdict, data["verdict"])
    return replace(
        record,
        baseline_verdicts={**record.baseline_verdicts, verdict.criterion: verdict},
        stable_tests={**record.stable_tests, verdict.criterion: tuple(data.get("stable_tests", ()))},
    )


def _preflight(record: Record, data: Mapping[str, Any], at: str) -> Record:
    """After an amendment the owner's edits and the attempts' work stay; what changed meanwhile is the owner's."""
    tree, near = data["baseline"], data.get("score")
    return replace(
        record,
        step=Step.PREFLIGHT if data.get("met") else Step.LAUNCH,  # met: the decision follows, or preflight again
        baseline=tree,
        baseline_score=_value(Score, near) if near else score(record.baseline_verdicts.values()),
        base=record.base or tree,
        last_after=record.last_after or tree,
    )


def _reserved(record: Record, data: Mapping[str, Any], at: str) -> Record:
    used = data["notes_used"]
    current = Current(
        number=data["attempt"],
        before=data["before"],
        reserve=_value(Reserve, data["reserve"]),
        reserved_at=at,
        started_s=record.spent.time_s,
        rung=record.rung,
        notes=record.notes[:used],
    )
    return replace(
        record,
        step=Step.WATCH,
        state=State.RUNNING,
        number=current.number,
        base=data["base"],
        current=current,
        last=record.current,
        notes=record.notes[used:],
        rung=None,
        wait_until="",
    )


def _voided(record: Record, data: Mapping[str, Any], at: str) -> Record:
    """Nobody has read its instruction, so what it told is told again."""
    never = _current(record)
    notes = (*never.notes, *record.notes)
    return replace(record, step=Step.LAUNCH, current=record.last, rung=never.rung, notes=notes)


def _ending(record: Record, data: Mapping[str, Any], at: str) -> Record:
    current = replace(_current(record), outcome=Outcome(data["outcome"]), reason=data["reason"])
    return replace(record, current=current)


def _ended(record: Record, data: Mapping[str, Any], at: str) -> Record:
    current = replace(
        _current(record),
        outcome=Outcome(data["outcome"]),
        exit=_value(Exit, data["exit"]),
        usage=_value(Usage, data["usage"]) if data.get("usage") else None,
        ended=tuple(data.get("ended", ())),
        reason=data.get("reason", ""),
    )
    spent = settle(record.spent, current.reserve, current.usage)
    return replace(record, step=Step.CAPTURE, current=current, spent=spent)


def _restoring(record: Record, data: Mapping[str, Any], at: str) -> Record:
    current = replace(_current(record), after=data["after"], tampered=data.get("tampered", ""))
    return replace(record, current=current)


def _captured(record: Record, data: Mapping[str, Any], at: str) -> Record:
    current = replace(
        _current(record),
        after=data["after"],
        tree=data["tree"],
        effect=data["effect"],
        outcome=Outcome(data["outcome"]),
        changed=tuple(data.get("changed", ())),
        restored=tuple(data.get("restored", ())),
        unproven=tuple(data.get("unproven", ())),
        tampered=data.get("tampered", ""),
    )
    step = Step.VERIFY if record.baseline_verdicts else Step.PREFLIGHT  # amended while the agent was at work
    return replace(record, step=step, current=current, last_after=data["workspace"])


def _verdict(record: Record, data: Mapping[str, Any], at: str) -> Record:
    current, verdict = _current(record), _value(Verdict, data["verdict"])
    if data.get("fresh"):
        current = replace(current, fresh={**current.fresh, verdict.criterion: verdict})
    else:
        current = replace(current, verdicts={**current.verdicts, verdict.criterion: verdict})
    return replace(record, current=current)


def _assessed(record: Record, data: Mapping[str, Any], at: str) -> Record:
    current = _current(record)
    if data.get("broken"):
        return replace(record, step=Step.DECIDE, broken=data["broken"])
    reached = _value(Score, data["score"])
    summary = Summary(
        number=current.number,
        outcome=current.outcome or Outcome.FINISHED,
        tree=current.tree,
        score=reached,
        fingerprint=data["fingerprint"],
        effect=current.effect,
        verdicts={**current.verdicts, **current.fresh},
        changed=current.changed[:KEPT],
        failing=tuple(data["failing"]),
        rung=current.rung,
    )
    tampered = bool(data.get("tampered"))
    counts = current.effect and not tampered
    better = counts and reached > best_score(record)
    best = summary if counts and (record.best is None or reached > record.best.score) else record.best
    return replace(
        record,
        step=Step.DECIDE,
        recent=(*record.recent, summary)[-KEPT:],
        best=best,
        history=_followed(record.history, current, better=better, tampered=tampered),
    )


def _followed(history: History, current: Current, *, better: bool, tampered: bool) -> History:
    """History with one more attempt. One that was interrupted was given no chance: it is no sign of being stuck."""
    chance = current.outcome is not Outcome.INTERRUPTED
    return replace(
        history,
        no_effect=0 if current.effect else history.no_effect + chance,
        stalled=0 if better else history.stalled + (current.effect and chance),
        tampers=history.tampers + tampered,
        rungs=() if better else history.rungs,
        restored={path: history.restored.get(path, 0) + 1 for path in current.restored},
    )


def _decided(record: Record, data: Mapping[str, Any], at: str) -> Record:
    decision, history = data["decision"], record.history
    if decision in ("met", "stop"):
        return replace(record, step=Step.CLOSE, state=State(data["state"]), reason=data["reason"])
    rung = Rung(data["rung"]) if data.get("rung") else None
    if rung and rung not in history.rungs:  # a rung climbed again, for another reason, is no new chance
        history = replace(history, rungs=(*history.rungs, rung), stalled=0)
    attention = (*record.attention, data["attention"])[-KEPT:] if data.get("attention") else record.attention
    waiting = bool(data.get("wait_until"))
    return replace(
        record,
        step=Step.WAIT if waiting else Step.LAUNCH,
        state=State.WAITING if waiting else State.RUNNING,
        wait_until=data.get("wait_until", ""),
        rung=rung,
        reason=data["reason"],
        history=history,
        attention=attention,
    )


def _waited(record: Record, data: Mapping[str, Any], at: str) -> Record:
    waited = record.waited_s + data.get("waited_s", 0.0)
    return replace(record, step=Step.LAUNCH, state=State.RUNNING, wait_until="", waited_s=waited)


def _closing(record: Record, data: Mapping[str, Any], at: str) -> Record:
    """A run that stops outside a decision keeps the step it was in, so that reopening goes on there."""
    resume_at = record.step if record.step not in (Step.CLOSE, Step.OVER) else record.resume_at
    state = State(data["state"])
    if record.step is Step.CLOSE:
        resume_at = Step.VERIFY if state is State.BLOCKED else Step.LAUNCH
    return replace(record, step=Step.OVER, state=state, reason=data["reason"], resume_at=resume_at)


def _reopened(record: Record, data: Mapping[str, Any], at: str) -> Record:
    """A new decision of the owner's, so the counters begin anew; after a block nothing was decided about the agent."""
    history, current = record.history, record.current
    if record.state is not State.BLOCKED:
        history = replace(history, no_effect=0, stalled=0, rungs=(), tampers=0)
    if record.resume_at is Step.VERIFY and current:
        current = replace(current, verdicts={}, fresh={})
    step = record.resume_at
    return replace(record, step=step, state=State.READY, reason="", broken="", history=history, current=current)


def _interrupted(record: Record, data: Mapping[str, Any], at: str) -> Record:
    return replace(record, state=State.INTERRUPTED, signal=data.get("signal", ""), reason=data.get("reason", ""))


def _steered(record: Record, data: Mapping[str, Any], at: str) -> Record:
    return replace(record, notes=(*record.notes, data["text"]))


def _extended(record: Record, data: Mapping[str, Any], at: str) -> Record:
    return replace(record, allowance=_value(Allowance, data["allowance"]))


def _amended(record: Record, data: Mapping[str, Any], at: str) -> Record:
    """A new contract: earlier verdicts measured something else, so they no longer count as the best."""
    return replace(
        record,
        contract_digest=data["contract_digest"],
        allowance=_value(Allowance, data["allowance"]),
        baseline_verdicts={},
        stable_tests={},
        best=None,
        step=Step.PREFLIGHT if record.step in MEASURED_ANEW else record.step,
        recent=tuple(replace(summary, tree="") for summary in record.recent),  # told, but not verdicts to reuse
        resume_at=Step.PREFLIGHT,
    )


def _delivered(record: Record, data: Mapping[str, Any], at: str) -> Record:
    return replace(record, delivered=data["text"])


def _attention(record: Record, data: Mapping[str, Any], at: str) -> Record:
    return replace(record, attention=(*record.attention, data["text"])[-KEPT:])


_FOLDS: Mapping[str, Callable[[Record, Mapping[str, Any], str], Record]] = {
    "run.opened": _opened,
    "run.started": _started,
    "run.interrupted": _interrupted,
    "run.ended": _closing,
    "run.reopened": _reopened,
    "baseline.verdict": _baseline_verdict,
    "preflight.passed": _preflight,
    "attempt.reserved": _reserved,
    "attempt.voided": _voided,
    "attempt.ending": _ending,
    "attempt.ended": _ended,
    "attempt.restoring": _restoring,
    "attempt.captured": _captured,
    "verdict": _verdict,
    "attempt.assessed": _assessed,
    "decision": _decided,
    "wait.ended": _waited,
    "owner.steered": _steered,
    "owner.extended": _extended,
    "owner.amended": _amended,
    "delivered": _delivered,
    "attention": _attention,
}


def best_score(record: Record) -> Score:
    """The score to beat: the best attempt's or the baseline's, whichever is higher."""
    return max(record.baseline_score, record.best.score) if record.best else record.baseline_score


def _current(record: Record) -> Current:
    if record.current is None:
        raise ValueError("the ledger speaks of an attempt before it reserved one")
    return record.current


def _value(kind: type, data: object) -> Any:
    try:
        return convert(data, kind)
    except ValidationError as error:
        raise ValueError(str(error)) from None
