"""What an assessed attempt leads to: the decision, recorded with its reason, then the wait or the end."""

from datetime import datetime, timedelta
from typing import assert_never

from loopd.domain.decision import Continue, Escalate, Met, Stop, Wait, decide
from loopd.domain.errors import LoopdError
from loopd.domain.run import State
from loopd.engine.delivery import deliver
from loopd.engine.run import Run
from loopd.engine.verification import assess


def conclude(run: Run) -> None:
    """Decide by verdicts and budget, and record it."""
    record = run.record
    decision = decide(record.history, assess(run), record.allowance, record.spent, run.policy)
    match decision:
        case Continue(reason):
            run.note("decision", decision="continue", reason=reason)
        case Wait(seconds, reason):
            run.note("decision", decision="wait", reason=reason, wait_until=_until(run, seconds))
        case Escalate(rung, reason, after_s):
            until = _until(run, after_s) if after_s else ""
            run.note("decision", decision="escalate", rung=rung, reason=reason, wait_until=until, attention=reason)
        case Met(reason):
            run.note("decision", decision="met", state=State.MET, reason=reason)
        case Stop(state, reason):
            run.note("decision", decision="stop", state=state, reason=reason)
        case _:
            assert_never(decision)


async def wait_out(run: Run) -> None:
    """Sleep until the recorded instant; the wait uses no time budget and survives restarts."""
    left = (datetime.fromisoformat(run.record.wait_until) - run.ports.clock.now()).total_seconds()
    began = run.ports.clock.elapsed()
    try:
        if left > 0:
            await run.ports.clock.sleep(left)
    finally:
        run.idle_s += run.ports.clock.elapsed() - began
    run.note("wait.ended", waited_s=round(run.ports.clock.elapsed() - began, 3))


async def close(run: Run) -> None:
    """Deliver what is proven, then end the run. A failed delivery leaves it met, and is said."""
    record = run.record
    if record.state is State.MET and not record.delivered:
        try:
            run.note("delivered", text=await deliver(run, to=run.goal.delivery.to or "tree"))
        except LoopdError as error:
            run.note("attention", text=f"delivery failed: {error}; loopd deliver {record.run} repeats it")
    run.note("run.ended", state=record.state, reason=_with_best(run), evidence=str(run.folder))


def _with_best(run: Run) -> str:
    """The reason; where the goal was not met, the best attempt is named."""
    record, best = run.record, run.record.best
    if best is None or record.state not in (State.EXHAUSTED, State.STUCK, State.HALTED):
        return record.reason
    nearest = f"{best.score.met} of {len(run.criteria)} criteria hold"
    return f"{record.reason}; the best attempt is {best.number}: {nearest}"


def _until(run: Run, seconds: float) -> str:
    return (run.ports.clock.now() + timedelta(seconds=seconds)).isoformat()
