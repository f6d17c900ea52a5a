"""The loop: contract → instruction → attempt → tree empty → guards → verify → compare → decide → feedback.

Each pass does the one step that the record asks for and records it, so a crash anywhere re-enters the same step.
"""

import anyio

from loopd.domain.errors import BlockedError, RefusedError
from loopd.domain.record import Step
from loopd.domain.run import Ending, State, ending
from loopd.engine.attempt import capture, reserve, watch
from loopd.engine.conclusion import close, conclude, wait_out
from loopd.engine.owner import heed
from loopd.engine.preflight import preflight, prepare
from loopd.engine.run import Run
from loopd.engine.verification import verify


async def pursue(run: Run) -> Ending:
    """Work on the goal until the run is over, or until a signal asks this process to leave."""
    run.note("run.started", resumed=run.record.number > 0 or run.record.step is not Step.PREFLIGHT)
    while run.record.step is not Step.OVER and not run.leaving:
        with anyio.CancelScope() as scope:
            run.on_interrupt = scope.cancel
            try:
                await step(run)
            except BlockedError as error:
                run.note("run.ended", state=State.BLOCKED, reason=error.message, remedy=error.remedy)
            except RefusedError as error:
                run.note("run.ended", state=State.REFUSED, reason=str(error))
    return leave(run)


async def step(run: Run) -> None:
    """Do what comes next, to its recorded end."""
    heed(run)
    if run.prepared is None and run.record.step is not Step.OVER:
        await prepare(run)
    match run.record.step:
        case Step.PREFLIGHT:
            await preflight(run)
        case Step.LAUNCH:
            await reserve(run)
        case Step.WATCH:
            await watch(run)
        case Step.CAPTURE:
            await capture(run)
        case Step.VERIFY:
            await verify(run)
        case Step.DECIDE:
            conclude(run)
        case Step.WAIT:
            await wait_out(run)
        case Step.CLOSE:
            await close(run)
        case Step.OVER:
            pass


def leave(run: Run) -> Ending:
    """Say how this process leaves: the run is over, or it stays open and can be resumed."""
    heed(run)
    if run.record.step is not Step.OVER:
        run.note("run.interrupted", signal=run.signal, reason=f"interrupted by {run.signal}")
    if run.record.number:
        run.snapshot()
    return ending(run.record.state, run.record.reason, run.record.signal)
