"""`isolation: clone`: a local clone with objects of its own, in which the agent works."""

import shutil
from pathlib import Path

from loopd.adapters.workspace.git import Git
from loopd.adapters.workspace.ignore import baseline_rules
from loopd.adapters.workspace.plan import WorkspacePlan
from loopd.adapters.workspace.repository import Repository, committed, touched
from loopd.adapters.workspace.snapshots import Snapshots
from loopd.adapters.workspace.store import EXECUTABLE, LINK, Entry, Store
from loopd.adapters.workspace.writing import FileContent, put, take_out
from loopd.domain.errors import UsageError

_SUBMODULE = "160000"


async def make_clone(git: Git, repository: Repository, folder: Path, branch: str) -> Path:
    """Clone the repository's HEAD into `folder`, on `branch`; returns where the workspace lies in it.

    A half-made clone of a crash is made anew. Nothing in the owner's repository changes. No remote stays: it
    would be a way into the owner's repository, and the path is not for the agent to know.
    """
    if not repository.head:
        raise UsageError(f"{repository.top} has no commit yet: there is nothing to clone\nCommit something first.")
    making = folder.with_name(folder.name + ".making")
    shutil.rmtree(making, ignore_errors=True)
    words = ("--no-hardlinks", "--template=", "--no-checkout", "--no-recurse-submodules", "-q")
    pack = "git -c safe.directory=* upload-pack"
    await git("clone", *words, f"--upload-pack={pack}", repository.top, making)
    inside = git.at(cwd=making)
    await inside("remote", "remove", "origin")
    await inside("update-ref", f"refs/heads/{branch}", repository.head)
    await inside("symbolic-ref", "HEAD", f"refs/heads/{branch}")
    await inside("reset", "-q", "--hard", repository.head)
    making.rename(folder)
    return folder / repository.prefix


async def uncommitted(plan: WorkspacePlan, store: Store, owners: Repository, root: Path) -> list[str]:
    """Count, or with `with_changes` take along, what the owner has not committed; what to say about it."""
    theirs = await _as_it_lies(plan, store, owners)
    head = {path: e for path, e in (await committed(store.git, owners)).items() if e.mode != _SUBMODULE}
    edited = await touched(store, owners, plan.root)
    changed = {
        path
        for path in theirs.keys() | head.keys()
        if theirs.get(path) != head.get(path)
        and (path in edited or path not in owners.tracked or owners.tracked[path] != head.get(path))
    }
    if not changed:
        return []
    if not plan.with_changes:
        return [f"{_files(len(changed))} left out (--with-changes takes them along)"]
    blobs = await store.blobs(theirs[path].blob for path in changed if path in theirs)
    for path in sorted(changed, key=lambda name: (name in theirs, name)):
        entry = theirs.get(path)
        if entry is None:
            take_out(root, path, prune=True)
        else:
            content = FileContent(blobs[entry.blob], entry.mode == EXECUTABLE, entry.mode == LINK)
            put(root, path, content, plan.state / "displaced")
    return [f"{_files(len(changed))} taken along"]


async def _as_it_lies(plan: WorkspacePlan, store: Store, owners: Repository) -> dict[str, Entry]:
    """The owner's files, the ignored ones left out."""
    rules = await baseline_rules(store.git, plan.root, owners.excludes, store.scratch)
    exclude = store.scratch / "owners-exclude"
    exclude.write_bytes(rules)
    index = store.scratch / "owners-index"
    index.unlink(missing_ok=True)
    taken = await Snapshots(store, plan.root, index, exclude).take(first=owners.tracked)
    return await store.entries(taken.tree)


def _files(count: int) -> str:
    return f"{count} uncommitted file{' is' if count == 1 else 's are'}"
