"""The ledger on a disk that is full or cannot be written."""

import subprocess
from pathlib import Path

import pytest

from fakes import FakeClock
from ledgers import reopened, write
from loopd.adapters.ledger import open_ledger, read_ledger
from loopd.adapters.state import RunFolder
from loopd.domain.errors import StateError
from loopd.ports.ledger import Event


@pytest.fixture
def tiny_folder(tiny_disk: Path) -> RunFolder:
    """A run folder on it."""
    return RunFolder(tiny_disk)


def fill(folder: Path) -> Path:
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return ballast


def test_res_2_a_full_disk_stops_the_ledger_and_the_last_record_still_fits(tiny_folder: RunFolder) -> None:
    """On a full disk the run ends with a record that says so; nothing acknowledged is lost."""
    acknowledged: list[Event] = []
    with open_ledger(tiny_folder, FakeClock()) as ledger:
        acknowledged.append(ledger.append("note", {"text": "before"}))
        fill(tiny_folder.root)
        with pytest.raises(StateError, match="No space left on device"):
            for _ in range(10_000):
                acknowledged.append(ledger.append("note", {"text": "x" * 700}))
        with pytest.raises(StateError, match="No space left on device"):
            ledger.append("note", {})
        with pytest.raises(OSError, match="No space left on device"):
            (tiny_folder.root / "more").write_bytes(b"x" * 4096)
        last = ledger.write_last_record("run.ended", {"reason": "disk full", "text": "x" * 20_000})
    assert reopened(tiny_folder) == [*acknowledged, last]


def test_res_2_a_ledger_can_be_read_on_a_full_disk_and_written_when_there_is_room_again(tiny_folder: RunFolder) -> None:
    """Looking at a run needs no space; resuming goes on with the next number."""
    events = write(tiny_folder, 3)
    ballast = fill(tiny_folder.root)
    with open_ledger(tiny_folder, FakeClock()) as ledger:
        assert list(ledger.events()) == events
    ballast.unlink()
    assert [event.seq for event in write(tiny_folder, 1)] == [4]


def test_a_read_only_disk_is_told_as_such(tiny_folder: RunFolder) -> None:
    with open_ledger(tiny_folder, FakeClock()) as ledger:
        ledger.append("note", {})
    subprocess.run(["mount", "-o", "remount,ro", tiny_folder.root], check=True)
    with pytest.raises(StateError, match="Read-only file system"):
        open_ledger(tiny_folder, FakeClock())
    assert len(list(read_ledger(tiny_folder.ledger))) == 1
