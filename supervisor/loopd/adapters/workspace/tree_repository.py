"""The small repository of a verification tree: for version tools and `git diff HEAD`, with objects of its
own.
"""

import shutil
from pathlib import Path

from msgspec import Struct

from loopd.adapters.workspace.git import Git, GitError
from loopd.adapters.workspace.repository import Repository
from loopd.adapters.workspace.store import Store
from loopd.ports.workspace import TreeId

# Above this, every fresh tree would copy more history than files: the newest commit has to do.
LARGEST_HISTORY_BYTES = 128 << 20

_WHO = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in (("NAME", "loopd"), ("EMAIL", "loopd@localhost"), ("DATE", "@0 +0000"))
}


class TreeRepository(Struct, frozen=True):
    """A git directory to be copied into each tree, and what to say about it."""

    folder: Path
    note: str = ""


async def make_tree_repository(
    git: Git, store: Store, repository: Repository, folder: Path, tree: TreeId, *, as_committed: bool
) -> TreeRepository:
    """History and tags up to HEAD, and on top a commit of the baseline unless the tree is as committed.

    Objects come by fetch, which recomputes every hash: a forged object in the owner's store stays there.
    When the history cannot be had (shallow, broken, partial), the baseline commit stands alone. Idempotent.
    """
    note_file = folder / "loopd-note"
    if note_file.exists():
        return TreeRepository(folder, note_file.read_text())
    making = folder.with_name(folder.name + ".making")
    shutil.rmtree(making, ignore_errors=True)
    await git("init", "-q", "--bare", "--template=", f"--object-format={store.object_format}", making)
    inside = git.at(cwd=making, git_dir=making)
    head, note = await _history(inside, repository)
    if not (head and as_committed):
        head = await _baseline_commit(inside, store, tree, head)
    branch = repository.branch or "main"
    await inside("update-ref", f"refs/heads/{branch}", head)
    await inside("symbolic-ref", "HEAD", f"refs/heads/{branch}")
    await inside("config", "core.bare", "false")
    (making / "FETCH_HEAD").unlink(missing_ok=True)
    (making / "loopd-note").write_text(note)
    making.rename(folder)
    return TreeRepository(folder, note)


async def _history(inside: Git, repository: Repository) -> tuple[str, str]:
    """The commit of HEAD once it is here (or nothing), and a note."""
    if not repository.head:
        return "", ""
    large = await _size(inside, repository) > LARGEST_HISTORY_BYTES
    what = ["--depth=1", "--no-tags"] if large else ["--no-tags"]
    refs = ["+HEAD:refs/loopd/head", *([] if large else ["+refs/tags/*:refs/tags/*"])]
    pack = "git -c safe.directory=* upload-pack"
    try:
        await inside("fetch", "-q", "--update-shallow", f"--upload-pack={pack}", *what, str(repository.top), *refs)
        await inside("update-ref", "-d", "refs/loopd/head")
    except GitError as problem:
        return "", f"verifiers see no history: {str(problem).splitlines()[-1]}"
    note = "verifiers see no history before the baseline: the repository is too large to copy" if large else ""
    return repository.head, note


async def _size(inside: Git, repository: Repository) -> int:
    theirs = inside.at(cwd=repository.top, git_dir=repository.git_dir)
    words = (await theirs("count-objects", "-v")).decode().split("\n")
    sizes = [int(line.partition(": ")[2]) for line in words if line.startswith(("size:", "size-pack:"))]
    return sum(sizes) * 1024


async def _baseline_commit(inside: Git, store: Store, tree: TreeId, parent: str) -> str:
    """A commit of the baseline, its objects fetched from loopd's own store."""
    alone = (await store.git("commit-tree", tree, stdin=b"baseline\n", env=_WHO)).decode().strip()
    await store.git("update-ref", "refs/loopd/baseline", alone)
    await inside("fetch", "-q", "--no-tags", str(store.git.git_dir), "+refs/loopd/baseline:refs/loopd/baseline")
    await inside("update-ref", "-d", "refs/loopd/baseline")
    parents = ["-p", parent] if parent else []
    return (await inside("commit-tree", tree, *parents, stdin=b"baseline\n", env=_WHO)).decode().strip()
