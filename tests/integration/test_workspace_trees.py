"""Composed trees, restored files, and the trees that verifiers run in; real git, real bubblewrap."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import anyio
import pytest

from loopd.adapters.containment.programs import Completed, run_program
from loopd.adapters.workspace import release_stale_locks
from loopd.adapters.workspace.clean import CleanWorkspace
from loopd.domain.errors import BlockedError, UsageError
from loopd.domain.scope import scope_of
from loopd.ports.workspace import SetupError, Workspace
from plain_containers import PlainContainers
from trees import SEARCH_PATH, bench, files_of, git, project, verify, write

pytestmark = pytest.mark.anyio

TEST = "from calc import add\ndef test_add():\n    assert add(2, 3) == 5\n"
WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = "def add(a, b):\n    return a + b\n"
PYTHON = {
    "calc.py": WRONG,
    "tests/test_add.py": TEST,
    "goals/g.yaml": "goal: g\n",
    ".gitignore": "__pycache__/\n",
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def bubblewrap() -> bool:
    argv = ["bwrap", "--ro-bind", "/", "/", "--unshare-pid", "true"]
    return shutil.which("bwrap") is not None and subprocess.run(argv).returncode == 0


needs_bubblewrap = pytest.mark.skipif(not bubblewrap(), reason="bubblewrap does not work here")


async def composed(workspace: Workspace, baseline: str) -> str:
    return (await workspace.compose(baseline, (await workspace.snapshot()).tree)).tree


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
    mine, repository = files_of(root), _state_of_repository(root)
    workspace = bench(root, tmp_path / "s", search_path=f"{shim}:{SEARCH_PATH}").open()
    baseline = (await workspace.prepare()).baseline
    write(root, {"tests/test_add.py": "cheated\n"})
    after = (await workspace.snapshot()).tree
    judged = await workspace.compose(baseline, after)
    await workspace.restore(baseline, after, judged.restored, tmp_path / "e")
    await workspace.check_tree(judged.tree)
    await workspace.check_tree(judged.tree, fresh=True)
    assert files_of(root) == mine
    assert _state_of_repository(root) == repository
    words = [line for line in log.read_text().splitlines() if line.startswith(f"{root} ")]
    forbidden = {"reset", "clean", "checkout", "stash", "restore", "add", "commit", "gc", "switch", "rm"}
    assert words
    assert not [line for line in words if forbidden & set(line.split())]


def _state_of_repository(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted((root / ".git").rglob("*")) if p.is_file()}


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


async def test_times_are_never_copied_from_the_agent_and_unchanged_files_keep_theirs(tmp_path: Path) -> None:
    root = project(tmp_path / "p", PYTHON)
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    tree = await workspace.check_tree(baseline)
    unchanged = (tree.path / "tests/test_add.py").stat().st_mtime_ns
    write(root, {"calc.py": RIGHT})
    os.utime(root / "calc.py", (1_000_000_000, 1_000_000_000))
    started = time.time()
    tree = await workspace.check_tree(await composed(workspace, baseline))
    assert (tree.path / "calc.py").stat().st_mtime >= started - 0.1
    assert (tree.path / "tests/test_add.py").stat().st_mtime_ns == unchanged
    fresh = await workspace.check_tree(await composed(workspace, baseline), fresh=True)
    assert (fresh.path / "tests/test_add.py").stat().st_mtime_ns == unchanged


async def test_check_tree_is_reset_and_cleaned_but_keeps_what_is_ignored_and_what_setup_made(
    tmp_path: Path,
) -> None:
    root = project(tmp_path / "p", {**PYTHON, ".gitignore": "build/\n__pycache__/\n", "dir/x": "1"})
    setup = (("sh", "-c", "mkdir -p build made && echo o > build/o && echo m > made/m && echo bad > calc.py"),)
    workspace = bench(root, tmp_path / "s", setup=setup).open()
    baseline = (await workspace.prepare()).baseline
    tree = await workspace.check_tree(baseline)
    assert (tree.path / "calc.py").read_text() == WRONG
    write(tree.path, {"calc.py": "poison", "stray/deep": "x", "build/cache": "x", "conftest.py": "x"})
    shutil.rmtree(tree.path / "dir")
    os.symlink("build", tree.path / "dir")
    project(tree.path / "repo", {"f": "1"})
    (tree.path / "tests/test_add.py").unlink()
    write(tree.path, {"tests/test_add.py/inside": "x"})
    tree = await workspace.check_tree(baseline)
    kept = {*PYTHON, "dir/x", "build/o", "build/cache", "made/m"}
    assert set(files_of(tree.path)) == kept
    assert (tree.path / "calc.py").read_text() == WRONG
    fresh = await workspace.check_tree(baseline, fresh=True)
    assert set(files_of(fresh.path)) == kept - {"build/cache"}


async def test_poisoned_bytecode_in_the_kept_tree_cannot_pass_the_fresh_one(tmp_path: Path) -> None:
    """Tried: a rewritten .pyc passed wrong code in the next attempt."""
    root = project(tmp_path / "p", PYTHON)
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    tree = await workspace.check_tree(baseline)
    poison = (
        "import py_compile, pathlib; p = pathlib.Path('x.py'); p.write_text('def add(a, b): return 5')\n"
        "mode = py_compile.PycInvalidationMode.UNCHECKED_HASH\n"
        "target = '__pycache__/calc.cpython-%d%d.pyc' % __import__('sys').version_info[:2]\n"
        "py_compile.compile('x.py', target, invalidation_mode=mode)\n"
        "p.unlink()"
    )
    assert verify(tree, sys.executable, "-c", poison).returncode == 0
    check = [sys.executable, "-B", "-c", "import calc; assert calc.add(2, 3) == 5"]
    assert verify(await workspace.check_tree(baseline), *check).returncode == 0
    assert verify(await workspace.check_tree(baseline, fresh=True), *check).returncode == 1


async def test_bytecode_of_a_changed_file_goes_though_python_would_take_it_for_fresh(tmp_path: Path) -> None:
    """Tried: an edit of the same size within the second of the last check ran the old code."""
    root = project(tmp_path / "p", PYTHON)
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    tree = await workspace.check_tree(baseline)
    caches = ["__pycache__/calc.cpython-311.pyc", "__pycache__/calculus.cpython-311.pyc"]
    write(tree.path, dict.fromkeys(caches, "x"))
    write(root, {"calc.py": RIGHT})
    tree = await workspace.check_tree(await composed(workspace, baseline))
    assert [name for name in caches if (tree.path / name).exists()] == caches[1:]


async def test_setup_runs_once_and_again_when_its_files_change(tmp_path: Path) -> None:
    root = project(tmp_path / "p", {**PYTHON, "deps.txt": "one\n", ".gitignore": "lib/\n"})
    setup = (("sh", "-c", "grep -q . deps.txt && mkdir -p lib && cp deps.txt lib/installed"),)
    tools = bench(root, tmp_path / "s", setup=setup, setup_when=("deps.txt",))
    workspace = tools.open()
    baseline = (await workspace.prepare()).baseline
    write(root, {"calc.py": RIGHT})
    await workspace.check_tree(await composed(workspace, baseline))
    assert len(tools.containers.started) == 1
    write(root, {"deps.txt": "two\n"})
    tree = await workspace.check_tree(await composed(workspace, baseline))
    assert (tree.path / "lib/installed").read_text() == "two\n"
    assert (await workspace.check_tree(baseline)).path.joinpath("lib/installed").read_text() == "one\n"
    assert len(tools.containers.started) == 2
    write(root, {"deps.txt": ""})
    with pytest.raises(SetupError, match=r"deps\.txt"):
        await workspace.check_tree(await composed(workspace, baseline))


async def test_setup_that_fails_on_the_baseline_blocks_with_its_words(tmp_path: Path) -> None:
    setup = (("sh", "-c", "echo no such package >&2; exit 3"),)
    with pytest.raises(BlockedError, match=r"failed \(exit 3\)(.|\n)*no such package"):
        await bench(project(tmp_path / "p"), tmp_path / "s", setup=setup).open().prepare()
    slow = bench(project(tmp_path / "q"), tmp_path / "t", setup=(("sleep", "60"),), setup_timeout_s=0.3)
    with pytest.raises(BlockedError, match="took longer"):
        await slow.open().prepare()


async def test_carried_things_are_taken_once_and_never_from_the_agent_later(tmp_path: Path) -> None:
    root = project(tmp_path / "p", {**PYTHON, ".gitignore": ".env\nnode_modules/\n"})
    write(root, {".env": "TOKEN=1\n", "node_modules/a/index.js": "1\n"})
    os.symlink("a/index.js", root / "node_modules/b")
    workspace = bench(root, tmp_path / "s", carry=(".env", "node_modules", ".venv")).open()
    prepared = await workspace.prepare()
    assert prepared.carried == (".env", "node_modules")
    assert any(".venv" in note for note in prepared.notes)
    write(root, {".env": "PYTEST_ADDOPTS=-k none\n", "node_modules/a/index.js": "process.exit(0)\n"})
    after = (await workspace.snapshot()).tree
    assert after == prepared.baseline
    for fresh in (False, True):
        tree = await workspace.check_tree(after, fresh=fresh)
        assert (tree.path / ".env").read_text() == "TOKEN=1\n"
        assert (tree.path / "node_modules/a/index.js").read_text() == "1\n"
        assert os.readlink(tree.path / "node_modules/b") == "a/index.js"


async def test_carry_refuses_a_path_outside_the_workspace(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.\./x"):
        await bench(project(tmp_path / "p"), tmp_path / "s", carry=("../x",)).open().prepare()


@needs_bubblewrap
async def test_verifier_sees_its_tree_at_the_workspaces_path_and_nothing_of_loopds_or_homes(
    tmp_path: Path,
) -> None:
    root = project(tmp_path / "p", {**PYTHON, ".gitignore": "node_modules/\n"})
    write(root, {"node_modules/m/a.js": "1"})
    workspace = bench(root, tmp_path / "s", carry=("node_modules",)).open()
    baseline = (await workspace.prepare()).baseline
    write(root, {"calc.py": "the agent's"})
    tree = await workspace.check_tree(baseline)
    assert tree.seen_at == root
    looks = f"""
        cat {root}/calc.py; ls {tmp_path}; ls -A ~ | grep -v -e cargo -e rustup -e pyenv -e '^go$' -e local
        touch {root}/new && echo writable; touch {root}/node_modules/m/x || echo read-only
        touch {root}/node_modules/.cache/x && echo cache; [ -z "$(ls -A {tmp_path}/s)" ] && echo hidden
        python3 -c 'import ctypes' && echo python; cat /proc/net/dev | wc -l"""
    done = verify(tree, "sh", "-c", looks)
    assert WRONG in done.stdout
    for word in ("writable", "read-only", "cache", "hidden", "python"):
        assert word in done.stdout.split(), (word, done)
    assert "the agent's" not in done.stdout
    assert done.stdout.strip().endswith("3")
    assert (root / "new").exists() is False


def hand_made_environment(folder: Path, python: str, leads_to: Path) -> None:
    """A virtual environment with an editable install, without the seconds that a real one takes."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    write(folder, {"pyvenv.cfg": f"home = {Path(python).parent}\n"})
    write(folder, {f"lib/{version}/site-packages/__editable__.calc.pth": f"{leads_to}\n"})
    (folder / "bin").mkdir()
    os.symlink(python, folder / "bin/python")


@needs_bubblewrap
async def test_editable_install_resolves_to_the_verification_tree_under_bubblewrap(tmp_path: Path) -> None:
    """Tried: with the tree at another path pytest imported the agent's workspace and passed."""
    root = project(tmp_path / "p", {"src/calc.py": WRONG, ".gitignore": ".venv/\n"})
    hand_made_environment(root / ".venv", os.path.realpath(sys.executable), root / "src")
    workspace = bench(root, tmp_path / "s", carry=(".venv",)).open()
    baseline = (await workspace.prepare()).baseline
    write(root, {"src/calc.py": RIGHT})
    check = [f"{root}/.venv/bin/python", "-c", "import calc; assert calc.add(2, 3) == 5"]
    assert verify(await workspace.check_tree(baseline), *check).returncode == 1
    done = verify(await workspace.check_tree(await composed(workspace, baseline)), *check)
    assert done.returncode == 0, done.stderr


async def test_without_bubblewrap_an_editable_install_that_leads_back_is_refused_by_name(
    tmp_path: Path,
) -> None:
    root = project(tmp_path / "p", {"src/calc.py": WRONG, ".gitignore": ".venv/\n"})
    hand_made_environment(root / ".venv", os.path.realpath(sys.executable), root / "src")
    workspace = bench(root, tmp_path / "s", carry=(".venv",), bubblewrap=False).open()
    with pytest.raises(BlockedError, match=r"__editable__\.calc\.pth leads into the workspace(.|\n)*setup:"):
        await workspace.prepare()


@pytest.mark.parametrize("way", ["shebang", "link", "folder on PATH", "direct_url", "script in bin"])
async def test_without_bubblewrap_every_way_back_is_refused(tmp_path: Path, way: str) -> None:
    root = project(tmp_path / "p", {"bin/python": "#!/bin/sh\n", ".gitignore": ".venv/\n"})
    programs = tmp_path / "usr/bin"
    write(programs, {"other": "#!/bin/sh\n"})
    path, carry = f"{programs}:{SEARCH_PATH}", ()
    if way == "shebang":
        write(programs, {"tool": f"#!{root}/bin/python\n"})
    elif way == "link":
        os.symlink(root / "bin/python", programs / "tool")
    elif way == "folder on PATH":
        path = f"{root}/bin:{path}"
    elif way == "direct_url":
        place = "lib/python3.11/site-packages/calc.dist-info/direct_url.json"
        write(tmp_path / "usr", {place: json.dumps({"url": f"file://{root}", "dir_info": {"editable": True}})})
    else:
        write(root, {".venv/pyvenv.cfg": "", ".venv/bin/pytest": f"#!{root}/.venv/bin/python\n"})
        carry = (".venv",)
    workspace = bench(root, tmp_path / "s", search_path=path, carry=carry, bubblewrap=False).open()
    with pytest.raises(BlockedError, match="leads into the workspace"):
        await workspace.prepare()


async def test_without_bubblewrap_setup_and_checks_share_one_path(tmp_path: Path) -> None:
    """What the setup made knows the path it was made at, so every tree must lie there."""
    root = project(tmp_path / "p", {**PYTHON, ".gitignore": "where\n"})
    setup = (("sh", "-c", "pwd > where"),)
    workspace = bench(root, tmp_path / "s", setup=setup, bubblewrap=False).open()
    baseline = (await workspace.prepare()).baseline
    for fresh in (False, True):
        tree = await workspace.check_tree(baseline, fresh=fresh)
        assert (tree.sandbox, tree.seen_at) == (None, tree.path)
        assert (tree.path / "where").read_text().strip() == str(tree.path)
    other = await workspace.baseline_tree(baseline)
    assert (other.path / "where").read_text().strip() == str(other.path) != str(tree.path)


async def test_tree_has_a_repository_in_which_version_tools_and_diff_work(tmp_path: Path) -> None:
    root = project(tmp_path / "p", PYTHON)
    git(root, "tag", "v1.2")
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    write(root, {"calc.py": RIGHT})
    tree = await workspace.check_tree(await composed(workspace, baseline))
    assert verify(tree, "git", "describe", "--tags", "--dirty").stdout == "v1.2-dirty\n"
    assert "+    return a + b" in verify(tree, "git", "diff", "HEAD").stdout
    assert verify(tree, "git", "remote").stdout == ""
    assert "base" in verify(tree, "git", "log", "--oneline").stdout
    assert not (tree.path / ".git/objects/info/alternates").exists()


async def test_uncommitted_work_of_the_owner_is_a_commit_in_the_trees_repository(tmp_path: Path) -> None:
    root = project(tmp_path / "p", PYTHON)
    write(root, {"calc.py": "# the owner's\n" + WRONG})
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    write(root, {"calc.py": "# the owner's\n" + RIGHT})
    tree = await workspace.check_tree(await composed(workspace, baseline))
    diff = verify(tree, "git", "diff", "HEAD").stdout
    assert "+    return a + b" in diff
    assert "+# the owner's" not in diff


async def test_diff_is_text_whatever_the_bytes_and_bounded(tmp_path: Path) -> None:
    root = project(tmp_path / "p", PYTHON)
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    write(root, {"calc.py": b"caf\xe9\n" * 100})
    after = (await workspace.snapshot()).tree
    whole = await workspace.diff(baseline, after)
    assert "+caf\\xe9" in whole
    assert len((await workspace.diff(baseline, after, limit=50)).encode()) <= 53


async def test_write_tree_refuses_to_overwrite_what_changed_since(tmp_path: Path) -> None:
    root = project(tmp_path / "p", {"a": "1", "b": "1", ".gitignore": "ignored\n"})
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    write(root, {"a": "2", "new/x": "2", "ignored": "stays"})
    best = (await workspace.snapshot()).tree
    write(root, {"a": "3"})
    with pytest.raises(UsageError, match=r"(?s)changed since.*  a$"):
        await workspace.write_tree(baseline, expected=best)
    now = (await workspace.snapshot()).tree
    assert await workspace.write_tree(baseline, expected=now) == ("a", "new/x")
    assert files_of(root) == {"a": b"1", "b": b"1", ".gitignore": b"ignored\n", "ignored": b"stays"}
    assert not (root / "new").exists()


async def test_commit_lands_on_a_new_branch_and_nothing_else_moves(tmp_path: Path) -> None:
    root = project(tmp_path / "p", {"a": "1\r\n", "b": "1", "run": "x"})
    git(root, "config", "user.name", "The Owner")
    workspace = bench(root, tmp_path / "s").open()
    await workspace.prepare()
    write(root, {"a": "2\r\n", "new": "n"})
    (root / "run").chmod(0o755)
    after = (await workspace.snapshot()).tree
    head, index = git(root, "rev-parse", "HEAD"), (root / ".git/index").read_bytes()
    commit = await workspace.commit(after, "loopd/retry-k3f9", "retry: done\n\nbody\n\nLoopd-Run: k3f9")
    assert commit == await workspace.commit(after, "loopd/retry-k3f9", "retry: done\n\nbody\n\nLoopd-Run: k3f9")
    assert git(root, "rev-parse", "loopd/retry-k3f9").strip() == commit
    assert git(root, "rev-parse", f"{commit}^") == head == git(root, "rev-parse", "HEAD")
    assert git(root, "log", "-1", "--format=%an|%s|%(trailers:key=Loopd-Run,valueonly)", commit).startswith(
        "The Owner|retry: done|k3f9"
    )
    assert git(root, "diff", "--name-only", "main", commit).split() == ["a", "new", "run"]
    assert (root / ".git/index").read_bytes() == index
    with pytest.raises(UsageError, match="exists and holds something else"):
        await workspace.commit(after, "loopd/retry-k3f9", "another message")
    with pytest.raises(UsageError, match="no name for a branch"):
        await workspace.commit(after, "a..b", "m")


async def test_commit_leaves_files_alone_that_git_keeps_in_another_form(tmp_path: Path) -> None:
    """A clean checkout with converted line ends is no change of every file."""
    root = project(tmp_path / "p", {"a": "1\n", "b": "1\n"})
    git(root, "config", "core.autocrlf", "true")
    (root / "a").unlink()
    (root / "b").unlink()
    git(root, "checkout", "-q", ".")
    assert (root / "a").read_bytes() == b"1\r\n"
    workspace = bench(root, tmp_path / "s").open()
    await workspace.prepare()
    write(root, {"c": "new\n"})
    commit = await workspace.commit((await workspace.snapshot()).tree, "out", "m")
    assert git(root, "diff", "--name-only", "main", commit).split() == ["c"]


async def test_folder_without_git_has_no_branch_to_deliver_to(tmp_path: Path) -> None:
    write(tmp_path / "p", {"a": "1"})
    workspace = bench(tmp_path / "p", tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    with pytest.raises(UsageError, match="no git repository"):
        await workspace.commit(baseline, "b", "m")
    tree = await workspace.check_tree(baseline)
    assert files_of(tree.path) == {"a": b"1"}


async def test_clone_has_objects_of_its_own_and_the_owners_repository_does_not_change(tmp_path: Path) -> None:
    root = project(tmp_path / "p", {**PYTHON, ".gitignore": ".venv/\n"})
    write(root, {"calc.py": "uncommitted", "untracked": "x", ".venv/lib": "x"})
    before, repository = files_of(root), _state_of_repository(root)
    workspace = bench(root, tmp_path / "s", isolation="clone", carry=(".venv",)).open()
    prepared = await workspace.prepare()
    clone = workspace.root
    assert clone != root
    assert any("2 uncommitted files are left out" in note for note in prepared.notes)
    assert (clone / "calc.py").read_text() == WRONG
    assert (clone / ".venv/lib").read_text() == "x"
    assert git(clone, "branch", "--show-current").strip() == "loopd/retry-k3f9"
    assert git(clone, "remote") == "" == git(clone, "status", "--porcelain")
    assert not (clone / ".git/objects/info/alternates").exists()
    assert all(p.stat().st_nlink == 1 for p in (clone / ".git/objects").rglob("*") if p.is_file())
    write(clone, {"calc.py": RIGHT})
    git(clone, "commit", "-qam", "the agent's own")
    after = (await workspace.snapshot()).tree
    assert files_of(root) == before
    assert _state_of_repository(root) == repository
    commit = await workspace.commit(after, "loopd/retry-k3f9", "m")
    assert git(root, "show", f"{commit}:calc.py") == RIGHT
    assert git(root, "rev-parse", f"{commit}^") == git(root, "rev-parse", "HEAD")


async def test_clone_takes_uncommitted_files_along_when_asked(tmp_path: Path) -> None:
    root = project(tmp_path / "p", {**PYTHON, "gone": "1"})
    write(root, {"calc.py": "uncommitted", "untracked": "x", "__pycache__/x.pyc": "x"})
    (root / "gone").unlink()
    workspace = bench(root, tmp_path / "s", isolation="clone", with_changes=True).open()
    prepared = await workspace.prepare()
    assert any("3 uncommitted files are taken along" in note for note in prepared.notes)
    assert set(files_of(workspace.root)) == set(files_of(root)) - {"__pycache__/x.pyc"}
    assert (workspace.root / "calc.py").read_text() == "uncommitted"


@needs_bubblewrap
async def test_in_a_clone_the_owners_path_shows_the_verification_tree_too(tmp_path: Path) -> None:
    root = project(tmp_path / "p", {"src/calc.py": WRONG, ".gitignore": ".venv/\n"})
    hand_made_environment(root / ".venv", os.path.realpath(sys.executable), root / "src")
    workspace = bench(root, tmp_path / "s", isolation="clone", carry=(".venv",)).open()
    baseline = (await workspace.prepare()).baseline
    write(workspace.root, {"src/calc.py": RIGHT})
    tree = await workspace.check_tree(await composed(workspace, baseline))
    check = [".venv/bin/python", "-c", "import calc; assert calc.add(2, 3) == 5"]
    done = verify(tree, *check)
    assert done.returncode == 0, done.stderr


async def test_missing_git_is_blocked_with_the_remedy(tmp_path: Path) -> None:
    root = project(tmp_path / "p")
    with pytest.raises(BlockedError, match=r"(?s)git is not on the PATH.*Install git"):
        await bench(root, tmp_path / "s", search_path=str(tmp_path)).open().prepare()


async def test_bubblewrap_that_is_wanted_and_missing_is_blocked(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("git", "cp"):
        os.symlink(shutil.which(name) or "", programs / name)
    root = project(tmp_path / "p")
    tools = bench(root, tmp_path / "s", search_path=str(programs), bubblewrap=True)
    with pytest.raises(BlockedError, match="bubblewrap does not work here"):
        await tools.open().prepare()
    prepared = await tools.open(bubblewrap=None).prepare()
    assert any("no bubblewrap" in note for note in prepared.notes)


async def test_submodule_is_plain_files_whose_moves_are_refused(tmp_path: Path) -> None:
    library = project(tmp_path / "lib", {"l.c": "1\n"})
    root = project(tmp_path / "p", PYTHON)
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "vendor/lib")
    git(root, "commit", "-qm", "with a submodule")
    workspace = bench(root, tmp_path / "s").open()
    prepared = await workspace.prepare()
    tree = await workspace.check_tree(prepared.baseline)
    assert (tree.path / "vendor/lib/l.c").read_text() == "1\n"
    write(root, {"vendor/lib/l.c": "2\n", "calc.py": RIGHT})
    after = (await workspace.snapshot()).tree
    judged = await workspace.compose(prepared.baseline, after)
    assert (judged.refused, judged.changed) == (("vendor/lib/l.c",), ("calc.py",))
    commit = await workspace.commit(judged.tree, "out", "m")
    assert git(root, "diff", "--name-only", "main", commit).split() == ["calc.py"]


async def test_commit_gives_converted_files_their_committed_line_ends_back(tmp_path: Path) -> None:
    root = project(tmp_path / "p", {"a": "1\n2\n"})
    git(root, "config", "core.autocrlf", "true")
    (root / "a").unlink()
    git(root, "checkout", "-q", ".")
    workspace = bench(root, tmp_path / "s").open()
    await workspace.prepare()
    write(root, {"a": "1\r\nchanged\r\n"})
    commit = await workspace.commit((await workspace.snapshot()).tree, "out", "m")
    assert git(root, "show", f"{commit}:a") == "1\nchanged\n"


async def test_forged_object_in_the_owners_store_is_never_delivered(tmp_path: Path) -> None:
    """An agent that works in place can put an object under the id of a file that will be proven."""
    root = project(tmp_path / "p", PYTHON)
    workspace = bench(root, tmp_path / "s").open()
    await workspace.prepare()
    write(root, {"calc.py": RIGHT, "evil": "evil\n"})
    name = git(root, "hash-object", "calc.py").strip()
    evil = git(root, "hash-object", "-w", "evil").strip()
    (root / "evil").unlink()
    objects = root / ".git/objects"
    (objects / name[:2]).mkdir(exist_ok=True)
    shutil.copy(objects / evil[:2] / evil[2:], objects / name[:2] / name[2:])
    after = (await workspace.snapshot()).tree
    with pytest.raises(UsageError, match="not what their names say"):
        await workspace.commit(after, "out", "m")
    assert git(root, "branch", "--list", "out") == ""
    (objects / name[:2] / name[2:]).chmod(0o600)
    (objects / name[:2] / name[2:]).unlink()
    commit = await workspace.commit(after, "out", "m")
    assert git(root, "show", f"{commit}:calc.py") == RIGHT


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


async def test_tree_that_its_tests_made_unwritable_is_rebuilt(tmp_path: Path) -> None:
    """Folders without permissions, a file with the immutable look of one: the next check has its tree."""
    root = project(tmp_path / "p", {**PYTHON, "dir/x": "1"})
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    tree = await workspace.check_tree(baseline)
    write(tree.path, {"stray/x": "1", "dir/x": "2"})
    (tree.path / "stray").chmod(0)
    (tree.path / "dir").chmod(0o500)
    (tmp_path / "s/tree.index").write_bytes(b"torn")
    tree = await workspace.check_tree(baseline)
    assert set(files_of(tree.path)) == {*PYTHON, "dir/x"}


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
