"""The owner's word during a run: stop, steer, extend. Heard between steps, recorded, then obeyed."""

from msgspec.structs import replace

from loopd.domain.budget import Allowance
from loopd.domain.record import Step, dump_value
from loopd.domain.run import FINAL, State
from loopd.engine.run import Run
from loopd.ports.requests import Request, RequestKind


def heed(run: Run) -> None:
    """Record every pending request, each exactly once. A stop waits for what must not stay half done."""
    for request in run.ports.requests.peek():
        if request.kind is RequestKind.STOP and run.record.step in (Step.WATCH, Step.CAPTURE):
            continue
        if request.number not in run.record.heard:
            _obey(run, request)
        run.ports.requests.done(request)


def stop_asked(run: Run) -> bool:
    """Whether the owner wants the run ended: nothing is launched any more, and an agent at work is ended."""
    return any(request.kind is RequestKind.STOP for request in run.ports.requests.peek())


def extended(allowance: Allowance, data: dict[str, float]) -> Allowance:
    """The allowance with more of each budget that `data` names; an unlimited one stays unlimited."""
    return replace(
        allowance,
        attempts=allowance.attempts + int(data.get("attempts", 0)),
        time_s=allowance.time_s + data.get("time_s", 0.0),
        cost_usd=None if allowance.cost_usd is None else allowance.cost_usd + data.get("cost_usd", 0.0),
        tokens=None if allowance.tokens is None else allowance.tokens + int(data.get("tokens", 0)),
    )


def _obey(run: Run, request: Request) -> None:
    match request.kind:
        case RequestKind.STOP if run.record.state not in FINAL | {State.REFUSED}:
            run.note("run.ended", state=State.STOPPED, reason="stopped by its owner", request=request.number)
        case RequestKind.STEER:
            run.note("owner.steered", text=request.data["text"], request=request.number)
        case RequestKind.EXTEND:
            allowance = extended(run.record.allowance, dict(request.data))
            run.note("owner.extended", allowance=dump_value(allowance), by=dict(request.data), request=request.number)
        case RequestKind.STOP:
            run.note("attention", text="a stop came after the end", request=request.number)
