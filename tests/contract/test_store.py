"""What every store does."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from fakes import MemoryStore
from loopd.adapters.liveness import start_time
from loopd.adapters.state import StateFolder
from loopd.adapters.stores.sqlite import open_store
from loopd.domain.errors import UsageError
from loopd.ports.store import RunEntry, Store

ME = os.getpid()
MY_START = start_time(ME) or 0


@pytest.fixture(params=["sqlite", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    with open_store(StateFolder(tmp_path)) as opened:
        yield opened


def entry(run: str, *, started: str = "1", changed: str = "1", workspace: Path = Path("/w")) -> RunEntry:
    goal = run.rpartition("-")[0]
    return RunEntry(run, goal, Path("/r") / run, workspace, Path("/c.yaml"), "d1", "running", started, changed)


def test_an_entry_comes_back_as_it_was_put_bytes_in_paths_included(store: Store) -> None:
    put = replace(entry("goal-aaaa", workspace=Path("/w/bad-\udcff")), pid=12, pid_start=34)
    store.put(put)
    assert store.runs() == (put,)


def test_putting_again_replaces(store: Store) -> None:
    store.put(entry("goal-aaaa"))
    store.put(replace(entry("goal-aaaa"), state="met"))
    assert [found.state for found in store.runs()] == ["met"]


def test_runs_come_the_most_recently_changed_first(store: Store) -> None:
    for run, changed in (("goal-aaaa", "2"), ("goal-bbbb", "3"), ("goal-cccc", "1")):
        store.put(entry(run, changed=changed))
    assert [found.run for found in store.runs()] == ["goal-bbbb", "goal-aaaa", "goal-cccc"]


def test_forgetting_is_idempotent(store: Store) -> None:
    store.put(entry("goal-aaaa"))
    store.forget("goal-aaaa")
    store.forget("goal-aaaa")
    assert store.runs() == ()


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("retry-k3f9", "retry-k3f9"),
        ("retry-k", "retry-k3f9"),
        ("retry", "retry-m222"),
        ("last", "docs-a234"),
        ("docs", "docs-a234"),
        ("d", "docs-a234"),
    ],
    ids=["id", "prefix", "goal-newest", "last", "goal", "short-prefix"],
)
def test_a_run_is_found_by(store: Store, name: str, found: str) -> None:
    store.put(entry("retry-k3f9", started="1", changed="5"))
    store.put(entry("retry-m222", started="2", changed="3"))
    store.put(entry("docs-a234", started="0", changed="9"))
    assert store.find(name).run == found


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("retr", "retry-k3f9, retry-m222|retry-m222, retry-k3f9"),
        ("retyr", "did you mean retry"),
        ("zzz", "the newest are"),
        ("", "there is no run"),
    ],
)
def test_a_name_that_fits_nothing_or_too_much_is_refused_with_what_there_is(store: Store, name: str, told: str) -> None:
    store.put(entry("retry-k3f9"))
    store.put(entry("retry-m222"))
    with pytest.raises(UsageError, match=told):
        store.find(name)


@pytest.mark.parametrize("name", ["last", "goal"])
def test_without_any_run_the_answer_says_how_to_start_one(store: Store, name: str) -> None:
    with pytest.raises(UsageError, match="no runs yet"):
        store.find(name)


@pytest.fixture
def other() -> Iterator[tuple[int, int]]:
    """Another process that lives: its pid and start time."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process.pid, start_time(process.pid) or 0
        process.kill()


def test_a_free_workspace_is_taken_and_taking_it_again_is_fine(store: Store, tmp_path: Path) -> None:
    assert store.hold(tmp_path, "goal-aaaa", ME, MY_START) is None
    assert store.hold(tmp_path, "goal-aaaa", ME, MY_START) is None


def test_state_5_a_workspace_that_a_live_supervisor_holds_is_refused_with_who_holds_it(
    store: Store, tmp_path: Path, other: tuple[int, int]
) -> None:
    """Exactly one of two runs holds the tree; the other is told which run and process has it."""
    store.put(entry("goal-aaaa", workspace=tmp_path))
    store.hold(tmp_path, "goal-aaaa", *other)
    holder = store.hold(tmp_path, "goal-bbbb", ME, MY_START)
    assert holder is not None
    assert (holder.run, holder.workspace, holder.pid, holder.pid_start) == ("goal-aaaa", tmp_path, *other)


def test_state_5_the_same_run_in_a_second_process_is_refused_too(
    store: Store, tmp_path: Path, other: tuple[int, int]
) -> None:
    """A run has one supervisor."""
    store.hold(tmp_path, "goal-aaaa", *other)
    holder = store.hold(tmp_path, "goal-aaaa", ME, MY_START)
    assert holder is not None
    assert holder.pid == other[0]


@pytest.mark.parametrize("inner_first", [True, False], ids=["around", "inside"])
def test_state_5_a_workspace_inside_or_around_a_held_one_is_refused(
    store: Store, tmp_path: Path, other: tuple[int, int], inner_first: bool
) -> None:
    """A folder of a held tree is part of it."""
    inner = tmp_path / "sub" / "project"
    inner.mkdir(parents=True)
    first, second = (inner, tmp_path) if inner_first else (tmp_path, inner)
    store.hold(first, "goal-aaaa", *other)
    assert store.hold(second, "goal-bbbb", ME, MY_START) is not None


def test_a_neighbour_whose_name_begins_alike_is_free(store: Store, tmp_path: Path, other: tuple[int, int]) -> None:
    store.hold(tmp_path / "project", "goal-aaaa", *other)
    assert store.hold(tmp_path / "project-2", "goal-bbbb", ME, MY_START) is None


def test_state_5_a_link_to_a_held_workspace_is_refused(store: Store, tmp_path: Path, other: tuple[int, int]) -> None:
    """The same tree under another name is the same tree."""
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    store.hold(real, "goal-aaaa", *other)
    assert store.hold(tmp_path / "link", "goal-bbbb", ME, MY_START) is not None


@pytest.mark.parametrize(
    ("pid", "pid_start"), [(ME, MY_START - 1), (2**22 + 1, 5), (0, 0)], ids=["pid-reused", "gone", "none"]
)
def test_a_dead_holder_is_replaced_at_once(store: Store, tmp_path: Path, pid: int, pid_start: int) -> None:
    store.hold(tmp_path, "goal-aaaa", pid, pid_start)
    assert store.hold(tmp_path, "goal-bbbb", ME, MY_START) is None


def test_a_holder_that_is_only_a_zombie_is_replaced_at_once(store: Store, tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        began = start_time(process.pid) or 0
        store.hold(tmp_path, "goal-aaaa", process.pid, began)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert store.hold(tmp_path, "goal-bbbb", ME, MY_START) is None


def test_a_released_workspace_is_free_and_only_its_holder_can_release_it(
    store: Store, tmp_path: Path, other: tuple[int, int]
) -> None:
    store.hold(tmp_path, "goal-aaaa", *other)
    store.release(tmp_path, "goal-bbbb")
    assert store.hold(tmp_path, "goal-bbbb", ME, MY_START) is not None
    store.release(tmp_path, "goal-aaaa")
    assert store.hold(tmp_path, "goal-bbbb", ME, MY_START) is None


def test_state_5_a_process_passes_its_own_hold_on_to_the_run_it_starts(store: Store, tmp_path: Path) -> None:
    """From before a run exists until it holds the tree, nobody else gets in, and there is one hold to release."""
    assert store.hold(tmp_path, "start-1", ME, MY_START) is None
    assert store.hold(tmp_path, "goal-aaaa", ME, MY_START) is None
    store.release(tmp_path, "start-1")  # no longer the name of the hold
    holder = store.hold(tmp_path, "goal-bbbb", 1, start_time(1) or 0)
    assert holder is not None
    assert holder.run == "goal-aaaa"
    store.release(tmp_path, "goal-aaaa")
    assert store.hold(tmp_path, "goal-bbbb", 1, start_time(1) or 0) is None
