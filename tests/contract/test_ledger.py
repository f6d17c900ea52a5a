"""What every ledger does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes import FakeClock, MemoryLedger
from loopd.adapters.ledger import open_ledger
from loopd.adapters.state import RunFolder
from loopd.ports.ledger import Ledger


@pytest.fixture(params=["file", "memory"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    if request.param == "memory":
        yield MemoryLedger(FakeClock())
        return
    with open_ledger(RunFolder(tmp_path), FakeClock()) as opened:
        yield opened


def test_a_new_ledger_has_no_events_and_no_snapshot(ledger: Ledger) -> None:
    assert list(ledger.events()) == []
    assert ledger.load_snapshot() is None


def test_events_are_numbered_from_one_and_dated_in_utc(ledger: Ledger) -> None:
    first = ledger.append("attempt.reserved", {"attempt": 1})
    second = ledger.append("attempt.started", {"attempt": 1}, durable=False)
    assert (first.seq, second.seq) == (1, 2)
    assert first.at == "2026-01-02T03:04:05.000Z"


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"text": "two\nlines, a tab\t, NUL \x00, ünïcode \N{SNOWMAN}, \u2028"},
        {"path": "bad-\udcff-byte"},
        {"nested": {"list": [1, 2.5, None, True, {"deep": ["x"]}]}, "large": "x" * 100_000},
        {"seq": 99, "hash": "no", "kind": "other"},
    ],
    ids=["empty", "controls", "surrogate", "nested", "reserved-words"],
)
def test_what_is_appended_is_what_is_read(ledger: Ledger, data: dict[str, object]) -> None:
    event = ledger.append("note", data)
    assert event.data == data
    assert list(ledger.events()) == [event]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), object(), {1, 2}], ids=["nan", "inf", "object", "set"])
def test_what_json_cannot_say_is_refused_and_leaves_no_trace(ledger: Ledger, bad: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        ledger.append("note", {"value": bad})
    event = ledger.append("note", {"value": 1})
    assert event.seq == 1
    assert list(ledger.events()) == [event]


def test_the_returned_event_does_not_change_with_the_callers_mapping(ledger: Ledger) -> None:
    data: dict[str, object] = {"spent": [1]}
    event = ledger.append("note", data)
    data["spent"] = [2]
    assert event.data == {"spent": [1]}


@pytest.mark.parametrize(("after", "expected"), [(-1, [1, 2, 3]), (0, [1, 2, 3]), (1, [2, 3]), (3, []), (9, [])])
def test_events_after_a_number_are_those_above_it(ledger: Ledger, after: int, expected: list[int]) -> None:
    for number in range(3):
        ledger.append("note", {"number": number})
    assert [event.seq for event in ledger.events(after)] == expected


@pytest.mark.parametrize("seq", [0, 1, 2, 3])
def test_a_snapshot_comes_back_with_its_number_and_the_events_after_it_are_the_rest(ledger: Ledger, seq: int) -> None:
    for number in range(3):
        ledger.append("note", {"number": number})
    ledger.save_snapshot(seq, {"spent_usd": 1.25, "attempts": [1, 2]})
    assert ledger.load_snapshot() == (seq, {"spent_usd": 1.25, "attempts": [1, 2]})
    assert [event.seq for event in ledger.events(seq)] == list(range(seq + 1, 4))
    assert [event.seq for event in ledger.events()] == [1, 2, 3]


def test_a_later_snapshot_replaces_an_earlier_one(ledger: Ledger) -> None:
    ledger.append("note", {})
    ledger.save_snapshot(1, {"version": "old"})
    ledger.append("note", {})
    ledger.save_snapshot(2, {"version": "new"})
    assert ledger.load_snapshot() == (2, {"version": "new"})


def test_a_snapshot_of_events_that_do_not_exist_is_refused(ledger: Ledger) -> None:

    with pytest.raises(ValueError):
        ledger.save_snapshot(5, {})
