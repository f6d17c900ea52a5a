"""What every workspace promises; the strong and the weak form pass the same sentences."""

import os
from pathlib import Path

import pytest

from loopd.domain.errors import UsageError
from loopd.domain.scope import scope_of
from trees import Bench, bench, files_of, project, write

pytestmark = pytest.mark.anyio

FILES = {"src/a.py": "1\n", "src/b.py": "2\n", "tests/test_a.py": "t\n", "top.txt": "3\n"}


@pytest.fixture(params=["clean", "workspace"])
def tools(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    scope = scope_of(allow=["src/**"], protect=["src/fixed.py"])
    root = project(tmp_path / "p", {**FILES, "src/fixed.py": "f\n"})
    return bench(root, tmp_path / "s", verification=request.param, scope=scope)


async def test_snapshots_of_the_same_content_have_the_same_id(tools: Bench) -> None:
    workspace = tools.open()
    baseline = (await workspace.prepare()).baseline
    write(workspace.root, {"src/a.py": "other\n", "new": "x"})
    changed = (await workspace.snapshot()).tree
    assert changed != baseline
    assert changed == (await workspace.snapshot()).tree
    write(workspace.root, {"src/a.py": "1\n"})
    (workspace.root / "new").unlink()
    assert (await workspace.snapshot()).tree == baseline


async def test_modes_links_and_kinds_are_content(tools: Bench) -> None:
    workspace = tools.open()
    baseline = (await workspace.prepare()).baseline
    (workspace.root / "src/a.py").chmod(0o755)
    (workspace.root / "src/b.py").unlink()
    os.symlink("a.py", workspace.root / "src/b.py")
    after = (await workspace.snapshot()).tree
    assert await workspace.changed_paths(baseline, after) == ("src/a.py", "src/b.py")


async def test_snapshot_writes_nothing_into_the_workspace(tools: Bench) -> None:
    before = files_of(tools.plan.root)
    git_files = sorted(tools.plan.root.glob(".git/**/*"))
    workspace = tools.open()
    await workspace.prepare()
    await workspace.snapshot()
    assert files_of(tools.plan.root) == before
    assert sorted(tools.plan.root.glob(".git/**/*")) == git_files


async def test_special_files_are_left_out_by_name(tools: Bench) -> None:
    workspace = tools.open()
    await workspace.prepare()
    os.mkfifo(workspace.root / "src/pipe")
    assert (await workspace.snapshot()).left_out == ("src/pipe",)


async def test_composing_sorts_changes_into_carried_restored_unproven_and_refused(tools: Bench) -> None:
    workspace = tools.open()
    baseline = (await workspace.prepare()).baseline
    new = {"src/a.py": "x", "src/new.py": "n", "src/fixed.py": "x", "top.txt": "x", "tests/test_b.py": "t"}
    write(workspace.root, {**new, "scratch": "s", "conftest.py": "c"})
    (workspace.root / "tests/test_a.py").unlink()
    os.symlink("../../out", workspace.root / "src/out")
    after = (await workspace.snapshot()).tree
    judged = await workspace.compose(baseline, after)
    assert judged.changed == ("src/a.py", "src/new.py", "tests/test_b.py")
    assert judged.restored == ("conftest.py", "src/fixed.py", "tests/test_a.py", "top.txt")
    assert judged.unproven == ("scratch",)
    assert judged.refused == ("src/out",)
    assert await workspace.changed_paths(baseline, judged.tree) == judged.changed
    assert judged == await workspace.compose(baseline, after)


async def test_restoring_puts_back_what_may_not_change_and_keeps_the_evidence(tools: Bench, tmp_path: Path) -> None:
    workspace = tools.open()
    baseline = (await workspace.prepare()).baseline
    write(workspace.root, {"src/a.py": "x", "src/fixed.py": "cheat", "conftest.py": "cheat"})
    (workspace.root / "tests/test_a.py").unlink()
    after = (await workspace.snapshot()).tree
    judged = await workspace.compose(baseline, after)
    for _ in range(2):
        await workspace.restore(baseline, after, judged.restored, tmp_path / "e")
    assert files_of(workspace.root) == {
        **{path: text.encode() for path, text in FILES.items()},
        "src/a.py": b"x",
        "src/fixed.py": b"f\n",
    }
    assert files_of(tmp_path / "e") == {"src/fixed.py": b"cheat", "conftest.py": b"cheat"}
    assert (await workspace.snapshot()).tree == judged.tree


async def test_overlay_is_the_base_with_the_owners_changes(tools: Bench) -> None:
    workspace = tools.open()
    baseline = (await workspace.prepare()).baseline
    write(workspace.root, {"src/a.py": "the agent's"})
    before = (await workspace.snapshot()).tree
    write(workspace.root, {"tests/test_a.py": "the owner's"})
    (workspace.root / "top.txt").unlink()
    after = (await workspace.snapshot()).tree
    base = await workspace.overlay(baseline, before, after)
    assert await workspace.changed_paths(baseline, base) == ("tests/test_a.py", "top.txt")
    assert await workspace.overlay(baseline, before, before) == baseline
    assert await workspace.overlay(baseline, baseline, after) == after


async def test_trees_are_known_after_a_restart(tools: Bench, tmp_path: Path) -> None:
    workspace = tools.open()
    baseline = (await workspace.prepare()).baseline
    write(workspace.root, {"src/a.py": "x", "src/fixed.py": "cheat"})
    after = (await workspace.snapshot()).tree
    judged = await workspace.compose(baseline, after)
    again = tools.open()
    assert (await again.prepare()).baseline == baseline
    assert (await again.snapshot()).tree == after
    assert await again.compose(baseline, after) == judged
    assert await again.changed_paths(baseline, judged.tree) == ("src/a.py",)
    await again.restore(baseline, after, judged.restored, tmp_path / "e")
    assert (again.root / "src/fixed.py").read_text() == "f\n"


async def test_writing_a_tree_returns_the_paths_and_refuses_conflicts(tools: Bench) -> None:
    workspace = tools.open()
    baseline = (await workspace.prepare()).baseline
    write(workspace.root, {"src/a.py": "best", "src/new/deep.py": "x"})
    best = (await workspace.snapshot()).tree
    write(workspace.root, {"src/a.py": "worse"})
    now = (await workspace.snapshot()).tree
    with pytest.raises(UsageError, match=r"src/a\.py"):
        await workspace.write_tree(baseline, expected=best)
    assert await workspace.write_tree(baseline, expected=now) == ("src/a.py", "src/new/deep.py")
    assert (await workspace.snapshot()).tree == baseline
    assert await workspace.write_tree(best, expected=None) == ("src/a.py", "src/new/deep.py")
    assert (await workspace.snapshot()).tree == best


async def test_diff_shows_text_and_is_bounded(tools: Bench) -> None:
    workspace = tools.open()
    baseline = (await workspace.prepare()).baseline
    write(workspace.root, {"src/a.py": b"caf\xe9\n" + b"line\n" * 99, "src/bin": b"\0\1"})
    after = (await workspace.snapshot()).tree
    whole = await workspace.diff(baseline, after)
    assert "+caf\\xe9\n" in whole
    assert "src/bin" in whole
    assert len(await workspace.diff(baseline, after, limit=40)) <= 43
    assert await workspace.diff(after, after) == ""


async def test_check_trees_hold_the_tree_and_say_how_strong_they_are(tools: Bench) -> None:
    workspace = tools.open()
    baseline = (await workspace.prepare()).baseline
    write(workspace.root, {"src/a.py": "x"})
    after = (await workspace.snapshot()).tree
    for fresh in (False, True):
        tree = await workspace.check_tree(after, fresh=fresh)
        assert (tree.path / "src/a.py").read_text() == "x"
        assert tree.weak is (tools.plan.verification == "workspace")
    other = await workspace.baseline_tree(baseline)
    assert (other.path / "src/a.py").read_text() == "1\n"
    assert other.path != tree.path


async def test_names_that_are_no_text_survive(tools: Bench) -> None:
    workspace = tools.open()
    baseline = (await workspace.prepare()).baseline
    name = "src/bad\udcff\n-x"
    (workspace.root / name).write_text("x")
    after = (await workspace.snapshot()).tree
    assert await workspace.changed_paths(baseline, after) == (name,)
    assert (await workspace.compose(baseline, after)).changed == (name,)
    assert await workspace.write_tree(baseline, expected=after) == (name,)
