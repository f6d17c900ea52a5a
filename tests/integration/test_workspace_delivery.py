"""Diffs, delivered trees and branches, clones; real git."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from loopd.domain.errors import UsageError
from trees import (
    PYTHON,
    RIGHT,
    WRONG,
    bench,
    composed,
    files_of,
    git,
    hand_made_environment,
    needs_bubblewrap,
    project,
    state_of_repository,
    verify,
    write,
)

pytestmark = pytest.mark.anyio


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
    before, repository = files_of(root), state_of_repository(root)
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
    assert state_of_repository(root) == repository
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
