"""What the next attempt is told: the record turned into a briefing, verdicts and facts only."""

from collections.abc import Callable, Mapping
from pathlib import Path

from loopd.domain.attempt import Outcome
from loopd.domain.budget import Allowance, Spent
from loopd.domain.decision import Rung
from loopd.domain.feedback import Briefing, Left, Output, Tried, excerpts, failing, failures, rows, tried
from loopd.domain.record import Record, Summary
from loopd.domain.text import Ends
from loopd.domain.verdict import Verdict
from loopd.engine.run import Run

TRIED = 6  # earlier attempts that are told


def brief(run: Run, number: int) -> Briefing:
    """The briefing of attempt `number`, from the verdicts on the tree as it stands."""
    record, goal = run.record, run.goal
    now, before = _verdicts(record)
    told_open = failing(goal.criteria, now)
    last = record.current
    return Briefing(
        attempt=number,
        objective=goal.objective.text or "",
        workspace=str(run.ports.workspace.root),
        left=_left(record.allowance, record.spent, run.active_s()),
        criteria=rows(
            goal.criteria,
            now,
            before,
            record.best.verdicts if record.best else {},
            record.baseline_verdicts,
        ),
        references=run.rules.references,
        constraints=tuple(constraint.text for constraint in goal.constraints),
        allowed=run.rules.allowed,
        addable=run.rules.addable,
        protected=run.rules.protected,
        max_files=goal.scope.max_files,
        outcome=last.outcome if last else None,
        failures=failures(goal.criteria, now, run.secrets),
        excerpts=excerpts(_outputs(run, told_open, now), run.secrets),
        changed=last.changed if last and last.effect else (),
        tried=_tried(run, record),
        restored=last.restored if last else (),
        rejected=(last.tampered,) if last and last.tampered else (),
        ended=last.ended if last else (),
        notes=record.notes,
        rephrase=record.rung is Rung.REPHRASE,
    )


def _verdicts(record: Record) -> tuple[Mapping[str, Verdict], Mapping[str, Verdict]]:
    """The newest verdicts and those before them, the baseline's where a criterion was not reached."""
    newest: list[Mapping[str, Verdict]] = [summary.verdicts for summary in record.recent[-2:]]
    chain = [record.baseline_verdicts, *newest]
    before = {**record.baseline_verdicts, **chain[-2]} if len(chain) > 1 else {}
    return chain[-1], before


def _left(allowance: Allowance, spent: Spent, active_s: float) -> Left:
    return Left(
        attempts=allowance.attempts - spent.attempts,
        time_s=float(max(0, int(allowance.time_s - active_s))),  # told to a reader, not to a clock
        attempt_time_s=allowance.attempt_time_s,
        attempt_idle_s=allowance.attempt_idle_s,
        cost_usd=_rest(allowance.cost_usd, spent.cost_usd),
        tokens=None if allowance.tokens is None else max(0, allowance.tokens - spent.tokens),
    )


def _rest(allowed: float | None, used: float) -> float | None:
    return None if allowed is None else max(0.0, allowed - used)


def _tried(run: Run, record: Record) -> tuple[Tried, ...]:
    worked: list[Summary] = [summary for summary in record.recent[:-1] if summary.outcome is not Outcome.NO_EFFECT]
    return tuple(
        tried(summary.number, summary.changed, run.goal.criteria, summary.verdicts) for summary in worked[-TRIED:]
    )


def _outputs(run: Run, names: tuple[str, ...], verdicts: Mapping[str, Verdict]) -> tuple[Output, ...]:
    read: Callable[[Path], Ends] = run.ports.read_ends
    return tuple(
        Output(name, stream, read(run.folder / verdicts[name].output / f"{stream}.log"))
        for name in names
        if verdicts[name].output
        for stream in ("stdout", "stderr")
    )
