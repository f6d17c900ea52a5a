"""Snapshots, composed trees and restored files, against agents that cheat or break things; real git."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import anyio
import pytest

from loopd.adapters.containment.programs import Completed, run_program
from loopd.adapters.workspace import release_stale_locks
from loopd.adapters.workspace.clean import CleanWorkspace
from loopd.domain.scope import scope_of
from plain_containers import PlainContainers
from trees import (
    PYTHON,
    RIGHT,
    SEARCH_PATH,
    TEST,
    WRONG,
    bench,
    composed,
    files_of,
    git,
    project,
    state_of_repository,
    verify,
    write,
)

pytestmark = pytest.mark.anyio


async def test_git_1_owners_uncommitted_files_stay_and_no_command_of_loopds_changes_the_repository(
    tmp_path: Path,
) -> None:
    """GIT-1: uncommitted work is as before, and git never got an order that changes the tree."""
    root = project(tmp_path / "p", PYTHON)
    log, shim = tmp_path / "git.log", tmp_path / "bin"
    write(shim, {"git": f'#!/bin/sh\necho "$PWD" "$@" >> {log}\nexec {shutil.which("git")} "$@"\n'})
    (shim / "git").chmod(0o755)
    write(root, {"calc.py": "mine\n", "untracked.txt": "mine\n", "notes/a": "mine\n"})
    git(root, "add", "notes/a")
    mine, repository = files_of(root), state_of_repository(root)
    workspace = bench(root, tmp_path / "s", search_path=f"{shim}:{SEARCH_PATH}").open()
    baseline = (await workspace.prepare()).baseline
    write(root, {"tests/test_add.py": "cheated\n"})
    after = (await workspace.snapshot()).tree
    judged = await workspace.compose(baseline, after)
    await workspace.restore(baseline, after, judged.restored, tmp_path / "e")
    await workspace.check_tree(judged.tree)
    await workspace.check_tree(judged.tree, fresh=True)
    assert files_of(root) == mine
    assert state_of_repository(root) == repository
    words = [line for line in log.read_text().splitlines() if line.startswith(f"{root} ")]
    forbidden = {"reset", "clean", "checkout", "stash", "restore", "add", "commit", "gc", "switch", "rm"}
    assert words
    assert not [line for line in words if forbidden & set(line.split())]


async def test_git_2_lock_of_a_killed_agent_is_removed_when_nobody_has_it_open(tmp_path: Path) -> None:
    """GIT-2: its index.lock goes after the agent did, and a commit works; a held lock stays."""
    root = project(tmp_path / "p", PYTHON)
    lock = root / ".git/index.lock"
    with lock.open("w"):
        assert release_stale_locks(root) == ()
    write(root, {".git/refs/heads/x.lock": ""})
    assert release_stale_locks(root) == (".git/index.lock", ".git/refs/heads/x.lock")
    assert release_stale_locks(root) == ()
    write(root, {"calc.py": RIGHT})
    git(root, "commit", "-qam", "works")
    git(root, "worktree", "add", "-q", "../linked")
    (root / ".git/worktrees/linked/index.lock").touch()
    assert len(release_stale_locks(tmp_path / "linked")) == 1
    assert release_stale_locks(tmp_path) == ()


async def test_git_3_agent_rebases_while_snapshots_run_every_tenth_of_a_second(tmp_path: Path) -> None:
    """GIT-3: neither the agent's rebase nor any snapshot fails."""
    root = project(tmp_path / "p", {"f": "0\n"})
    workspace = bench(root, tmp_path / "s").open()
    git(root, "checkout", "-q", "-b", "work")
    for number in range(12):
        write(root, {f"f{number}": "x\n"})
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", str(number))
    git(root, "checkout", "-q", "main")
    write(root, {"g": "1\n"})
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "g")
    git(root, "checkout", "-q", "work")
    await workspace.prepare()
    taken = []

    async def look() -> None:
        while True:
            taken.append((await workspace.snapshot()).tree)
            await anyio.sleep(0.1)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            for onto in cycle(("main", "main~1")):
                await anyio.to_thread.run_sync(lambda onto=onto: git(root, "rebase", "-q", "--no-ff", onto))
                if len(taken) >= 5:
                    break
            tasks.cancel_scope.cancel()
    assert git(root, "status", "--porcelain") == ""
    final = (await workspace.snapshot()).tree
    assert git(root, "rev-parse", "HEAD^{tree}").strip() == final


async def test_git_4_baseline_survives_reset_clean_and_gc_and_can_be_got_back(tmp_path: Path) -> None:
    """GIT-4: the owner's uncommitted work is in a private store, and one call puts it back."""
    root = project(tmp_path / "p", PYTHON)
    write(root, {"calc.py": "uncommitted\n", "untracked.txt": "precious\n"})
    before, head = files_of(root), git(root, "rev-parse", "HEAD")
    tools = bench(root, tmp_path / "s")
    workspace = tools.open()
    baseline = (await workspace.prepare()).baseline
    git(root, "reset", "-q", "--hard")
    git(root, "clean", "-qfdx")
    git(root, "reflog", "expire", "--expire=now", "--all")
    git(root, "gc", "-q", "--prune=now")
    after = (await workspace.snapshot()).tree
    assert await workspace.write_tree(baseline, expected=after) == ("calc.py", "untracked.txt")
    assert files_of(root) == before
    assert git(root, "rev-parse", "HEAD") == head
    git(root, "clean", "-qfdx")
    (tmp_path / "back").mkdir()
    git(tmp_path / "s/store.git", "gc", "-q", "--auto")
    subprocess.run(["sh", "-c", tools.plan.command_to_get_back(baseline, tmp_path / "back")], check=True)
    assert files_of(tmp_path / "back") == before


async def test_state_3_agent_that_deletes_everything_hidden_and_ignored_does_not_stop_the_run(
    tmp_path: Path,
) -> None:
    """STATE-3: nothing of loopd's own lies under the tree; even without `.git` snapshots and checks go on."""
    root = project(tmp_path / "p", PYTHON)
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    git(root, "clean", "-qfdx")
    for name in [path for path in root.iterdir() if path.name.startswith(".")]:
        shutil.rmtree(name) if name.is_dir() else name.unlink()
    after = (await workspace.snapshot()).tree
    judged = await workspace.compose(baseline, after)
    assert judged.changed == (".gitignore",)
    tree = await workspace.check_tree(judged.tree)
    assert (tree.path / "calc.py").read_text() == WRONG


async def test_cheat_1_weakened_and_skipped_tests_are_not_what_is_verified(tmp_path: Path) -> None:
    """CHEAT-1: baseline tests judge; changed and deleted ones are put back, the evidence kept."""
    root = project(tmp_path / "p", {**PYTHON, "tests/test_two.py": TEST})
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    write(root, {"tests/test_add.py": TEST.replace("== 5", "in (5, -1)"), "tests/test_new.py": TEST})
    (root / "tests/test_two.py").unlink()
    after = (await workspace.snapshot()).tree
    judged = await workspace.compose(baseline, after)
    assert judged.restored == ("tests/test_add.py", "tests/test_two.py")
    assert judged.changed == ("tests/test_new.py",)
    tree = await workspace.check_tree(judged.tree)
    assert (tree.path / "tests/test_add.py").read_text() == TEST
    await workspace.restore(baseline, after, judged.restored, tmp_path / "e")
    assert (root / "tests/test_add.py").read_text() == TEST == (root / "tests/test_two.py").read_text()
    assert "(5, -1)" in (tmp_path / "e/tests/test_add.py").read_text()
    assert (await workspace.snapshot()).tree == judged.tree


async def test_cheat_2_untracked_conftest_and_start_up_files_never_reach_the_verifier(tmp_path: Path) -> None:
    """CHEAT-2: trial 06; new runner configuration is taken away, and red stays red."""
    root = project(tmp_path / "p", PYTHON)
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    exits = "import os\nos._exit(0)\n"
    cheats = ["conftest.py", "tests/conftest.py", "sitecustomize.py", "pytest.py", "tests/__pycache__/x.pyc"]
    write(root, {**dict.fromkeys(cheats, exits), "bin/pytest": "#!/bin/sh\nexit 0\n"})
    (root / "bin/pytest").chmod(0o755)
    after = (await workspace.snapshot()).tree
    judged = await workspace.compose(baseline, after)
    assert judged.restored == ("conftest.py", "pytest.py", "sitecustomize.py", "tests/conftest.py")
    tree = await workspace.check_tree(judged.tree)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    assert verify(tree, *argv).returncode == 1
    await workspace.restore(baseline, after, judged.restored, tmp_path / "e")
    assert not (root / "conftest.py").exists()
    assert (tmp_path / "e/conftest.py").read_text() == exits
    write(root, {"calc.py": RIGHT})
    tree = await workspace.check_tree(await composed(workspace, baseline))
    done = verify(tree, *argv)
    assert done.returncode == 0, done.stdout + done.stderr


async def test_cheat_6_changed_goal_file_has_no_effect_and_is_reported(tmp_path: Path) -> None:
    """CHEAT-6: the contract and loopd's own folders hold their baseline content."""
    root = project(tmp_path / "p", PYTHON)
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    write(root, {"goals/g.yaml": "budget: 1000\n", "goals/new.yaml": "x", "calc.py": RIGHT})
    judged = await workspace.compose(baseline, (await workspace.snapshot()).tree)
    assert judged.restored == ("goals/g.yaml", "goals/new.yaml")
    assert judged.changed == ("calc.py",)
    tree = await workspace.check_tree(judged.tree)
    assert (tree.path / "goals/g.yaml").read_text() == "goal: g\n"


@pytest.mark.parametrize("name", ["01-skip-marks", "03-addopts-deselect", "12-npm-test-exit0"])
async def test_settings_of_the_runner_hold_while_dependencies_may_change(tmp_path: Path, name: str) -> None:
    """The cheats of configuration: addopts, scripts, marks."""
    before = {
        "01-skip-marks": ("tests/test_add.py", TEST),
        "03-addopts-deselect": ("pyproject.toml", "[project]\nname='x'\n"),
        "12-npm-test-exit0": ("package.json", json.dumps({"scripts": {"test": "node --test"}})),
    }[name]
    after = {
        "01-skip-marks": "import pytest\npytestmark = pytest.mark.skip\n" + TEST,
        "03-addopts-deselect": "[project]\nname='x'\n[tool.pytest.ini_options]\naddopts='-k none'\n",
        "12-npm-test-exit0": json.dumps({"scripts": {"test": "exit 0"}}),
    }[name]
    root = project(tmp_path / "p", {**PYTHON, before[0]: before[1]})
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    write(root, {before[0]: after})
    judged = await workspace.compose(baseline, (await workspace.snapshot()).tree)
    assert (judged.restored, judged.tree) == ((before[0],), baseline)


async def test_added_dependency_is_carried(tmp_path: Path) -> None:
    root = project(tmp_path / "p", {**PYTHON, "pyproject.toml": "[project]\nname='x'\n"})
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    write(root, {"pyproject.toml": "[project]\nname='x'\ndependencies=['anyio']\n"})
    judged = await workspace.compose(baseline, (await workspace.snapshot()).tree)
    assert judged.changed == ("pyproject.toml",)


async def test_composing_is_pure_and_the_four_lists_tell_everything(tmp_path: Path) -> None:
    root = project(tmp_path / "p", {"src/a": "1", "src/b": "2", "top": "3", "tests/t": "4", "link": "5"})
    scope = scope_of(allow=["src/**", "link"], add=["tests/**"])
    workspace = bench(root, tmp_path / "s", scope=scope).open()
    baseline = (await workspace.prepare()).baseline
    write(root, {"src/a": "new", "src/c": "new", "top": "changed", "tests/t": "x", "tests/n": "n", "odd": "o"})
    (root / "src/b").unlink()
    (root / "link").unlink()
    os.symlink("/etc/passwd", root / "link")
    os.symlink("../../x", root / "src/out")
    after = (await workspace.snapshot()).tree
    judged = await workspace.compose(baseline, after)
    assert judged == await workspace.compose(baseline, after)
    assert judged.changed == ("src/a", "src/b", "src/c", "tests/n")
    assert judged.restored == ("link", "tests/t", "top")
    assert judged.unproven == ("odd",)
    assert judged.refused == ("link", "src/out")
    tree = await workspace.check_tree(judged.tree)
    expected = {"src/a": "new", "src/c": "new", "top": "3", "tests/t": "4", "tests/n": "n", "link": "5"}
    assert files_of(tree.path) == {path: text.encode() for path, text in expected.items()}


async def test_file_in_the_way_of_a_restored_one_is_not_carried(tmp_path: Path) -> None:
    root = project(tmp_path / "p", {"tests/t": "1", "goals": "2"})
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    shutil.rmtree(root / "tests")
    os.symlink("elsewhere", root / "tests")
    (root / "elsewhere").mkdir()
    write(root, {"elsewhere/t": "cheated"})
    after = (await workspace.snapshot()).tree
    judged = await workspace.compose(baseline, after)
    assert (judged.restored, judged.changed) == (("tests/t",), ("elsewhere/t",))
    tree = await workspace.check_tree(judged.tree)
    assert (tree.path / "tests/t").read_text() == "1"
    await workspace.restore(baseline, after, judged.restored, tmp_path / "e")
    assert (root / "tests/t").read_text() == "1"
    assert (root / "elsewhere/t").read_text() == "cheated"
    assert os.readlink(tmp_path / "e/displaced/tests") == "elsewhere"


async def test_restore_never_follows_a_link_out_of_the_tree(tmp_path: Path) -> None:
    root = project(tmp_path / "p", {"tests/deep/t": "1", "calc.py": "2"})
    outside = tmp_path / "outside"
    write(outside, {"deep/t": "precious"})
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    shutil.rmtree(root / "tests")
    os.symlink(outside, root / "tests")
    after = (await workspace.snapshot()).tree
    for _ in range(2):
        await workspace.restore(baseline, after, ["tests/deep/t", "tests/new", "not/there"], tmp_path / "e")
    assert (outside / "deep/t").read_text() == "precious"
    assert (root / "tests/deep/t").read_text() == "1"
    assert not (root / "tests").is_symlink()
    (root / "calc.py").unlink()
    os.link(outside / "deep/t", root / "calc.py")
    await workspace.restore(baseline, (await workspace.snapshot()).tree, ["calc.py"], tmp_path / "e2")
    assert (outside / "deep/t").read_text() == "precious"


async def test_owners_edit_between_attempts_is_taken_over(tmp_path: Path) -> None:
    root = project(tmp_path / "p", PYTHON)
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    write(root, {"calc.py": RIGHT})
    after = (await workspace.snapshot()).tree
    write(root, {"tests/test_add.py": "the owner's\n"})
    before = (await workspace.snapshot()).tree
    base = await workspace.overlay(baseline, after, before)
    assert await workspace.changed_paths(baseline, base) == ("tests/test_add.py",)
    judged = await workspace.compose(base, before)
    assert (judged.restored, judged.changed) == ((), ("calc.py",))


async def test_forged_object_in_the_agents_store_has_no_effect(tmp_path: Path) -> None:
    """Tried: a loose object under the name of the protected test was checked out without a warning."""
    root = project(tmp_path / "p", PYTHON)
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    forged = git(root, "hash-object", "-w", "--stdin", "--literally", "-t", "blob")
    name = git(root, "rev-parse", "HEAD:tests/test_add.py").strip()
    objects = root / ".git/objects"
    target = objects / name[:2] / name[2:]
    target.chmod(0o644)
    shutil.copy(objects / forged[:2] / forged.strip()[2:], target)
    (root / "tests/test_add.py").unlink()
    after = (await workspace.snapshot()).tree
    judged = await workspace.compose(baseline, after)
    await workspace.restore(baseline, after, judged.restored, tmp_path / "e")
    for fresh in (False, True):
        tree = await workspace.check_tree(judged.tree, fresh=fresh)
        assert (tree.path / "tests/test_add.py").read_text() == TEST == (root / "tests/test_add.py").read_text()


@pytest.mark.parametrize("before", ["ls-files", "update-index", "write-tree"])
@pytest.mark.parametrize("completed", [False, True])
async def test_cancelled_snapshot_leaves_nothing_that_a_later_one_would_believe(
    tmp_path: Path, before: str, completed: bool
) -> None:
    """Cancelled right before or right after one of its steps."""
    scopes: list[anyio.CancelScope] = []

    async def cancelling(argv: Sequence[str], **more: Any) -> Completed:
        hit = scopes and before in argv
        if hit and completed:
            await run_program(argv, **more)
        if hit:
            scopes.pop().cancel()
            await anyio.sleep(0)
        return await run_program(argv, **more)

    root = project(tmp_path / "p", PYTHON)
    workspace = CleanWorkspace(bench(root, tmp_path / "s").plan, PlainContainers(), cancelling)
    baseline = (await workspace.prepare()).baseline
    write(root, {"calc.py": RIGHT, "new": "x"})
    with anyio.CancelScope() as scope:
        scopes.append(scope)
        await workspace.snapshot()
    assert scope.cancelled_caught
    assert await workspace.changed_paths(baseline, (await workspace.snapshot()).tree) == ("calc.py", "new")


async def test_removed_workspace_folder_is_a_change_like_any_other(tmp_path: Path) -> None:
    root = project(tmp_path / "p", PYTHON)
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    shutil.rmtree(root)
    after = (await workspace.snapshot()).tree
    judged = await workspace.compose(baseline, after)
    assert judged.restored == ("goals/g.yaml", "tests/test_add.py")
    await workspace.restore(baseline, after, judged.restored, tmp_path / "e")
    assert set(files_of(root)) == set(judged.restored)
