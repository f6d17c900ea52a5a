"""What lands: the proven tree, or the best one on request, and never over the owner's own changes."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from engine_agents import works
from engine_fakes import World
from engine_trees import new, parts
from loopd.domain.errors import UsageError
from loopd.domain.run import State
from loopd.engine.delivery import deliver, deliver_best
from loopd.engine.run import Run

CLONE = {"isolation": "clone"}


def within(world: World, act: Callable[[Run], Awaitable[str]]) -> str:
    """Do something with a run at rest."""
    run = world.supervisor()
    return anyio.run(act, run)


def cloned(folder: Path, *scripts: object, **more: object) -> World:
    world = World(folder, *scripts, goal=CLONE, **more)  # type: ignore[arg-type]
    world.workspace.owners = dict(world.workspace.files)
    return world


def test_a_clone_delivers_a_branch_and_leaves_the_owners_files_alone(tmp_path: Path) -> None:
    world = cloned(tmp_path, works({"a.py": "new"}), checks={"new": new})
    assert world.supervise().state is State.MET
    assert world.workspace.owners is not None
    assert world.workspace.owners["a.py"] == "old"
    assert list(world.workspace.branches) == ["loopd/demo-k3f9"]


def test_the_proven_tree_of_a_clone_can_be_written_into_the_owners_files(tmp_path: Path) -> None:
    world = cloned(tmp_path, works({"a.py": "new", "ci.yml": "mine"}), checks={"new": new})
    world.supervise()
    assert within(world, lambda run: deliver(run, to="tree")) == "1 files written to /workspace"
    assert world.workspace.owners == {"a.py": "new", "ci.yml": "owner's", "contract.yaml": "goal: demo"}


def test_a_file_that_the_owner_changed_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    world = cloned(tmp_path, works({"a.py": "new"}), checks={"new": new})
    world.supervise()
    assert world.workspace.owners is not None
    world.workspace.owners["a.py"] = "the owner's own"
    with pytest.raises(UsageError, match=r"changed meanwhile: a\.py"):
        within(world, lambda run: deliver(run, to="tree"))
    assert world.workspace.owners["a.py"] == "the owner's own"


@pytest.mark.parametrize("in_clone", [True, False])
def test_the_best_attempt_can_be_written_although_later_ones_were_worse(tmp_path: Path, in_clone: bool) -> None:
    scripts = [works({"part1": "x", "part2": "x"}), works({"part2": None})]
    make = cloned if in_clone else World
    world = make(tmp_path, *scripts, checks=parts(3), attempts=2)
    assert world.supervise().state is State.EXHAUSTED
    told = within(world, lambda run: deliver_best(run, to="tree"))
    assert told == f"attempt 1, unproven: {2 if in_clone else 1} files written"
    files = world.workspace.owners if in_clone else world.workspace.files
    assert {"part1", "part2"} <= set(files or ())


def test_the_best_attempt_as_a_branch_is_marked_unproven(tmp_path: Path) -> None:
    world = World(tmp_path, works({"part1": "x"}), checks=parts(2), attempts=1)
    world.supervise()
    assert within(world, lambda run: deliver_best(run, to="branch")).endswith(", unproven")
    _, message = world.workspace.branches["loopd/demo-k3f9"]
    assert message.splitlines()[0] == "demo: a.py is new (unproven)"
    assert message.splitlines()[3:5] == ["- p1: pass", "- p2: fail"]


def test_without_an_attempt_that_changed_something_there_is_no_best(tmp_path: Path) -> None:
    world = World(tmp_path, works({}), checks={"new": new}, attempts=1)
    world.supervise()
    with pytest.raises(UsageError, match="no attempt with an effect yet"):
        within(world, lambda run: deliver_best(run, to="tree"))


def test_files_that_lie_in_the_tree_and_are_no_part_of_the_proof_are_listed(tmp_path: Path) -> None:
    scripts = [works({"a.py": "new", "notes.txt": "x"})]
    world = World(tmp_path, *scripts, checks={"new": new}, allowed=("*.py",))
    assert world.supervise().state is State.MET
    assert world.record.delivered.endswith("no part of the proof, left where they lie: notes.txt")


def test_delivering_again_changes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, works({"a.py": "new"}), checks={"new": new}, goal={"deliver": "branch"})
    world.supervise()
    assert within(world, lambda run: deliver(run, to="branch")) == world.record.delivered
