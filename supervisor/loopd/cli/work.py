"""Work on a run: made or found, held, supervised to its end. For `run` and `resume`, whose words are read elsewhere."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import anyio

from loopd.adapters import agreement as agreements
from loopd.adapters.agreement import Agreement
from loopd.adapters.containment.nursery import Nursery
from loopd.adapters.liveness import is_alive, start_time
from loopd.adapters.state import RunFolder, create_run, keep_outside
from loopd.adapters.stores.records import record_run
from loopd.cli.compose import Place, open_place, open_run
from loopd.cli.flags import Flags
from loopd.cli.orders import GoOn, Start
from loopd.cli.supervise import supervise
from loopd.cli.view import open_view
from loopd.domain.errors import BusyError, UsageError
from loopd.domain.record import Step, dump_value
from loopd.domain.run import ENDED, FINAL, REOPENABLE, State
from loopd.domain.status import standing
from loopd.engine.recover import settle
from loopd.engine.run import Run
from loopd.ports.store import RunEntry

STARTING = "start-"  # a hold by this name is of a process that has no run yet
OPEN = (State.INTERRUPTED, State.RUNNING, State.WAITING, State.READY)


def carry_out(order: Start | GoOn, nursery: Nursery | None) -> int:
    """Do what the command line asks for; the exit status."""
    if isinstance(order, GoOn):
        return go_on(order, nursery)
    if order.dry_run:
        from loopd.cli.rehearsal import rehearse

        return rehearse(order.agreed)
    return start(order, nursery)


def start(order: Start, nursery: Nursery | None) -> int:
    """Begin a run, or go on with the one of this very contract that was interrupted."""
    agreed = order.agreed
    with open_place() as place, starting(place, agreed):
        keep_outside(place.state, agreed.terms.root)
        open_one = None if order.new else interrupted(place, agreed, order.flags)
        if open_one is None:
            say_last(place, agreed)
            settle_others(place, agreed, nursery)
        folder = RunFolder(open_one.folder) if open_one else begin(place, agreed)
        if open_one:
            print(f"resuming {open_one.run}, which was interrupted (--new starts anew)", file=sys.stderr)
        return work(place, folder, nursery, as_json=order.as_json)


def go_on(order: GoOn, nursery: Nursery | None) -> int:
    """Go on with the run of this name."""
    with open_place() as place:
        entry = place.store.find(order.run)
        return work(place, RunFolder(entry.folder), nursery, as_json=order.as_json, reopen=True)


def begin(place: Place, agreed: Agreement) -> RunFolder:
    """A new run folder with everything in it that a resume needs."""
    folder = create_run(place.state, agreed.goal.goal, os.urandom)
    agreements.keep(folder.root, agreed)
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    terms = agreed.terms
    entry = RunEntry(
        folder.run, agreed.goal.goal, folder.root, terms.root, terms.contract, terms.digest, State.READY, now, now
    )
    record_run(folder, entry)
    place.store.put(entry)
    return folder


def work(place: Place, folder: RunFolder, nursery: Nursery | None, *, as_json: bool, reopen: bool = False) -> int:
    """Supervise one run in this process; the exit status. A run that is over is only told, unless `reopen`."""
    with ExitStack() as stack:
        run = stack.enter_context(open_run(place, folder, nursery))
        known, state = place.store.find(folder.run), standing(run.record)
        contract = str(known.contract)
        if reopen and (state in FINAL or state is State.REFUSED):
            raise UsageError(f"run {folder.run} is {state}, which is final; loopd run --new {contract}")
        hold(place, run, stack)
        view = stack.enter_context(
            open_view(folder, criteria=run.criteria, contract=contract, stream=sys.stdout, as_json=as_json)
        )
        run.observers = (*run.observers, view.observe)
        run.met_before = met_before(place, known.contract_digest)
        open_or_reopen(run, reopen=reopen)
        return supervise(run).exit_status


def open_or_reopen(run: Run, *, reopen: bool) -> None:
    """The first event of a run, or the decision to go on with one that ended."""
    if not run.record.run:
        agreement = agreements.recall(run.folder)
        terms = agreement.terms
        run.note(
            "run.opened",
            run=run.folder.name,
            goal=run.goal.goal,
            contract=str(terms.contract),
            contract_digest=terms.digest,
            workspace=str(terms.root),
            allowance=dump_value(terms.allowance),
            settings=[dump_value(setting) for setting in terms.settings],
            files=dict(terms.files),
        )
    elif run.record.step is Step.OVER and not reopen:  # killed between the end and its being told
        print(f"run {run.record.run} had ended: {run.record.state}, {run.record.reason}", file=sys.stderr)
    elif standing(run.record) in REOPENABLE:
        run.note("run.reopened", was=run.record.state)


def hold(place: Place, run: Run, stack: ExitStack) -> None:
    """Take the workspace for this process. Raises `BusyError` naming who has it."""
    root = run.ports.workspace.root
    pid, start = process_identity()
    if holder := place.store.hold(root, run.folder.name, pid, start):
        raise busy(holder)
    stack.callback(place.store.release, root, run.folder.name)


@contextmanager
def starting(place: Place, agreed: Agreement) -> Iterator[None]:
    """Keep every other start out of this tree, from before anything is made until the run itself holds it.

    Raises `BusyError` naming who is at work there.
    """
    if agreed.goal.isolation != "inplace":
        yield
        return
    pid, start = process_identity()
    name = f"{STARTING}{pid}"
    if holder := place.store.hold(agreed.terms.root, name, pid, start):
        raise busy(holder)
    try:
        yield
    finally:
        place.store.release(agreed.terms.root, name)  # nothing is left to release once the run has taken it over


def busy(holder: RunEntry) -> BusyError:
    """Who holds it, and the way out."""
    if holder.run.startswith(STARTING):
        return BusyError(f"process {holder.pid} is starting a run in {holder.workspace}\nwait for it, or use --clone")
    return BusyError(
        f"run {holder.run} (pid {holder.pid}) works in {holder.workspace}\n"
        f"wait for it, loopd stop {holder.run}, or start with --clone"
    )


def process_identity() -> tuple[int, int]:
    """This process: pid and start time."""
    pid = os.getpid()
    return pid, start_time(pid) or 0


def interrupted(place: Place, agreed: Agreement, flags: Flags) -> RunEntry | None:
    """The newest run of this very contract that a signal, a crash or a power loss left open; None to start anew."""
    for entry in place.store.runs():
        if entry.contract != agreed.terms.contract or entry.workspace != agreed.terms.root:
            continue
        if is_alive(entry.pid, entry.pid_start):
            raise busy(entry)
        if entry.state not in OPEN:
            return None
        if agreements.recall(entry.folder).text != agreed.text:
            print(f"run {entry.run} was interrupted under an earlier form of this contract", file=sys.stderr)
            return None
        if flags != Flags():
            raise UsageError(
                f"run {entry.run} was interrupted and would be resumed, so settings on the command line mean nothing\n"
                f"loopd resume {entry.run}, loopd extend {entry.run} …, or loopd run --new …"
            )
        return entry
    return None


def settle_others(place: Place, agreed: Agreement, nursery: Nursery | None) -> None:
    """End what dead supervisors left at work in this tree. Their runs stay open."""
    if agreed.goal.isolation != "inplace":
        return
    for entry in place.store.runs():
        dead = entry.state in OPEN and not is_alive(entry.pid, entry.pid_start)
        if dead and overlap(entry.workspace, agreed.terms.root) and (entry.folder / agreements.NAME).is_file():
            with open_run(place, RunFolder(entry.folder), nursery) as run:
                if run.record.run and run.record.state not in (State.INTERRUPTED, *ENDED):
                    anyio.run(settle, run)
                    print(
                        f"run {entry.run} was left by a dead supervisor; what it had running is ended", file=sys.stderr
                    )


def overlap(one: Path, other: Path) -> bool:
    """Whether one of two trees lies in the other."""
    return one.is_relative_to(other) or other.is_relative_to(one)


def say_last(place: Place, agreed: Agreement) -> None:
    """A new start is a new decision; how the last one ended is said, not held against it."""
    for entry in place.store.runs():
        if entry.contract == agreed.terms.contract and entry.state in REOPENABLE:
            print(f"the last run of this contract, {entry.run}, ended {entry.state}; starting anew", file=sys.stderr)
            return


def met_before(place: Place, digest: str) -> bool:
    """Whether this very contract was met by an earlier run."""
    return any(entry.contract_digest == digest and entry.state == State.MET for entry in place.store.runs())
