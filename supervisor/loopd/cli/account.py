"""Everything a ledger tells of a run, put together for people: attempts, verdicts, decisions, endings."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from loopd.cli.replay import criteria_of
from loopd.domain.record import Record, apply
from loopd.ports.ledger import Event

FORMAT = "loopd.show/1"
_OWNER = ("owner.edited", "owner.steered", "owner.extended", "owner.amended", "run.reopened")


def account(events: Iterable[Event]) -> tuple[Record, dict[str, Any]]:
    """The record, and JSON values: settings, tree, baseline, attempts, decisions, owner, attention, endings."""
    record = Record()
    told: dict[str, Any] = {
        "format": FORMAT,
        "settings": [],
        "tree": {},
        "baseline": [],
        "attempts": [],
        "decisions": [],
        "owner": [],
        "endings": [],
    }
    for event in events:
        record = apply(record, event.kind, event.data, event.at)
        if write := _WRITERS.get(event.kind):
            write(told, event.data, event)
    told["criteria"] = list(criteria_of(record))
    return record, told


def tampered(attempt: Mapping[str, Any]) -> bool:
    """Whether an attempt tampered with the proof, or touched what it must not touch."""
    statuses = [verdict["status"] for verdict in attempt["verdicts"].values()]
    return bool(attempt["tampered"] or attempt["restored"] or "tamper" in statuses)


def _opened(told: dict[str, Any], data: Mapping[str, Any], event: Event) -> None:
    told["opened_at"] = event.at
    told["settings"] = list(data.get("settings", ()))


def _prepared(told: dict[str, Any], data: Mapping[str, Any], event: Event) -> None:
    told["tree"] = dict(data)


def _baseline(told: dict[str, Any], data: Mapping[str, Any], event: Event) -> None:
    verdict = dict(data["verdict"])
    told["baseline"] = [*(old for old in told["baseline"] if old["criterion"] != verdict["criterion"]), verdict]


def _reserved(told: dict[str, Any], data: Mapping[str, Any], event: Event) -> None:
    told["attempts"].append(
        {
            "attempt": data["attempt"],
            "reserved_at": event.at,
            "base": data["base"],
            "instruction": data.get("instruction", ""),
            "containment": "",
            "adopted": False,
            "voided": False,
            "outcome": None,
            "reason": "",
            "exit": {},
            "usage": None,
            "ended": [],
            "tree": "",
            "changed": [],
            "restored": [],
            "unproven": [],
            "refused": [],
            "tampered": "",
            "verdicts": {},
            "fresh": {},
        }
    )


def _launched(told: dict[str, Any], data: Mapping[str, Any], event: Event) -> None:
    _of(told, data).update(containment=data.get("containment", ""), adopted=bool(data.get("adopted")))


def _voided(told: dict[str, Any], data: Mapping[str, Any], event: Event) -> None:
    _of(told, data)["voided"] = True


def _into_attempt(told: dict[str, Any], data: Mapping[str, Any], event: Event) -> None:
    attempt = _of(told, data)
    attempt.update({key: value for key, value in data.items() if key in attempt})


def _verdict(told: dict[str, Any], data: Mapping[str, Any], event: Event) -> None:
    verdict = dict(data["verdict"])
    _of(told, data)["fresh" if data.get("fresh") else "verdicts"][verdict["criterion"]] = verdict


def _decided(told: dict[str, Any], data: Mapping[str, Any], event: Event) -> None:
    number = told["attempts"][-1]["attempt"] if told["attempts"] else 0
    told["decisions"].append({"at": event.at, "attempt": number, **data})


def _by_owner(told: dict[str, Any], data: Mapping[str, Any], event: Event) -> None:
    told["owner"].append({"at": event.at, "kind": event.kind, **data})


def _ending(told: dict[str, Any], data: Mapping[str, Any], event: Event) -> None:
    told["endings"].append({"at": event.at, "kind": event.kind, **data})


def _of(told: dict[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """The newest entry of the attempt that `data` speaks of; a voided one is reserved again under its number."""
    number = data.get("attempt")
    found: dict[str, Any] = next(one for one in reversed(told["attempts"]) if number in (None, one["attempt"]))
    return found


_WRITERS: Mapping[str, Callable[[dict[str, Any], Mapping[str, Any], Event], None]] = {
    "run.opened": _opened,
    "tree.prepared": _prepared,
    "baseline.verdict": _baseline,
    "attempt.reserved": _reserved,
    "attempt.started": _launched,
    "attempt.voided": _voided,
    "attempt.ended": _into_attempt,
    "attempt.captured": _into_attempt,
    "verdict": _verdict,
    "decision": _decided,
    "run.interrupted": _ending,
    "run.ended": _ending,
    **dict.fromkeys(_OWNER, _by_owner),
}
