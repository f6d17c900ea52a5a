"""A run told by its ledger alone: for views of a run that nobody else describes, and for `loopd show`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from loopd.adapters.ledger import read_ledger
from loopd.adapters.state import RunFolder
from loopd.domain.record import Record, apply
from loopd.domain.status import status
from loopd.ports.ledger import Event


def replay(events: Iterable[Event]) -> Record:
    """The record these events tell."""
    record = Record()
    for event in events:
        record = apply(record, event.kind, event.data, event.at)
    return record


def status_from_ledger(run: Mapping[str, Any]) -> dict[str, Any]:
    """`loopd.status/1` of a run without a `status.json`. Raises `StateError` when the ledger cannot be read."""
    record = replay(read_ledger(RunFolder(Path(run["folder"])).ledger))
    return {
        **status(
            record,
            criteria_of(record),
            active_s=record.spent.time_s,
            contract=str(run["contract"]),
            workspace=str(run["workspace"]),
        ),
        "run": run["run"],
        "goal": run["goal"],
    }


def criteria_of(record: Record) -> tuple[str, ...]:
    """The names of all criteria that were ever judged; the baseline has them in the contract's order."""
    current = {**record.current.verdicts, **record.current.fresh} if record.current else {}
    return tuple(dict.fromkeys((*record.baseline_verdicts, *current)))
