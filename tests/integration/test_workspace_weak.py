"""The weak form: the live workspace, without git and without any program."""

import os
import time
from pathlib import Path

import pytest

from loopd.domain.errors import UsageError
from trees import bench, files_of, git, project, write

pytestmark = pytest.mark.anyio


async def test_no_program_is_started(tmp_path: Path) -> None:
    write(tmp_path / "p", {"a": "1"})
    workspace = bench(tmp_path / "p", tmp_path / "s", verification="workspace", search_path="/nowhere").open()
    baseline = (await workspace.prepare()).baseline
    write(workspace.root, {"a": "2"})
    judged = await workspace.compose(baseline, (await workspace.snapshot()).tree)
    tree = await workspace.check_tree(judged.tree)
    assert (tree.path, tree.sandbox, tree.weak) == (workspace.root, None, True)
    with pytest.raises(UsageError, match="verification: clean"):
        await workspace.commit(judged.tree, "b", "m")


async def test_rewrite_of_the_same_size_is_seen_however_quick(tmp_path: Path) -> None:
    write(tmp_path / "p", {"a": "0"})
    workspace = bench(tmp_path / "p", tmp_path / "s", verification="workspace").open()
    seen = {(await workspace.prepare()).baseline}
    for number in range(1, 200):
        (workspace.root / "a").write_text(f"{number:04}")
        os.utime(workspace.root / "a", (1_000_000_000, 1_000_000_000))
        seen.add((await workspace.snapshot()).tree)
    assert len(seen) == 200


async def test_folders_of_tools_are_not_walked(tmp_path: Path) -> None:
    write(tmp_path / "p", {"a": "1"})
    workspace = bench(tmp_path / "p", tmp_path / "s", verification="workspace").open()
    baseline = (await workspace.prepare()).baseline
    caches = {"target/CACHEDIR.TAG": "Signature", "target/x": "x", "c/.gitignore": "*\n", "c/x": "x"}
    write(workspace.root, {".git/x": "x", "n/node_modules/x": "x", "__pycache__/x": "x", **caches})
    assert (await workspace.snapshot()).tree == baseline


async def test_large_files_of_the_baseline_are_kept_only_when_they_may_not_change(tmp_path: Path) -> None:
    large = "x" * 300_000
    write(tmp_path / "p", {"src/big": large, "tests/big": large + "t"})
    workspace = bench(tmp_path / "p", tmp_path / "s", verification="workspace").open()
    baseline = (await workspace.prepare()).baseline
    write(workspace.root, {"src/big": "small", "tests/big": "small"})
    after = (await workspace.snapshot()).tree
    judged = await workspace.compose(baseline, after)
    await workspace.restore(baseline, after, judged.restored, tmp_path / "e")
    assert (workspace.root / "tests/big").read_text() == large + "t"
    assert "too large to be kept" in await workspace.diff(baseline, after)
    with pytest.raises(UsageError, match="src/big"):
        await workspace.write_tree(baseline, expected=None)
    with pytest.raises(UsageError, match="src/big"):
        await workspace.baseline_tree(baseline)


async def test_weak_form_in_a_clone_gets_carried_things_and_setup(tmp_path: Path) -> None:
    root = project(tmp_path / "p", {"a": "1", ".gitignore": ".env\n"})
    write(root, {".env": "x", "a": "uncommitted"})
    before = files_of(root)
    tools = bench(
        root,
        tmp_path / "s",
        verification="workspace",
        isolation="clone",
        carry=(".env",),
        setup=(("sh", "-c", "echo made > made"),),
    )
    workspace = tools.open()
    prepared = await workspace.prepare()
    assert files_of(workspace.root) == {".env": b"x", "a": b"1", ".gitignore": b".env\n", "made": b"made\n"}
    assert any("1 uncommitted file is left out" in note for note in prepared.notes)
    assert git(workspace.root, "branch", "--show-current").strip() == "loopd/retry-k3f9"
    again = await tools.open().prepare()
    assert (again.baseline, again.setup_cached) == (prepared.baseline, True)
    assert files_of(root) == before


async def test_a_handful_of_files_costs_less_than_a_millisecond(tmp_path: Path) -> None:
    write(tmp_path / "p", {f"f{number}": "x" for number in range(6)})
    workspace = bench(tmp_path / "p", tmp_path / "s", verification="workspace").open()
    baseline = (await workspace.prepare()).baseline
    costs = []
    for number in range(30):
        (workspace.root / "f1").write_text(str(number))
        started = time.process_time()
        before = (await workspace.snapshot()).tree
        judged = await workspace.compose(baseline, before)
        await workspace.check_tree(judged.tree)
        costs.append(time.process_time() - started)
    assert sorted(costs)[5] < 0.002
