"""Ledgers on a real disk, for the tests that write and read them."""

from fakes import FakeClock
from loopd.adapters.ledger import open_ledger
from loopd.adapters.state import RunFolder
from loopd.ports.ledger import Event


def write(folder: RunFolder, count: int, *, snapshot_at: int = 0) -> list[Event]:
    with open_ledger(folder, FakeClock()) as ledger:
        events = [ledger.append("note", {"number": number, "text": "ü\n"}) for number in range(count)]
        if snapshot_at:
            ledger.save_snapshot(snapshot_at, {"at": snapshot_at})
    return events


def reopened(folder: RunFolder) -> list[Event]:
    with open_ledger(folder, FakeClock()) as ledger:
        return list(ledger.events())


def lines_of(content: bytes) -> list[int]:
    """The offset after each line."""
    return [offset + 1 for offset, byte in enumerate(content) if byte == 10]
