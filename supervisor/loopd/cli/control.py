"""`stop`, `extend`, `steer`, `amend`, `apply`, `deliver`: the owner's word about a run, at work or at rest.

A wish goes into the run's spool. A supervisor at work takes it from there; without one it is recorded here and now.
"""

import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from loopd.adapters import agreement as agreements
from loopd.adapters.liveness import is_alive
from loopd.adapters.requests import FolderRequests
from loopd.adapters.state import RunFolder
from loopd.cli.agree import agree, within_ceiling
from loopd.cli.compose import Place, open_place, open_run, recorded
from loopd.cli.flags import Flags
from loopd.domain import quantities
from loopd.domain.budget import Allowance
from loopd.domain.errors import BusyError, UsageError
from loopd.domain.record import Record, Step, dump_value
from loopd.domain.run import FINAL, REOPENABLE, State, next_step
from loopd.engine.delivery import deliver as deliver_proven
from loopd.engine.delivery import deliver_best
from loopd.engine.loop import pursue
from loopd.engine.owner import extended, heed, stop_asked
from loopd.engine.run import Run
from loopd.ports.requests import RequestKind
from loopd.ports.store import RunEntry

RunName = Annotated[str, typer.Argument(metavar="RUN", help="Id, unique prefix, goal name, or last.")]
STOP_S = 30.0  # longer than the stop ladder of an agent


def stop(name: RunName = "last") -> int:
    """End a run for good. An agent at work is ended, and what it did is kept."""
    with open_place() as place:
        entry, folder, record = _find(place, name)
        if record.state in FINAL:
            raise UsageError(f"run {entry.run} is {record.state} already")
        _ask(place, entry, RequestKind.STOP, {})
        if is_alive(entry.pid, entry.pid_start):
            os.kill(entry.pid, signal.SIGTERM)
            _wait_for_end(entry)
        record = recorded(folder)
        print(f"run {entry.run} is {record.state}; next: {next_step(record.state, entry.run, str(entry.contract))}")
        return 0 if record.state is State.STOPPED else 1


def steer(
    name: RunName,
    text: Annotated[str, typer.Argument(help="What the next instruction shall say, once.")],
) -> int:
    """Put a note into the next instruction."""
    if not text.strip():
        raise UsageError("steer: the text is empty")
    with open_place() as place:
        entry, _, record = _find(place, name)
        _refuse_final(entry, record)
        at_work = _ask(place, entry, RequestKind.STEER, {"text": text})
        print(f"noted for the next instruction of {entry.run}{_then(entry, record, at_work)}")
        return 0


def extend(
    name: RunName = "last",
    attempts: Annotated[int | None, typer.Option("--attempts", min=1, help="More attempts, such as +10.")] = None,
    more_time: Annotated[str | None, typer.Option("--time", help="More time, such as +4h.")] = None,
    cost: Annotated[str | None, typer.Option("--cost", help="More money, such as '+10 USD'.")] = None,
    tokens: Annotated[str | None, typer.Option("--tokens", help="More tokens, such as +5M.")] = None,
) -> int:
    """Give a run more attempts, time, cost or tokens."""
    more = _more(attempts, more_time, cost, tokens)
    with open_place() as place:
        entry, _, record = _find(place, name)
        _refuse_final(entry, record)
        after = extended(record.allowance, more)
        if after == record.allowance:
            raise UsageError(f"run {entry.run} has no limit there to extend")
        within_ceiling(after)
        at_work = _ask(place, entry, RequestKind.EXTEND, more)
        print(f"run {entry.run} may now use {_said(after)}{_then(entry, record, at_work)}")
        return 0


def amend(
    name: RunName,
    contract: Annotated[Path, typer.Argument(help="The changed contract, of the same goal and workspace.")],
) -> int:
    """Give a run at rest a changed contract; its history is kept, its baseline is measured again."""
    agreed = agree(contract, Flags())
    with open_place() as place:
        entry, folder, record = _find(place, name)
        _refuse_final(entry, record)
        old = agreements.recall(folder.root)
        same = (old.goal.goal, old.terms.root, old.goal.isolation, old.goal.verification)
        if same != (agreed.goal.goal, agreed.terms.root, agreed.goal.isolation, agreed.goal.verification):
            raise UsageError(
                f"{contract} is of another goal, workspace, isolation or verification; loopd run --new {contract}"
            )
        with open_run(place, folder):  # nobody is at work, and nobody can start
            pass
        agreements.keep(folder.root, agreed)
        with open_run(place, folder) as run:
            allowance = dump_value(agreed.terms.allowance)
            run.note("owner.amended", contract_digest=agreed.terms.digest, allowance=allowance)
        print(f"run {entry.run} is now under {agreed.terms.digest[:12]}; next: loopd resume {entry.run}")
        return 0


def apply(
    name: RunName = "last",
    best: Annotated[bool, typer.Option("--best", help="The best attempt, proven or not.")] = False,
) -> int:
    """Write the proven tree, or with --best the best attempt, into your files; refused on conflicts."""
    return _deliver(name, to="tree", best=best)


def deliver(
    name: RunName = "last",
    branch: Annotated[bool, typer.Option("--branch", help="As one commit on a new branch.")] = False,
    best: Annotated[bool, typer.Option("--best", help="The best attempt, proven or not.")] = False,
) -> int:
    """Repeat the delivery of a run, in the contract's way or as a branch."""
    return _deliver(name, to="branch" if branch else "", best=best)


def _deliver(name: str, *, to: str, best: bool) -> int:
    with open_place() as place:
        entry, folder, record = _find(place, name)
        if record.state is not State.MET and not best:
            raise UsageError(f"run {entry.run} is {record.state}, not met; --best takes its best attempt, unproven")
        with open_run(place, folder) as run:
            way = to or run.goal.delivery.to or "tree"
            if record.state is State.MET:
                text = _within(run, lambda: deliver_proven(run, to=way))
            else:
                text = _within(run, lambda: deliver_best(run, to=way))
            run.note("delivered", text=text)
        print(f"delivered: {text}")
        return 0


def _within(run: Run, act: Callable[[], Awaitable[str]]) -> str:
    """Do something with the trees of a run at rest."""

    async def doing() -> str:
        await run.ports.workspace.prepare()
        return await act()

    return anyio.run(doing)


def _find(place: Place, name: str) -> tuple[RunEntry, RunFolder, Record]:
    entry = place.store.find(name)
    folder = RunFolder(entry.folder)
    return entry, folder, recorded(folder)


def _ask(place: Place, entry: RunEntry, kind: RequestKind, data: Mapping[str, Any]) -> bool:
    """Leave the wish in the spool; record it here when nobody is at work. Whether somebody is."""
    folder = RunFolder(entry.folder)
    FolderRequests(folder.requests).put(kind, data)
    try:
        with open_run(place, folder) as run:
            heed(run)
            if stop_asked(run):  # an agent may have outlived its supervisor: it is ended first
                anyio.run(pursue, run)
    except BusyError:
        return True
    return False


def _wait_for_end(entry: RunEntry) -> None:
    deadline = time.monotonic() + STOP_S
    while is_alive(entry.pid, entry.pid_start) and time.monotonic() < deadline:
        time.sleep(0.05)


def _refuse_final(entry: RunEntry, record: Record) -> None:
    if record.state in FINAL or record.state is State.REFUSED:
        raise UsageError(f"run {entry.run} is {record.state}, which is final; loopd run --new {entry.contract}")


def _then(entry: RunEntry, record: Record, at_work: bool) -> str:
    if at_work:
        return "; it takes effect at the next boundary"
    rest = record.state in REOPENABLE or record.step is not Step.OVER
    return f"; next: loopd resume {entry.run}" if rest else ""


def _more(attempts: int | None, more_time: str | None, cost: str | None, tokens: str | None) -> dict[str, float]:
    parsers: dict[str, tuple[str | None, Callable[[object], float]]] = {
        "time_s": (more_time, quantities.parse_duration),
        "cost_usd": (cost, _money),
        "tokens": (tokens, quantities.parse_tokens),
    }
    more: dict[str, float] = {"attempts": attempts} if attempts else {}
    for name, (text, parse) in parsers.items():
        if text is not None:
            try:
                more[name] = parse(text.strip().removeprefix("+"))
            except ValueError as error:
                raise UsageError(f"extend --{name.partition('_')[0]} {text}: {error}") from None
    if not more:
        raise UsageError("extend: say what: --attempts +10, --time +4h, --cost '+10 USD' or --tokens +5M")
    return more


def _money(text: object) -> float:
    """`10` and `10 USD` alike: after --cost nothing else can be meant."""
    written = str(text)
    return quantities.parse_money(written if written.endswith("USD") else f"{written} USD")


def _said(allowance: Allowance) -> str:
    parts = [f"{allowance.attempts} attempts", quantities.format_duration(allowance.time_s)]
    if allowance.cost_usd is not None:
        parts.append(quantities.format_money(allowance.cost_usd))
    if allowance.tokens is not None:
        parts.append(f"{quantities.format_tokens(allowance.tokens)} tokens")
    return ", ".join(parts)
