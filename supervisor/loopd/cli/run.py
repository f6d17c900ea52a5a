"""`run`, `resume`, `verify`: the commands that start something."""

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import typer

from loopd.adapters import agreement as agreements
from loopd.adapters.agreement import Agreement
from loopd.adapters.containment.nursery import Nursery
from loopd.adapters.liveness import is_alive, start_time
from loopd.adapters.state import RunFolder, create_run, keep_outside
from loopd.adapters.stores.records import record_run
from loopd.cli.aside import aside
from loopd.cli.compose import Place, open_place, open_run
from loopd.cli.flags import Flags
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

AttemptsOption = Annotated[int | None, typer.Option("--attempts", min=1, help="At most this many attempts.")]
TimeOption = Annotated[str | None, typer.Option("--time", help="At most this long, such as 8h.")]
CostOption = Annotated[str | None, typer.Option("--cost", help="At most this much, such as '20 USD'.")]
OPEN = (State.INTERRUPTED, State.RUNNING, State.WAITING, State.READY)
JsonOption = Annotated[bool, typer.Option("--json", help="Print every event as one line of JSON.")]


def run(
    context: typer.Context,
    contract: Annotated[
        str | None, typer.Argument(help="A goal contract; with --check, the objective in words.")
    ] = None,
    agent_command: Annotated[list[str] | None, typer.Argument(help="After --: the agent's command.")] = None,
    check: Annotated[list[str] | None, typer.Option("--check", help="A command that must pass. Repeatable.")] = None,
    prompt: Annotated[Path | None, typer.Option("-p", "--prompt", help="A file that holds the objective.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="The agent, by name.")] = None,
    attempts: AttemptsOption = None,
    time: TimeOption = None,
    cost: CostOption = None,
    clone: Annotated[bool, typer.Option("--clone", help="Work in a clone; your files stay as they are.")] = False,
    with_changes: Annotated[bool, typer.Option("--with-changes", help="Take uncommitted files into it.")] = False,
    new: Annotated[bool, typer.Option("--new", help="Start anew, whatever was interrupted before.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen, and start nothing.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Pursue a goal until every criterion holds or the budget is spent."""
    flags = Flags(attempts=attempts, time=time, cost=cost, agent=agent, clone=clone, with_changes=with_changes)
    agreed = aside(partial(_agreed, contract, flags, check or [], prompt, agent_command or []))
    if dry_run:
        from loopd.cli.rehearsal import rehearse

        return rehearse(agreed)
    with open_place() as place, starting(place, agreed):
        keep_outside(place.state, agreed.terms.root)
        open_one = None if new else interrupted(place, agreed, flags)
        if open_one is None:
            say_last(place, agreed)
            settle_others(place, agreed, context.obj)
        folder = RunFolder(open_one.folder) if open_one else begin(place, agreed)
        if open_one:
            print(f"resuming {open_one.run}, which was interrupted (--new starts anew)", file=sys.stderr)
        return work(place, folder, context.obj, as_json=as_json)


def _agreed(
    contract: str | None, flags: Flags, checks: list[str], prompt: Path | None, command: list[str]
) -> Agreement:
    """What the command line names or means. The first word after `--` is the command's when no objective is needed."""
    from loopd.cli.agree import agree, meant

    if checks or prompt or command:
        objective = contract
        if prompt and contract is not None:
            objective, command = None, [contract, *command]
        path = meant(objective, checks, prompt, flags.agent, command)
        return agree(path, replace(flags, agent=None))  # the agent is in the contract now
    if contract is None:
        raise UsageError("run: name a contract, or say the objective in words with --check COMMAND")
    return agree(Path(contract), flags)


def resume(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="RUN", help="Id, unique prefix, goal name, or last.")] = "last",
    as_json: JsonOption = False,
) -> int:
    """Go on with an interrupted or reopened run."""
    with open_place() as place:
        entry = place.store.find(name)
        return work(place, RunFolder(entry.folder), context.obj, as_json=as_json, reopen=True)


def begin(place: Place, agreed: Agreement) -> RunFolder:
    """A new run folder with everything in it that a resume needs."""
    folder = create_run(place.state, agreed.goal.goal, secrets.token_bytes)
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
        contract, state = str(place.store.find(folder.run).contract), standing(run.record)
        if reopen and (state in FINAL or state is State.REFUSED):
            raise UsageError(f"run {folder.run} is {state}, which is final; loopd run --new {contract}")
        hold(place, run, stack)
        view = stack.enter_context(
            open_view(folder, criteria=run.criteria, contract=contract, stream=sys.stdout, as_json=as_json)
        )
        run.observers = (*run.observers, view.observe)
        run.met_before = met_before(place, run)
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


def met_before(place: Place, run: Run) -> bool:
    """Whether this very contract was met by an earlier run."""
    digest = agreements.recall(run.folder).terms.digest
    return any(entry.contract_digest == digest and entry.state == State.MET for entry in place.store.runs())
