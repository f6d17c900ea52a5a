"""Where state lies, and what of it other processes see."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from fakes import FakeClock
from loopd.adapters.atomic import write_whole
from loopd.adapters.clock import SystemClock
from loopd.adapters.ledger import open_ledger, read_ledger, verify_all
from loopd.adapters.liveness import is_alive, start_time
from loopd.adapters.requests import FolderRequests
from loopd.adapters.state import (
    RunFolder,
    StateFolder,
    create_run,
    ensure_state,
    keep_outside,
    locate_state,
    run_id,
)
from loopd.adapters.status import publish_status, read_status
from loopd.adapters.stores.records import recorded_run
from loopd.domain.errors import BlockedError, StateError, UsageError
from loopd.ports.requests import RequestKind

PROGRAMS = Path(__file__).parent / "programs"
FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"LOOPD_STATE": "/s", "XDG_STATE_HOME": "/x", "HOME": "/h"}, "/s"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/loopd"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state/loopd"),
        ({"LOOPD_STATE": "", "XDG_STATE_HOME": "", "HOME": "/h"}, "/h/.local/state/loopd"),
        ({"LOOPD_STATE": "here"}, str(Path.cwd() / "here")),
    ],
)
def test_the_state_folder_is_the_first_that_is_named(environ: dict[str, str], expected: str) -> None:
    assert locate_state(environ).root == Path(expected)


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_without_a_home_the_error_says_what_to_set(environ: dict[str, str]) -> None:
    with pytest.raises(BlockedError, match="LOOPD_STATE=/var/lib/loopd"):
        locate_state(environ)


def test_what_is_created_is_private(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        state = ensure_state(ensure_state(StateFolder(tmp_path / "state")))
        folder = create_run(state, "goal", os.urandom)
        with open_ledger(folder, FakeClock()) as ledger:
            ledger.append("note", {})
            publish_status(folder, {})
    finally:
        os.umask(old)
    loose = [path for path in [state.root, *state.root.rglob("*")] if path.stat().st_mode & 0o077]
    assert loose == []


def test_a_state_folder_that_others_can_write_is_refused_with_the_command_that_mends_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(UsageError, match=f"chmod 700 {tmp_path}"):
        ensure_state(StateFolder(tmp_path))


def test_a_state_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="Not a directory"):
        ensure_state(StateFolder(tmp_path / "file" / "state"))


@pytest.mark.parametrize("state", ["project", "project/.loopd", "link/.loopd"])
def test_state_3_state_inside_the_workspace_is_refused(tmp_path: Path, state: str) -> None:
    """An agent that cleans its tree must not reach loopd's own files, by no name."""
    (tmp_path / "project").mkdir()
    (tmp_path / "link").symlink_to("project")
    with pytest.raises(UsageError, match="within the agent's reach"):
        keep_outside(StateFolder(tmp_path / state), tmp_path / "project")


def test_state_beside_or_around_the_workspace_is_fine(tmp_path: Path) -> None:
    keep_outside(StateFolder(tmp_path / "project-state"), tmp_path / "project")
    keep_outside(StateFolder(tmp_path), tmp_path / "runs" / "goal-aaaa" / "workspace")


def test_a_run_id_is_the_goal_and_four_characters_of_the_randomness() -> None:
    assert run_id("retry", lambda count: b"\x00\x44\x32\x14\xc7"[:count]) == "retry-abcd"


def test_two_runs_with_the_same_randomness_get_different_folders(tmp_path: Path) -> None:
    state = ensure_state(StateFolder(tmp_path))
    numbers = iter([b"aaaaa", b"aaaaa", b"bbbbb"])
    first, second = (create_run(state, "goal", lambda count: next(numbers)) for _ in range(2))
    assert first != second
    with pytest.raises(StateError, match="no free run id"):
        create_run(state, "goal", lambda count: b"aaaaa")


def test_the_paths_of_a_run_are_fixed() -> None:
    folder = RunFolder(Path("/s/runs/goal-aaaa"))
    assert folder.run == "goal-aaaa"
    assert folder.attempt(1) == Path("/s/runs/goal-aaaa/attempts/0001")
    assert folder.contract == Path("/s/runs/goal-aaaa/contract.yaml")


def test_state_4_a_status_polled_during_200_quick_changes_always_parses_and_never_goes_back(tmp_path: Path) -> None:
    """Another process reads as fast as it can; no mixture, no gap, no step back."""
    folder = RunFolder(tmp_path)
    publish_status(folder, {"attempt": 0, "filler": "x" * 5000})
    command = [sys.executable, str(PROGRAMS / "poll_json.py"), str(folder.status)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout
        reader.stdout.readline()
        for attempt in range(1, 201):
            publish_status(folder, {"attempt": attempt, "filler": "x" * (attempt * 37 % 9000)})
            time.sleep(0.0005)
        publish_status(folder, {"attempt": -1})
        seen = json.loads(reader.stdout.read())
    assert seen["faults"] == []
    assert seen["attempts"] == sorted(seen["attempts"])
    assert len(seen["attempts"]) > 20
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_a_missing_or_empty_status_is_none_and_a_newer_one_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert read_status(folder.status) is None
    folder.status.write_bytes(b"")
    assert read_status(folder.status) is None
    folder.status.write_text('{"format": 2}')
    with pytest.raises(StateError, match="format 2"):
        read_status(folder.status)


def test_a_whole_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "in-the-way").write_text("")
    with pytest.raises(OSError):
        write_whole(target, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_a_run_of_format_1_is_read_today(tmp_path: Path) -> None:
    """The fixture was written by the first version and is never changed."""
    kept = RunFolder(FIXTURES / "run-format-1" / "retry-client-k3f9")
    assert verify_all(kept.ledger) == 4
    assert [event.kind for event in read_ledger(kept.ledger, after=2)] == ["attempt.settled", "run.ended"]
    entry = recorded_run(kept)
    assert entry is not None
    assert (entry.run, entry.state, entry.changed_at) == ("retry-client-k3f9", "met", "2026-01-02T03:05:11.500Z")
    copy = RunFolder(tmp_path / "copy")
    copy.root.mkdir()
    for name in (kept.ledger, kept.snapshot):
        (copy.root / name.name).write_bytes(name.read_bytes())
    with open_ledger(copy, FakeClock()) as ledger:
        assert ledger.load_snapshot() == (3, {"attempts": 1, "cost_usd": 0.6})
    assert [request.kind for request in FolderRequests(kept.requests).peek()] == ["extend"]


def test_the_check_of_the_chain_that_the_documentation_shows_works_as_it_stands(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    ledger = (FIXTURES / "run-format-1" / "retry-client-k3f9" / "ledger.ndjson").read_bytes()
    for content, status in ((ledger, 0), (ledger.replace(b"0.6", b"0.7"), 1)):
        (tmp_path / "ledger.ndjson").write_bytes(content)
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True)
        assert done.returncode == status


def test_requests_of_many_processes_all_arrive_each_with_its_own_number(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(PROGRAMS / "put_requests.py"), str(tmp_path / "requests")]
    writers = [subprocess.Popen(command, env=environment) for _ in range(6)]
    assert [writer.wait() for writer in writers] == [0] * 6
    requests = FolderRequests(tmp_path / "requests").peek()
    assert [request.number for request in requests] == list(range(1, 61))
    for pid in {request.data["pid"] for request in requests}:
        mine = [request.data["n"] for request in requests if request.data["pid"] == pid]
        assert mine == list(range(10))


def test_a_request_after_many_looks_at_an_empty_folder_is_seen(tmp_path: Path) -> None:
    """A folder that has not changed is not read again; one that has is, however soon after a look."""
    ours, theirs = FolderRequests(tmp_path), FolderRequests(tmp_path)
    for number in range(1, 4):
        os.utime(tmp_path, ns=(0, number * 10**9))  # an hour of silence
        assert ours.peek() == ours.peek() == ()
        for _ in range(2):
            theirs.put(RequestKind.STEER, {})
            assert [request.kind for request in ours.peek()][-1:] == ["steer"]
        for request in ours.peek():
            ours.done(request)


def test_a_request_that_cannot_be_read_is_set_aside_and_does_not_stop_the_others(tmp_path: Path) -> None:
    requests = FolderRequests(tmp_path)
    requests.put(RequestKind.STEER, {})
    (tmp_path / "0000000002.json").write_text("{")
    last = requests.put(RequestKind.STOP, {})
    assert [request.kind for request in requests.peek()] == ["steer", "stop"]
    assert last.number == 3
    assert (tmp_path / "0000000002.unreadable").exists()


def test_the_start_time_of_a_process_tells_it_from_another_with_its_pid() -> None:
    mine = start_time(os.getpid())
    assert mine is not None
    assert is_alive(os.getpid(), mine)
    assert not is_alive(os.getpid(), mine + 1)
    assert not is_alive(0, 0)


def test_a_process_name_with_brackets_and_blanks_does_not_confuse_the_start_time(tmp_path: Path) -> None:
    odd = tmp_path / "a) Z 1 (b"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([odd, "60"]) as process:
        began = start_time(process.pid)
        process.kill()
    assert began is not None
    assert abs(began - (start_time(os.getpid()) or 0)) < 100 * 3600


def test_time_4_a_wait_is_over_soon_after_the_machine_was_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's timers stood still; the clock that went on is looked at within seconds."""
    clock, waited, hand = SystemClock(), [], 100.0

    async def suspended(seconds: float) -> None:
        nonlocal hand
        waited.append(seconds)
        hand += seconds if len(waited) < 3 else 3600.0

    monkeypatch.setattr("loopd.adapters.clock.anyio.sleep", suspended)
    monkeypatch.setattr(clock, "elapsed", lambda: hand, raising=False)
    anyio.run(clock.sleep, 3000.0)
    assert waited == [5.0] * 3


def test_the_system_clock_sleeps_at_least_as_long_as_asked_and_tells_utc() -> None:
    clock = SystemClock()
    before = clock.elapsed()
    anyio.run(clock.sleep, 0.05)
    anyio.run(clock.sleep, -1.0)
    assert 0.05 <= clock.elapsed() - before < 5
    offset = clock.now().utcoffset()
    assert offset is not None
    assert offset.total_seconds() == 0


def test_the_two_hands_of_the_fake_clock_move_apart_only_by_a_jump() -> None:
    clock = FakeClock()
    wall, elapsed = clock.now(), clock.elapsed()
    anyio.run(clock.sleep, 7.5)
    assert ((clock.now() - wall).total_seconds(), clock.elapsed() - elapsed) == (7.5, 7.5)
    clock.jump(-3600)
    assert ((clock.now() - wall).total_seconds(), clock.elapsed() - elapsed) == (-3592.5, 7.5)


@pytest.mark.parametrize("module", ["state", "status", "liveness", "atomic"])
def test_what_a_status_tool_needs_imports_none_of_the_heavy_packages(module: str) -> None:
    heavy = "{'anyio', 'pydantic', 'loguru', 'jinja2', 'psutil', 'sqlite3', 'asyncio', 'typer'}"
    code = f"import sys, loopd.adapters.{module}; print(sorted(set(sys.modules) & {heavy}))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
