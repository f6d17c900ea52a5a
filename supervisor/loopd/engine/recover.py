"""What a dead supervisor left running: ended and recorded before anybody else works in its tree."""

import anyio

from loopd.domain.record import Step
from loopd.engine.attempt import capture, watch
from loopd.engine.preflight import prepare
from loopd.engine.run import Run


async def settle(run: Run) -> None:
    """End the agent and the checks of a run whose supervisor died; the run stays open and can be resumed.

    For a start that does not resume it. Two agents in one tree are the worst quiet damage there is.
    """
    with anyio.CancelScope(shield=True):
        await end_checks(run)
        if run.record.step is Step.WATCH:
            await watch(run, end_now=True)
        if run.record.step is Step.CAPTURE:  # now, or what the next run does there would count as this attempt's
            await prepare(run)
            await capture(run)
        run.note("run.interrupted", signal="", reason="its supervisor died; another run was started in its tree")


async def end_checks(run: Run) -> None:
    """End checks that a dead supervisor left: their verdicts would come from a tree that is in use again."""
    labels = ("baseline", f"{run.record.number:04d}")
    for folder in sorted((run.folder / "checks").glob("*")):
        if folder.name.startswith(labels):
            for left in (folder, *folder.glob("run-*")):
                if container := await run.ports.containers.adopt(left):
                    await container.end(run.timers.grace)
