"""One look at a run: the shape of `status.json`, of `loopd status --json`, and of every view."""

from collections.abc import Mapping
from typing import Any

from loopd.domain.criteria import holds
from loopd.domain.record import Record, Step
from loopd.domain.run import State, next_step
from loopd.domain.verdict import Verdict

FORMAT = "loopd.status/1"


def standing(record: Record) -> State:
    """Where the run stands for others: a decided end counts once it is delivered and recorded, not before."""
    return State.RUNNING if record.step is Step.CLOSE else record.state


def status(
    record: Record, criteria: tuple[str, ...], *, active_s: float, contract: str, workspace: str
) -> dict[str, Any]:
    """JSON values that say where a run stands, why, and what a person would type now."""
    return {
        "run": record.run,
        "goal": record.goal,
        "contract": contract,
        "workspace": workspace,
        "state": str(standing(record)),
        "step": str(record.step),
        "reason": record.reason,
        "next": next_step(standing(record), record.run, contract),
        "attempt": record.number,
        "budget": _budget(record, active_s),
        "criteria": [_criterion(record, name) for name in criteria],
        "best": _best(record, len(criteria)),
        "delivered": record.delivered,
        "wait_until": record.wait_until,
        "attention": list(record.attention),
    }


def _budget(record: Record, active_s: float) -> dict[str, Any]:
    spent, allowance = record.spent, record.allowance
    return {
        "attempts": {"used": spent.attempts, "allowed": allowance.attempts},
        "time_s": {"used": round(max(active_s, spent.time_s), 1), "allowed": allowance.time_s},
        "waited_s": round(record.waited_s, 1),
        "cost_usd": {
            "used": round(spent.cost_usd, 6) if spent.cost_known else None,
            "allowed": allowance.cost_usd,
            "partial": spent.partial,
            "estimated": spent.estimated,
        },
        "tokens": {"used": spent.tokens if spent.tokens_known else None, "allowed": allowance.tokens},
    }


def _criterion(record: Record, name: str) -> dict[str, Any]:
    now = _latest(record).get(name)
    best = record.best.verdicts.get(name) if record.best else None
    return {
        "name": name,
        "now": _word(now),
        "baseline": _word(record.baseline_verdicts.get(name)),
        "best": _word(best),
        "summary": now.summary if now else "",
        "holds": holds(now),
    }


def _latest(record: Record) -> Mapping[str, Verdict]:
    """The verdicts of the attempt at work as soon as it has one, else those of the last assessed attempt."""
    if record.current and (verdicts := {**record.current.verdicts, **record.current.fresh}):
        return verdicts
    return record.recent[-1].verdicts if record.recent else {}


def _best(record: Record, criteria: int) -> dict[str, Any] | None:
    if record.best is None:
        return None
    return {"attempt": record.best.number, "met": record.best.score.met, "of": criteria}


def _word(verdict: Verdict | None) -> str | None:
    return str(verdict.status) if verdict else None
