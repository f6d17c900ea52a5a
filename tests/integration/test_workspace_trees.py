"""The trees that verifiers run in: kept, fresh, set up, at the path of the workspace; real git, real bubblewrap."""

import json
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from loopd.domain.errors import BlockedError, UsageError
from loopd.ports.workspace import SetupError
from trees import (
    PYTHON,
    RIGHT,
    SEARCH_PATH,
    WRONG,
    bench,
    composed,
    files_of,
    git,
    hand_made_environment,
    needs_bubblewrap,
    project,
    verify,
    write,
)

pytestmark = pytest.mark.anyio


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
