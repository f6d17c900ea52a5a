"""The lean reading of state agrees with what writes it."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from loopd.adapters.liveness import is_alive as real_is_alive
from loopd.adapters.liveness import start_time
from loopd.adapters.state import StateFolder, ensure_state, locate_state
from loopd.adapters.status import publish_status
from loopd.adapters.stores import sqlite
from loopd.adapters.stores.find import find_run
from loopd.adapters.stores.sqlite import open_store
from loopd.cli import index
from loopd.domain import status as domain_status
from loopd.domain.errors import BlockedError, LoopdError, StateError, UsageError
from loopd.ports.store import RunEntry
from sample_runs import typical

ENTRY = RunEntry("retry-aaaa", "retry", Path("/r"), Path("/w"), Path("/c"), "d", "met", "1", "1")
RUNS = (
    replace(ENTRY, run="retry-bbbb", started_at="1", changed_at="4"),
    replace(ENTRY, run="retry-bacd", started_at="3", changed_at="3"),
    replace(ENTRY, run="other-cccc", goal="other", started_at="2", changed_at="2"),
)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "state"
    monkeypatch.setenv("LOOPD_STATE", str(root))
    return root


def as_row(entry: RunEntry) -> dict[str, Any]:
    return {name: value if isinstance(value, int) else str(value) for name, value in asdict(entry).items()}


@pytest.mark.parametrize(
    "environ",
    [
        {"LOOPD_STATE": "/var/lib/loopd"},
        {"LOOPD_STATE": "relative/place"},
        {"XDG_STATE_HOME": "/xdg", "HOME": "/home/ada"},
        {"XDG_STATE_HOME": "relative", "HOME": "/home/ada/"},
        {"HOME": "/home/ada"},
        {},
    ],
)
def test_the_state_folder_is_the_one_that_is_written(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOPD_STATE", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    if not environ:
        with pytest.raises(BlockedError):
            index.state_root()
        return
    assert Path(index.state_root()) == locate_state(os.environ).root


@pytest.mark.parametrize("name", ["last", "retry-bbbb", "retry", "other", "oth", "retry-bb", "retry-b", "", "nothing"])
def test_a_name_means_the_run_that_the_store_finds(name: str) -> None:
    rows = [as_row(entry) for entry in RUNS]
    try:
        wanted = find_run(RUNS, name).run
    except UsageError as error:
        with pytest.raises(UsageError, match=str(error)[:20].replace("(", r"\(")):
            index.pick(rows, name)
        return
    assert index.pick(rows, name)["run"] == wanted


def test_a_process_is_alive_by_pid_and_start_time_and_a_zombie_is_not() -> None:
    zombie = subprocess.Popen(["true"])
    try:
        me = (os.getpid(), start_time(os.getpid()) or 0)
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        for pid, start in (me, (me[0], me[1] + 1), (zombie.pid, 1), (0, 0), (2**22 + 1, 5)):
            assert index.is_alive(pid, start) == real_is_alive(pid, start)
        assert index.is_alive(*me)
    finally:
        zombie.wait()


def test_the_index_is_read_as_the_store_wrote_it_bytes_in_paths_included(own_state: Path) -> None:
    ensure_state(StateFolder(own_state))
    odd = replace(ENTRY, workspace=Path("/w/bad-\udcff"), pid=3, pid_start=4)
    with open_store(StateFolder(own_state)) as store:
        store.put(odd)
        store.put(replace(ENTRY, run="retry-zzzz", changed_at="9"))
    rows = index.all_runs()
    assert [row["run"] for row in rows] == ["retry-zzzz", "retry-aaaa"]
    assert rows[1] == {name: value for name, value in as_row(odd).items() if name != "contract_digest"}


def test_the_versions_known_here_are_those_that_are_written() -> None:
    assert len(sqlite.MIGRATIONS) == index.VERSION
    assert domain_status.FORMAT == index.STATUS_FORMAT


def test_without_an_index_the_runs_are_found_in_their_folders(own_state: Path) -> None:
    run = typical(own_state)
    run.ledger.close()
    assert not (own_state / "loopd.db").exists()
    assert [row["run"] for row in index.all_runs()] == [run.run]


def test_without_any_state_there_are_no_runs_and_nothing_is_written(own_state: Path) -> None:
    assert index.all_runs() == []
    assert not own_state.exists()


def test_without_a_status_file_the_ledger_tells_the_same(own_state: Path) -> None:
    run = typical(own_state).publish()
    [row] = index.all_runs()
    before = index.read_status(row)
    run.folder.status.unlink()
    assert index.read_status(row) == before


def test_a_status_of_another_version_is_refused(own_state: Path) -> None:
    run = typical(own_state).publish()
    publish_status(run.folder, {**run.status(), "format": "loopd.status/9"})
    [row] = index.all_runs()
    with pytest.raises(StateError, match=r"loopd\.status/9"):
        index.read_status(row)


def test_an_index_of_a_newer_version_is_refused_by_the_store(own_state: Path) -> None:
    typical(own_state).publish()
    import sqlite3

    connection = sqlite3.connect(own_state / "loopd.db")
    connection.execute("pragma user_version = 99")
    connection.close()
    with pytest.raises(LoopdError, match="version 99"):
        index.all_runs()
