"""Snapshots and the baseline, with real git."""

import os
import socket
import stat
from pathlib import Path

import pytest

from loopd.domain.errors import UsageError
from trees import bench, files_of, git, project, write

pytestmark = pytest.mark.anyio


async def test_snapshot_is_the_same_until_something_changes(tmp_path: Path) -> None:
    workspace = bench(project(tmp_path / "p"), tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    assert (await workspace.snapshot()).tree == baseline
    write(workspace.root, {"calc.py": "changed\n", "new/deep.py": "x\n"})
    changed = (await workspace.snapshot()).tree
    assert await workspace.changed_paths(baseline, changed) == ("calc.py", "new/deep.py")
    git(workspace.root, "checkout", "-q", "calc.py")
    (workspace.root / "new/deep.py").unlink()
    assert (await workspace.snapshot()).tree == baseline


async def test_snapshot_takes_names_with_spaces_newlines_dashes_and_bytes_that_are_no_text(
    tmp_path: Path,
) -> None:
    root = project(tmp_path / "p")
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    names = [
        "a b",
        "new\nline",
        "-dash",
        "--stdin",
        "bad\udcff",
        "ümlaut",
        'quo"te',
        "back\\slash",
        ":(glob)x",
    ]
    for name in names:
        (root / name).write_text("x")
    taken = await workspace.snapshot()
    assert set(await workspace.changed_paths(baseline, taken.tree)) == set(names)
    assert taken.left_out == ()


async def test_snapshot_lists_what_git_refuses_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = project(tmp_path / "p")
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    write(root, {".GIT/x": "x", "sub/git~1/y": "y", "good.py": "z", "secret": "s"})
    os.symlink("good.py", root / ".gitmodules")
    os.mkfifo(root / "pipe")
    (root / "calc.py").unlink()
    os.mkfifo(root / "calc.py")
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    taken = await workspace.snapshot()
    assert {".GIT/x", "sub/git~1/y", ".gitmodules", "pipe", "socket", "calc.py"} <= set(taken.left_out)
    assert await workspace.changed_paths(baseline, taken.tree) == ("good.py", "secret")


async def test_snapshot_halves_until_the_one_file_that_git_cannot_read_is_alone(tmp_path: Path) -> None:
    root = project(tmp_path / "p")
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    write(root, {f"f{number}": "x" for number in range(9)})
    (root / "f4").unlink()
    os.symlink("x" * 300, root / "f4")
    taken = await workspace.snapshot()
    assert len(await workspace.changed_paths(baseline, taken.tree)) >= 8


async def test_same_size_change_within_the_second_is_seen(tmp_path: Path) -> None:
    root = project(tmp_path / "p")
    workspace = bench(root, tmp_path / "s").open()
    await workspace.prepare()
    seen = set()
    for number in range(10):
        (root / "calc.py").write_text(f"x = {number}\n")
        seen.add((await workspace.snapshot()).tree)
    assert len(seen) == 10


async def test_same_size_change_with_the_old_time_put_back_is_seen(tmp_path: Path) -> None:
    root = project(tmp_path / "p")
    os.utime(root / "calc.py", (1_500_000_000, 1_500_000_000))
    workspace = bench(root, tmp_path / "s").open()
    seen = {(await workspace.prepare()).baseline}
    for number in range(5):
        content = (root / "calc.py").read_text()
        (root / "calc.py").write_text(content[:-2] + f"{number}\n")
        os.utime(root / "calc.py", (1_500_000_000, 1_500_000_000))
        seen.add((await workspace.snapshot()).tree)
    assert len(seen) == 6


async def test_ignore_rules_are_those_of_the_baseline(tmp_path: Path) -> None:
    root = project(tmp_path / "p", {".gitignore": "out/\n*.log\n!keep.log\n", "sub/.gitignore": "/local\n*.tmp\n"})
    (root / ".git/info/exclude").write_text("private\n")
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    (root / ".gitignore").write_text("src/\n")
    (root / "sub/.gitignore").unlink()
    ignored = ["out/x", "a.log", "deep/b.log", "sub/local", "sub/deep/c.tmp", "private", "deep/private"]
    carried = ["keep.log", "src/new.py", "local", "d.tmp", "sub/deep/local"]
    write(root, dict.fromkeys([*ignored, *carried], "x"))
    taken = await workspace.snapshot()
    expected = {".gitignore", "sub/.gitignore", *carried}
    assert set(await workspace.changed_paths(baseline, taken.tree)) == expected


async def test_folders_that_ignore_themselves_are_left_out_before_and_after_the_baseline(
    tmp_path: Path,
) -> None:
    root = project(tmp_path / "p")
    write(root, {".venv/.gitignore": "*\n", ".venv/bin/python": "x", "a/b/.gitignore": "*", "a/b/c/d": "x"})
    workspace = bench(root, tmp_path / "s").open()
    prepared = await workspace.prepare()
    assert prepared.files == 2
    write(
        root,
        {".pytest_cache/.gitignore": "# made by a tool\n*\n", ".pytest_cache/v/x": "x", ".venv/new": "x"},
    )
    assert (await workspace.snapshot()).tree == prepared.baseline


async def test_tracked_files_count_although_ignored(tmp_path: Path) -> None:
    root = project(tmp_path / "p", {".gitignore": "*.cfg\n", "a.cfg": "1\n", "b.py": "2\n"})
    tools = bench(root, tmp_path / "s")
    workspace = tools.open()
    baseline = (await workspace.prepare()).baseline
    (root / "a.cfg").unlink()
    gone = (await workspace.snapshot()).tree
    assert await workspace.changed_paths(baseline, gone) == ("a.cfg",)
    write(root, {"a.cfg": "1\n", "new.cfg": "x"})
    assert (await workspace.snapshot()).tree == baseline
    (root / "a.cfg").write_text("other")
    again = tools.open()
    await again.prepare()
    assert await again.changed_paths(baseline, (await again.snapshot()).tree) == ("a.cfg",)


async def test_nested_repositories_are_plain_files(tmp_path: Path) -> None:
    root = project(tmp_path / "p")
    project(root / "nested", {"f": "1\n", "deep/g": "2\n"})
    project(root / "nested/inner", {"h": "3\n"})
    (root / "empty").mkdir()
    git(root / "empty", "init", "-q")
    workspace = bench(root, tmp_path / "s").open()
    prepared = await workspace.prepare()
    assert prepared.files == 5
    write(root, {"nested/inner/h": "changed", "nested/new": "x"})
    project(root / "later", {"l": "1\n"})
    changed = await workspace.changed_paths(prepared.baseline, (await workspace.snapshot()).tree)
    assert changed == ("later/l", "nested/inner/h", "nested/new")


async def test_filters_hooks_and_line_ends_of_the_users_git_never_run_nor_change_bytes(
    tmp_path: Path,
) -> None:
    root = project(tmp_path / "p")
    witness = tmp_path / "ran"
    for key, value in {
        "core.autocrlf": "true",
        "filter.spy.clean": f"touch {witness}; cat",
        "filter.spy.smudge": f"touch {witness}; cat",
        "filter.spy.required": "true",
        "core.fsmonitor": f"touch {witness}",
        "core.hooksPath": str(tmp_path / "hooks"),
        "diff.external": f"touch {witness}",
    }.items():
        git(root, "config", key, value)
    for hook in ("post-checkout", "pre-commit", "reference-transaction", "post-index-change"):
        write(tmp_path / "hooks", {hook: f"#!/bin/sh\ntouch {witness}\n"})
        (tmp_path / "hooks" / hook).chmod(0o755)
    content = b"one\r\ntwo\n$Id$\n"
    attributes = "* text=auto eol=crlf filter=spy ident diff=spy\n"
    write(root, {".gitattributes": attributes, "calc.py": content, "u.txt": content})
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    tree = await workspace.check_tree(baseline)
    assert (tree.path / "calc.py").read_bytes() == content == (tree.path / "u.txt").read_bytes()
    write(root, {"calc.py": b"\r\n\r\n"})
    after = (await workspace.snapshot()).tree
    await workspace.diff(baseline, after)
    await workspace.restore(baseline, after, ["calc.py"], tmp_path / "e")
    await workspace.commit(after, "loopd/x", "x: y")
    assert (root / "calc.py").read_bytes() == content
    assert not witness.exists()


@pytest.mark.parametrize("state", ["unborn", "detached", "merging", "worktree", "plain", "subfolder"])
async def test_every_state_of_a_repository_works(tmp_path: Path, state: str) -> None:
    root = tmp_path / "p"
    if state in ("plain", "unborn"):
        write(root, {"calc.py": "1\n", "sub/x": "2\n", ".gitignore": "*.log\n", "a.log": "x"})
        if state == "unborn":
            git(root, "init", "-q")
    else:
        project(root, {"calc.py": "1\n", "sub/x": "2\n", ".gitignore": "*.log\n/sub/only\n"})
    if state == "detached":
        git(root, "checkout", "-q", "--detach")
    if state == "merging":
        git(root, "checkout", "-q", "-b", "other")
        write(root, {"calc.py": "other\n"})
        git(root, "commit", "-q", "-a", "-m", "o")
        git(root, "checkout", "-q", "main")
        write(root, {"calc.py": "mine\n"})
        git(root, "commit", "-q", "-a", "-m", "m")
        with pytest.raises(AssertionError):
            git(root, "merge", "-q", "other")
    if state == "worktree":
        git(root, "worktree", "add", "-q", "../linked")
        root = tmp_path / "linked"
    if state == "subfolder":
        root = root / "sub"
        write(root, {"only": "x"})
    workspace = bench(root, tmp_path / "s").open()
    prepared = await workspace.prepare()
    assert prepared.files == (1 if state == "subfolder" else 3)
    write(root, {"new.py": "x", "more.log": "x"})
    after = (await workspace.snapshot()).tree
    assert await workspace.changed_paths(prepared.baseline, after) == ("new.py",)
    tree = await workspace.check_tree(after)
    assert (tree.path / "new.py").read_text() == "x"
    if state != "plain":
        commit = await workspace.commit(after, "loopd/x", "subject")
        names = git(root, "ls-tree", "-r", "--full-tree", "--name-only", commit).split()
        assert ("sub/new.py" if state == "subfolder" else "new.py") in names


async def test_bare_repository_is_refused_in_words(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "bare")
    with pytest.raises(UsageError, match="bare"):
        await bench(tmp_path / "bare", tmp_path / "s").open().prepare()


async def test_preparing_again_after_a_crash_completes_and_never_repeats(tmp_path: Path) -> None:
    root = project(tmp_path / "p")
    tools = bench(root, tmp_path / "s", setup=(("sh", "-c", "echo ran >> made"),))
    first = await tools.open().prepare()
    assert not first.setup_cached
    write(root, {"calc.py": "the agent was here\n"})
    (tmp_path / "s/index/workspace-1.lock").write_text("left by a dead git")
    again = tools.open()
    second = await again.prepare()
    assert (second.baseline, second.setup_cached, len(tools.containers.started)) == (first.baseline, True, 1)
    assert await again.changed_paths(first.baseline, (await again.snapshot()).tree) == ("calc.py",)


@pytest.mark.parametrize("lost", [None, b"torn", b""])
async def test_a_lost_or_broken_index_is_rebuilt(tmp_path: Path, lost: bytes | None) -> None:
    root = project(tmp_path / "p")
    tools = bench(root, tmp_path / "s")
    baseline = (await tools.open().prepare()).baseline
    for index in (tmp_path / "s/index").iterdir():
        index.unlink() if lost is None else index.write_bytes(lost)
    again = tools.open()
    await again.prepare()
    assert (await again.snapshot()).tree == baseline


async def test_file_replaced_by_a_folder_and_by_a_link_are_changes(tmp_path: Path) -> None:
    root = project(tmp_path / "p", {"a": "1", "d/x": "2", "d/y": "3"})
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    (root / "a").unlink()
    write(root, {"a/b": "4"})
    os.rename(root / "d", root / "e")
    os.symlink("e", root / "d")
    after = (await workspace.snapshot()).tree
    assert await workspace.changed_paths(baseline, after) == ("a", "a/b", "d", "d/x", "d/y", "e/x", "e/y")
    tree = await workspace.check_tree(after)
    assert files_of(tree.path) == files_of(root)
    assert files_of((await workspace.check_tree(baseline)).path) == {"a": b"1", "d/x": b"2", "d/y": b"3"}


async def test_modes_and_links_survive(tmp_path: Path) -> None:
    root = project(tmp_path / "p", {"run.sh": "#!/bin/sh\n"})
    (root / "run.sh").chmod(0o755)
    os.symlink("/etc/passwd", root / "out")
    workspace = bench(root, tmp_path / "s").open()
    baseline = (await workspace.prepare()).baseline
    tree = await workspace.check_tree(baseline)
    assert os.stat(tree.path / "run.sh").st_mode & stat.S_IXUSR
    assert os.readlink(tree.path / "out") == "/etc/passwd"
