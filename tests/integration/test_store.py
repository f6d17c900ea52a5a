"""The index on a real disk, and the race for a workspace among real processes."""

import os
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from loopd.adapters.liveness import start_time
from loopd.adapters.state import RunFolder, StateFolder, create_run, ensure_state
from loopd.adapters.status import publish_status
from loopd.adapters.stores.gate import pass_gate
from loopd.adapters.stores.place import file_system, find_place, why_not
from loopd.adapters.stores.records import record_run, recorded_run
from loopd.adapters.stores.sqlite import SqliteStore, open_store, rebuild
from loopd.domain.errors import StateError
from loopd.ports.store import RunEntry

PROGRAMS = Path(__file__).parent / "programs"
FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    return ensure_state(StateFolder(tmp_path / "state"))


def make_run(state: StateFolder, goal: str = "goal", workspace: Path = Path("/nowhere/w")) -> RunEntry:
    folder = create_run(state, goal, os.urandom)
    entry = RunEntry(
        folder.run, goal, folder.root, workspace, folder.contract, "d1", "ready", "2026-01-01", "2026-01-01"
    )
    record_run(folder, entry)
    return entry


def started(program: str, *arguments: str | Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, PROGRAMS / program, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def test_state_5_of_16_processes_that_start_at_once_exactly_one_holds_the_workspace(
    state: StateFolder, tmp_path: Path
) -> None:
    """All wait at a barrier, then race; the losers are told the winner's pid."""
    with pytest.MonkeyPatch.context():
        racers = [started("race_for_workspace.py", state.root, tmp_path, f"goal-{number:04}") for number in range(16)]
        assert [racer.stdout.readline() for racer in racers if racer.stdout] == ["ready\n"] * 16
        for racer in racers:
            assert racer.stdin
            racer.stdin.write("go\n")
            racer.stdin.flush()
        answers = [racer.stdout.readline().strip() for racer in racers if racer.stdout]
        for racer in racers:
            racer.communicate()
    winners = [racer.pid for racer, answer in zip(racers, answers, strict=True) if answer == "held"]
    assert len(winners) == 1
    assert set(answers) == {"held", f"refused by {winners[0]}"}


def test_state_5_the_workspace_of_a_killed_supervisor_is_free_at_once(state: StateFolder, tmp_path: Path) -> None:
    """kill -9 leaves nothing that has to time out."""
    with started("race_for_workspace.py", state.root, tmp_path, "goal-aaaa") as holder:
        assert holder.stdin and holder.stdout
        holder.stdout.readline()
        holder.stdin.write("go\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "held\n"
        with open_store(state) as store:
            assert store.hold(tmp_path, "goal-bbbb", os.getpid(), start_time(os.getpid()) or 0) is not None
            holder.kill()
            holder.wait()
            assert store.hold(tmp_path, "goal-bbbb", os.getpid(), start_time(os.getpid()) or 0) is None


def test_a_hold_of_an_earlier_boot_is_nobodys(state: StateFolder, tmp_path: Path) -> None:
    with open_store(state) as store:
        store.hold(tmp_path, "goal-aaaa", os.getpid(), start_time(os.getpid()) or 0)
        with closing(sqlite3.connect(state.index)) as connection:
            connection.execute("update hold set boot = 'another'")
            connection.commit()
        assert store.hold(tmp_path, "goal-bbbb", os.getppid(), start_time(os.getppid()) or 0) is None


def test_the_database_is_durable_strict_and_private(state: StateFolder) -> None:
    with open_store(state) as store:
        assert store.note == ""
        with closing(sqlite3.connect(state.index)) as connection:
            assert connection.execute("pragma journal_mode").fetchone() == ("wal",)
            assert connection.execute(
                "select name, strict from pragma_table_list where name in ('run', 'hold')"
            ).fetchall() == [
                ("hold", 1),
                ("run", 1),
            ]
        assert store._connection.execute("pragma synchronous").fetchone() == (2,)
    assert state.index.stat().st_mode & 0o777 == 0o600


def test_a_removed_index_comes_back_from_the_run_folders(state: StateFolder, tmp_path: Path) -> None:
    old, live = make_run(state), make_run(state, "other", tmp_path)
    me = {"pid": os.getpid(), "pid_start": start_time(os.getpid())}
    publish_status(RunFolder(live.folder), {"state": "running", "changed_at": "2026-02-02", **me})
    (state.runs / "half-made").mkdir()
    with open_store(state) as store:
        assert [entry.run for entry in store.runs()] == [live.run, old.run]
        assert (store.find(live.run).state, store.find(live.run).pid) == ("running", os.getpid())
        holder = store.hold(tmp_path, "third-aaaa", os.getppid(), start_time(os.getppid()) or 0)
        assert holder is not None
        assert holder.run == live.run


def test_rebuilding_is_idempotent_and_brings_back_what_was_forgotten(state: StateFolder) -> None:
    first, second = make_run(state), make_run(state)
    with open_store(state) as store:
        store.forget(first.run)
        assert rebuild(state) == rebuild(state) == 2
        assert {entry.run for entry in store.runs()} == {first.run, second.run}


def test_a_run_whose_state_folder_was_moved_is_recorded_where_it_is_now(state: StateFolder, tmp_path: Path) -> None:
    entry = make_run(state)
    state.root.rename(tmp_path / "moved")
    moved = StateFolder(tmp_path / "moved").run(entry.run)
    recorded = recorded_run(moved)
    assert recorded is not None
    assert recorded.folder == moved.root


def test_a_damaged_index_is_an_error_with_a_remedy_that_works(state: StateFolder) -> None:
    entry = make_run(state)
    with open_store(state):
        pass
    state.index.write_bytes(b"this is no database " * 400)
    with pytest.raises(StateError) as caught:
        open_store(state)
    assert f"mv {state.index} {state.index}.damaged" in str(caught.value)
    subprocess.run(["mv", state.index, f"{state.index}.damaged"], check=True)
    with open_store(state) as store:
        assert [found.run for found in store.runs()] == [entry.run]


def test_an_index_moved_away_while_its_log_stays_does_not_spoil_the_new_one(state: StateFolder) -> None:
    entry = make_run(state)
    with started("race_for_workspace.py", state.root, state.root, "goal-aaaa") as holder:
        assert holder.stdin and holder.stdout
        holder.stdout.readline()
        holder.stdin.write("go\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "held\n"
        holder.kill()
    assert Path(f"{state.index}-wal").exists()
    state.index.rename(f"{state.index}.damaged")
    with open_store(state) as store:
        assert [found.run for found in store.runs()] == [entry.run]


def test_an_index_of_a_newer_version_is_refused_and_left_as_it_is(state: StateFolder) -> None:
    with closing(sqlite3.connect(state.index)) as connection:
        connection.execute("pragma user_version = 99")
    before = state.index.read_bytes()
    with pytest.raises(StateError, match=r"is of version 99; this loopd knows up to \d"):
        open_store(state)
    assert state.index.read_bytes() == before


def test_an_index_of_version_1_is_read(state: StateFolder) -> None:
    with closing(sqlite3.connect(state.index)) as connection:
        connection.executescript((FIXTURES / "loopd-1.sql").read_text())
    with open_store(state) as store:
        assert [(entry.run, entry.state) for entry in store.runs()] == [("retry-client-k3f9", "met")]


def test_a_read_only_disk_is_told_as_such(tiny_disk: Path) -> None:
    state = ensure_state(StateFolder(tiny_disk / "state"))
    with open_store(state):
        pass
    subprocess.run(["mount", "-o", "remount,ro", tiny_disk], check=True)
    with pytest.raises(StateError, match=r"Read-only file system[\s\S]*see that its folder can be written"):
        open_store(state)


def test_res_2_a_write_on_a_full_disk_is_an_error_and_the_index_stays_readable(tiny_disk: Path) -> None:
    """The store fails closed; what it held before is still there."""
    state = ensure_state(StateFolder(tiny_disk / "state"))
    entry = make_run(state)
    with open_store(state) as store:
        with (tiny_disk / "ballast").open("wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(b"x" * 4096)
        with pytest.raises(StateError, match=r"full|No space"):
            for number in range(1000):
                store.put(RunEntry(f"more-{number}", "more", Path("/x" * 999), Path("/"), Path("/"), "", "", "", ""))
        assert entry.run in {found.run for found in store.runs()}


def test_a_network_file_system_is_left_for_a_private_local_folder_and_said_so(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "20 1 0:1 / / rw - ext4 /dev/vda rw\n"
        "21 20 0:2 / /home rw shared:1 - nfs4 server:/home rw\n"
        "22 20 0:2 / /home/my\\040disk rw - ext4 /dev/vdb rw\n"
    )
    assert file_system(Path("/home/ann/.local"), mounts) == "nfs4"
    assert file_system(Path("/home/my disk/x"), mounts) == "ext4"
    assert file_system(Path("/homestead"), mounts) == "ext4"
    assert why_not(Path("/home/ann"), mounts) == "is on a network file system (nfs4)"
    assert why_not(tmp_path) == ""


def test_the_index_goes_to_the_spare_folder_when_its_own_cannot_have_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "loopd.adapters.stores.place.why_not", lambda folder: "" if folder.name == "spare" else "is odd"
    )
    place = find_place(tmp_path / "state" / "loopd.db", tmp_path / "spare")
    assert place.path.parent == tmp_path / "spare"
    assert place.note == f"the index of runs is kept in {place.path}: {tmp_path / 'state'} is odd"
    assert (tmp_path / "spare").stat().st_mode & 0o777 == 0o700
    (tmp_path / "spare").chmod(0o777)
    with pytest.raises(StateError, match="not a private folder"):
        find_place(tmp_path / "state" / "loopd.db", tmp_path / "spare")


def test_res_2_a_full_disk_is_an_error_and_no_reason_to_keep_a_second_index_elsewhere(
    tiny_disk: Path, tmp_path: Path
) -> None:
    """An index that moves while the disk is full would split what runs share."""
    with (tiny_disk / "ballast").open("wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(b"x" * 4096)
    with pytest.raises(StateError, match=r"cannot be kept in .*full"):
        find_place(tiny_disk / "loopd.db", tmp_path / "spare")


def test_the_probe_leaves_nothing_behind(state: StateFolder) -> None:
    with open_store(state):
        pass
    assert sorted(path.name for path in state.root.iterdir()) == ["loopd.db", "loopd.db.gate", "runs"]


def test_writers_wait_at_the_gate_with_a_deadline(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with pass_gate(gate):
        before = time.monotonic()
        with pytest.raises(StateError, match=r"has held .* for 0.2 s"), pass_gate(gate, timeout_s=0.2):
            pass
        assert time.monotonic() - before >= 0.2
    with pass_gate(gate, timeout_s=5):
        pass


def test_a_write_stands_in_line_at_the_gate(state: StateFolder) -> None:
    with open_store(state) as store:
        written = threading.Event()

        def write() -> None:
            store.forget("x")
            written.set()

        writer = threading.Thread(target=write)
        with pass_gate(state.index.with_name("loopd.db.gate")):
            writer.start()
            assert not written.wait(0.2)
        assert written.wait(10)
        writer.join()


def test_a_writer_that_gives_up_at_the_gate_does_not_take_it_later(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with pass_gate(gate), pytest.raises(StateError), pass_gate(gate, timeout_s=0.05):
        pass
    for _ in range(20):
        with pass_gate(gate, timeout_s=5):
            pass


def test_writers_in_eight_processes_lose_nothing(state: StateFolder) -> None:
    writers = [started("put_many.py", state.root, str(number)) for number in range(8)]
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    with SqliteStore(state.index) as store:
        assert len(store.runs()) == 8 * 25
