"""One attempt: reserved, launched, watched, ended on every path, its tree proven empty, its changes captured."""

from collections.abc import Mapping
from datetime import datetime

import anyio
from msgspec.structs import replace

from loopd.domain.attempt import Outcome, Usage
from loopd.domain.budget import Limit
from loopd.domain.budget import reserve as reserve_budget
from loopd.domain.errors import BlockedError
from loopd.domain.record import Current, Record, dump_value
from loopd.engine.briefing import brief
from loopd.engine.owner import stop_asked
from loopd.engine.run import Run
from loopd.engine.watcher import Output, Over, Watcher
from loopd.ports.agent import Launch, Order
from loopd.ports.processes import Cleared, Container, ProcessSpec
from loopd.ports.workspace import Composed, Snapshot

LOGS = ("stdout.log", "stderr.log")


async def reserve(run: Run) -> None:
    """Take the owner's edits over, write the instruction, and record what the next attempt may use up."""
    record, workspace = run.record, run.ports.workspace
    budget = reserve_budget(record.allowance, replace(record.spent, time_s=run.active_s()))
    if isinstance(budget, Limit):
        run.note("decision", decision="stop", state="exhausted", reason=budget.text)
        return
    if low := run.disk_low():
        raise BlockedError(low, f"free some, then loopd resume {record.run}; the floor is disk.free in the settings")
    before = (await workspace.snapshot()).tree
    base = record.base
    if before != record.last_after:
        base = await workspace.overlay(record.base, record.last_after, before)
        run.note("owner.edited", paths=list(await workspace.changed_paths(record.last_after, before)))
    number = record.number + 1
    folder = run.attempt_folder(number)
    folder.mkdir(parents=True, exist_ok=True)
    path, digest = run.ports.instructions.write(brief(run, number), folder)
    run.launched = number
    run.note(
        "attempt.reserved",
        attempt=number,
        before=before,
        base=base,
        reserve=dump_value(budget),
        instruction=str(path.relative_to(run.folder)),
        digest=digest,
        notes_used=len(record.notes),
    )


async def watch(run: Run, *, end_now: bool = False) -> None:
    """Start the reserved attempt, or adopt the agent a dead supervisor left, and see it to its recorded end.

    With `end_now`, what is adopted is ended at once, as interrupted.
    """
    current = _current(run.record)
    folder = run.attempt_folder(current.number)
    order = Order(current.number, folder / "instruction.md", run.ports.workspace.root, folder, run.search_path)
    ours = run.launched == current.number and not stop_asked(run)
    with anyio.CancelScope(shield=True):  # a launch that is cancelled half way would leave an agent without an owner
        container = await (_start(run, order) if ours else run.ports.containers.adopt(folder))
    if container is None:
        run.note("attempt.voided", attempt=current.number)
        return
    output = Output(run.ports.agent.reader(order), [run.ports.outputs(folder / name) for name in LOGS])
    over = Over(Outcome.INTERRUPTED, "interrupted")
    try:
        means = container.containment
        run.note("attempt.started", durable=False, attempt=current.number, containment=means, adopted=not ours)
        if not end_now:
            over = await _until_over(run, container, output, ours=ours)
    finally:
        with anyio.CancelScope(shield=True):
            cleared = await container.end(replace(run.timers.grace, first=run.ports.agent.first_signal))
            run.catch_up(current.started_s + cleared.exit.duration_s)
            _record_end(run, current, over, cleared, output.total())


async def _until_over(run: Run, container: Container, output: Output, *, ours: bool) -> Over:
    """The first ending. A limit is recorded before it is acted upon, or who comes after a crash takes it for one."""
    current = _current(run.record)
    if current.outcome:
        return Over(current.outcome, current.reason)
    over = await Watcher(run, container, output, current, 0.0 if ours else _age_s(run, current)).until_over()
    if over.outcome:
        run.note("attempt.ending", attempt=current.number, outcome=over.outcome, reason=over.reason)
    return over


async def capture(run: Run) -> None:
    """Take the attempt's changes, put back what it must not change, and look after the pinned copies."""
    current, workspace = _current(run.record), run.ports.workspace
    for log in LOGS:
        run.ports.disk.cap(run.attempt_folder(current.number) / log, run.timers.log_cap_bytes)
    locks = await workspace.release_locks()
    after = Snapshot(current.after) if current.after else await workspace.snapshot()
    composed = await workspace.compose(run.record.base, after.tree)
    await _mend(run, current, after, composed)
    left = await workspace.snapshot() if composed.restored else after
    touched = await workspace.changed_paths(current.before, after.tree)
    outside = {*composed.restored, *composed.unproven, *composed.refused}
    effect = after.tree != current.before
    run.note(
        "attempt.captured",
        durable=False,  # a power loss before the next decision has it captured anew
        attempt=current.number,
        after=after.tree,
        workspace=left.tree,
        tree=composed.tree,
        effect=effect,
        outcome=_outcome(current, effect),
        changed=[path for path in touched if path not in outside],
        restored=list(composed.restored),
        unproven=list(composed.unproven),
        refused=[*composed.refused, *after.left_out],
        locks=list(locks),
        tampered=_current(run.record).tampered,
    )


async def _mend(run: Run, current: Current, after: Snapshot, composed: Composed) -> None:
    """Put back what must not change. Recorded first: once it is done, nothing in the workspace shows it any more."""
    forged, base = run.ports.pins.changed(), run.record.base
    if composed.restored or forged:
        tampered = f"pinned copies were changed: {', '.join(forged)}" if forged else current.tampered
        paths = list(composed.restored)
        run.note("attempt.restoring", attempt=current.number, after=after.tree, paths=paths, tampered=tampered)
    if composed.restored:
        evidence = run.attempt_folder(current.number) / "restored"
        await run.ports.workspace.restore(base, after.tree, composed.restored, evidence)
    run.ports.pins.repair()


async def _start(run: Run, order: Order) -> Container:
    launch = run.ports.agent.launch(order)
    return await run.ports.containers.start(_spec(run, order, launch))


def _spec(run: Run, order: Order, launch: Launch) -> ProcessSpec:
    stdout, stderr = (order.folder / name for name in LOGS)
    return ProcessSpec(
        folder=order.folder,
        argv=launch.argv,
        cwd=order.workspace,
        env=_environment(run, launch.env),
        marker=f"{run.record.run}/{order.attempt}",
        stdin=launch.stdin,
        stdout=stdout,
        stderr=stderr,
    )


def _environment(run: Run, extra: Mapping[str, str]) -> dict[str, str]:
    return {**run.agent_env, **extra, "PATH": run.search_path}


def _record_end(run: Run, current: Current, over: Over, cleared: Cleared, usage: Usage | None) -> None:
    if cleared.survivors:
        pids = ", ".join(f"{stray.pid} ({stray.command})" for stray in cleared.survivors)
        raise BlockedError(
            f"attempt {current.number} left processes that cannot be ended: {pids}",
            "end them as their owner, then loopd resume last",
        )
    outcome = over.outcome or (Outcome.FINISHED if cleared.exit.status == 0 else Outcome.CRASHED)
    if cleared.exit.lost and over.outcome is None:
        outcome = Outcome.INTERRUPTED
    run.note(
        "attempt.ended",
        attempt=current.number,
        outcome=outcome,
        reason=over.reason or ("" if cleared.exit.status == 0 else str(cleared.exit)),
        exit=dump_value(cleared.exit),
        usage=_settled(usage, whole=outcome in (Outcome.FINISHED, Outcome.CRASHED)),
        ended=[stray.command for stray in cleared.ended],
        strays=[dump_value(stray) for stray in cleared.ended],
        signals=list(cleared.signals),
    )


def _settled(usage: Usage | None, *, whole: bool) -> object:
    return None if usage is None else dump_value(usage if whole else replace(usage, partial=True))


def _outcome(current: Current, effect: bool) -> Outcome:
    outcome = current.outcome or Outcome.FINISHED
    return Outcome.NO_EFFECT if outcome is Outcome.FINISHED and not effect else outcome


def _age_s(run: Run, current: Current) -> float:
    began = datetime.fromisoformat(current.reserved_at)
    return max(0.0, (run.ports.clock.now() - began).total_seconds())


def _current(record: Record) -> Current:
    if record.current is None:
        raise ValueError("no attempt is reserved")
    return record.current
