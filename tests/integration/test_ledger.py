"""The ledger on a real disk: cuts, flips, kills."""

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from fakes import FakeClock
from ledgers import lines_of, reopened, write
from loopd.adapters.ledger import FileLedger, open_ledger, read_ledger, read_since_snapshot, verify_all
from loopd.adapters.state import RunFolder
from loopd.domain.errors import BusyError, StateError

CHAOS = int(os.environ.get("LOOPD_CHAOS", "20"))
PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def test_events_survive_closing_and_numbering_goes_on(folder: RunFolder) -> None:
    first = write(folder, 3)
    second = write(folder, 2)
    assert [event.seq for event in first + second] == [1, 2, 3, 4, 5]
    assert reopened(folder) == first + second


@pytest.mark.needs("jq")
def test_every_line_is_json_that_jq_reads_and_the_first_tells_the_version(folder: RunFolder) -> None:
    write(folder, 2)
    if not shutil.which("jq"):
        pytest.skip("jq is not installed")
    done = subprocess.run(["jq", "-c", "[.seq,.kind]", folder.ledger], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ['[0,"ledger"]', '[1,"note"]', '[2,"note"]']


def test_the_first_line_tells_the_format_version(folder: RunFolder) -> None:
    write(folder, 1)
    first = json.loads(folder.ledger.read_text().splitlines()[0])
    assert (first["seq"], first["kind"], first["data"]) == (0, "ledger", {"format": 1})


def test_j2_a_ledger_cut_at_any_byte_keeps_every_whole_event_and_tells_what_was_cut(folder: RunFolder) -> None:
    """A write that a power loss tore is repaired at the next start, whatever byte it was torn at."""
    events = write(folder, 4)
    whole = folder.ledger.read_bytes()
    ends = lines_of(whole)
    for cut in range(len(whole) + 1):
        folder.ledger.write_bytes(whole[:cut])
        folder.torn.unlink(missing_ok=True)
        kept = sum(end <= cut for end in ends)
        with open_ledger(folder, FakeClock()) as ledger:
            assert list(ledger.events()) == events[: max(kept - 1, 0)]
            at_the_end_of_a_line = cut == 0 or cut in ends
            assert (ledger.repaired is None) == at_the_end_of_a_line
            assert ledger.append("note", {}).seq == max(kept, 1)
        if not at_the_end_of_a_line:
            begin = ([0, *ends])[kept]
            assert folder.torn.read_bytes() == whole[begin:cut] + b"\n"
        assert verify_all(folder.ledger) == max(kept, 1)


def test_j2_a_bit_flipped_at_any_byte_is_an_error_that_names_the_line_and_changes_nothing(folder: RunFolder) -> None:
    """Damage to what was acknowledged is never dropped silently, in the last line as little as in the first."""
    write(folder, 3)
    whole = folder.ledger.read_bytes()
    starts = [0, *lines_of(whole)]
    for place in range(len(whole)):
        for bit in (1, 4, 32) if place % 7 else range(8):
            mask = bit if place % 7 else 1 << bit
            flipped = bytearray(whole)
            flipped[place] ^= mask
            folder.ledger.write_bytes(flipped)
            number = sum(start <= place for start in starts)
            with pytest.raises(StateError) as caught:
                reopened(folder)
            assert f"line {number}" in str(caught.value)
            assert "format" in str(caught.value) or f"byte {starts[number - 1]}," in str(caught.value)
            assert folder.ledger.read_bytes() == flipped
            with pytest.raises(StateError):
                list(read_ledger(folder.ledger))
    assert not folder.torn.exists()


def test_a_line_taken_out_or_put_twice_or_swapped_is_an_error(folder: RunFolder) -> None:
    write(folder, 4)
    lines = folder.ledger.read_bytes().splitlines(keepends=True)
    out, twice, swapped = lines[:2] + lines[3:], lines[:3] + lines[2:], [*lines[:2], lines[3], lines[2], lines[4]]
    for edited in (out, twice, swapped, lines[1:]):
        folder.ledger.write_bytes(b"".join(edited))
        with pytest.raises(StateError, match="damaged or was edited"):
            reopened(folder)


def test_an_unknown_newer_format_is_refused_with_what_to_do(folder: RunFolder) -> None:
    folder.ledger.write_text(
        '{"seq":0,"at":"2031-01-01T00:00:00.000Z","kind":"ledger","data":{"format":2},"hash":"x"}\n'
    )
    with pytest.raises(StateError, match=r"format 2 .*reads format 1\n.*newer"):
        reopened(folder)


def test_a_reader_needs_no_lock_and_leaves_out_a_line_that_is_half_there(folder: RunFolder) -> None:
    events = write(folder, 2)
    with open_ledger(folder, FakeClock()) as ledger:
        with folder.ledger.open("ab") as file:
            file.write(b'{"seq":3,"at":"2026')
        assert list(read_ledger(folder.ledger)) == events
        assert list(read_ledger(folder.ledger, after=1)) == events[1:]
        assert verify_all(folder.ledger) == 2
        assert list(ledger.events()) == events


def test_a_missing_ledger_cannot_be_read(folder: RunFolder) -> None:
    with pytest.raises(StateError, match="No such file"):
        list(read_ledger(folder.ledger))


def test_a_snapshot_survives_and_only_the_rest_is_checked_when_it_fits(folder: RunFolder) -> None:
    events = write(folder, 6, snapshot_at=4)
    content = bytearray(folder.ledger.read_bytes())
    content[lines_of(bytes(content))[0] + 30] ^= 1  # in event 1, before the snapshot
    folder.ledger.write_bytes(content)
    with open_ledger(folder, FakeClock()) as ledger:
        assert ledger.load_snapshot() == (4, {"at": 4})
        assert list(ledger.events(4)) == events[4:]
        with pytest.raises(StateError):
            list(ledger.events())
    with pytest.raises(StateError, match="line 2"):
        verify_all(folder.ledger)


def test_a_reader_without_a_lock_begins_at_the_snapshot_too(folder: RunFolder) -> None:
    events = write(folder, 6)
    assert read_since_snapshot(folder)[0] is None
    assert list(read_since_snapshot(folder)[1]) == events
    with open_ledger(folder, FakeClock()) as ledger:
        ledger.save_snapshot(4, {"at": 4})
        snapshot, rest = read_since_snapshot(folder)
        assert (snapshot, list(rest)) == ((4, {"at": 4}), events[4:])
    folder.ledger.write_bytes(folder.ledger.read_bytes().replace(b'"number":3', b'"number":8'))
    assert read_since_snapshot(folder)[0] is None
    with pytest.raises(StateError, match="line 5"):
        list(read_since_snapshot(folder)[1])


def test_a_damaged_snapshot_is_ignored_since_the_events_are_the_truth(folder: RunFolder) -> None:
    events = write(folder, 3, snapshot_at=2)
    whole = folder.snapshot.read_bytes()
    for place in range(len(whole) - 1):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        folder.snapshot.write_bytes(flipped)
        with open_ledger(folder, FakeClock()) as ledger:
            assert ledger.load_snapshot() in (None, (2, {"at": 2}))
            assert list(ledger.events()) == events


def test_a_snapshot_of_another_ledger_is_ignored(folder: RunFolder, tmp_path: Path) -> None:
    other = RunFolder(tmp_path / "other")
    other.root.mkdir()
    with open_ledger(other, FakeClock()) as ledger:
        ledger.append("else", {})
        ledger.save_snapshot(1, {"foreign": True})
    events = write(folder, 3)
    shutil.copy(other.snapshot, folder.snapshot)
    with open_ledger(folder, FakeClock()) as ledger:
        assert ledger.load_snapshot() is None
        assert list(ledger.events()) == events


def test_a_ledger_that_is_shorter_than_its_snapshot_is_an_error(folder: RunFolder) -> None:
    """Cut at the end of a line the chain looks whole; the snapshot knows better."""
    write(folder, 5, snapshot_at=4)
    lines = folder.ledger.read_bytes().splitlines(keepends=True)
    folder.ledger.write_bytes(b"".join(lines[:3]))
    with pytest.raises(StateError, match=r"ends with event 2, .* at event 4: recorded events are missing"):
        reopened(folder)


def test_the_second_supervisor_is_told_who_holds_the_run(folder: RunFolder) -> None:
    with open_ledger(folder, FakeClock()), pytest.raises(BusyError, match=f"process {os.getpid()} "):
        open_ledger(folder, FakeClock())
    write(folder, 1)


def test_a_program_started_while_the_ledger_is_open_does_not_keep_the_run(folder: RunFolder) -> None:
    with open_ledger(folder, FakeClock()):
        sleeper = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        write(folder, 1)
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_failed_start_gives_the_run_free_again(folder: RunFolder) -> None:
    write(folder, 2)
    whole = folder.ledger.read_bytes()
    folder.ledger.write_bytes(b"x" + whole[1:])
    for _ in range(2):
        with pytest.raises(StateError, match="damaged"):
            open_ledger(folder, FakeClock())
    folder.ledger.write_bytes(whole)
    assert len(reopened(folder)) == 2


@pytest.mark.chaos
def test_j2_a_writer_killed_at_a_random_time_loses_no_acknowledged_event(folder: RunFolder) -> None:
    """Each acknowledgement is printed after the append returned; after SIGKILL every printed number is there."""
    chance = random.Random(5)
    acknowledged = 0
    for _ in range(CHAOS):
        with start("append_forever.py", folder.root) as writer:
            assert writer.stdout
            first = writer.stdout.readline()
            time.sleep(chance.uniform(0, 0.03))
            writer.kill()
            printed = (first + writer.stdout.read()).split()
        acknowledged = max(acknowledged, int(printed[-1]))
        with open_ledger(folder, FakeClock()) as ledger:
            numbers = [event.seq for event in ledger.events()]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) >= acknowledged
    assert acknowledged > CHAOS


def test_a_limit_in_the_middle_of_a_line_leaves_no_half_line_and_stops_the_ledger(folder: RunFolder) -> None:
    """A short write, then an error: what a full disk does, made with a file size limit so that anyone can run it."""
    events = write(folder, 3)
    size = folder.ledger.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open_ledger(folder, FakeClock()) as ledger:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))
        try:
            with pytest.raises(StateError, match=r"cannot be written: File too large\nmend the disk"):
                ledger.append("note", {})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert folder.ledger.stat().st_size == size
        with pytest.raises(StateError):
            ledger.append("note", {})
    assert reopened(folder) == events


class Interrupted(BaseException):
    """What Ctrl-C raises, wherever the interpreter happens to be."""


def append_interrupted_at(ledger: FileLedger, step: int) -> bool:
    """Append, with an exception before the line number `step` that is executed in the ledger; whether there was one."""
    steps = 0

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        nonlocal steps
        if not frame.f_code.co_filename.endswith("adapters/ledger.py"):
            return None
        if event == "line":
            steps += 1
            if steps == step:
                raise Interrupted
        return trace

    sys.settrace(trace)
    try:
        ledger.append("note", {"step": step})
        return False
    except Interrupted:
        return True
    finally:
        sys.settrace(None)


def test_an_exception_at_any_line_of_an_append_leaves_a_chain_that_goes_on(folder: RunFolder) -> None:
    """Ctrl-C may come between the write and the count of it; the next event must still fit."""
    with open_ledger(folder, FakeClock()) as ledger:
        step = 1
        while append_interrupted_at(ledger, step) and step < 200:
            ledger.append("note", {"after": step})
            step += 1
        last = ledger.last_seq
    assert step > 10
    assert [event.seq for event in reopened(folder)] == list(range(1, last + 1))
    assert {event.data["after"] for event in reopened(folder) if "after" in event.data} == set(range(1, step))


def test_bud_4_spending_recorded_before_a_restart_is_there_once_after_it(folder: RunFolder) -> None:
    """Budget 1.00: 0.60 before the restart and 0.30 after it are 0.90, whether a snapshot was taken or not."""
    with open_ledger(folder, FakeClock()) as ledger:
        ledger.append("attempt.settled", {"cost_usd": 0.60})
        ledger.save_snapshot(1, {"cost_usd": 0.60})
    with open_ledger(folder, FakeClock()) as ledger:
        snapshot = ledger.load_snapshot()
        assert snapshot is not None
        after, state = snapshot
        ledger.append("attempt.settled", {"cost_usd": 0.30})
        resumed = state["cost_usd"] + sum(event.data["cost_usd"] for event in ledger.events(after))
        replayed = sum(event.data["cost_usd"] for event in ledger.events())
    assert resumed == pytest.approx(0.90)
    assert replayed == pytest.approx(0.90)


def test_opening_a_ledger_of_50000_events_with_a_snapshot_costs_no_more_than_10_ms_over_an_empty_one(
    tmp_path: Path,
) -> None:
    full, empty = RunFolder(tmp_path / "full"), RunFolder(tmp_path / "empty")
    for folder in (full, empty):
        folder.root.mkdir()
    with open_ledger(full, FakeClock()) as ledger:
        for number in range(50_000):
            ledger.append("attempt.exited", {"attempt": number, "note": "x" * 120}, durable=False)
        ledger.save_snapshot(49_990, {"attempts": 10_000})
    write(empty, 1, snapshot_at=1)
    assert cost_of_opening(full) - cost_of_opening(empty) < 0.010


def cost_of_opening(folder: RunFolder) -> float:
    def once() -> float:
        before = time.process_time()
        with open_ledger(folder, FakeClock()) as ledger:
            snapshot = ledger.load_snapshot()
            assert snapshot is not None
            list(ledger.events(snapshot[0]))
        return time.process_time() - before

    return min(once() for _ in range(5))


def start(program: str, *arguments: Path | str) -> subprocess.Popen[bytes]:
    command = [sys.executable, PROGRAMS / program, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
