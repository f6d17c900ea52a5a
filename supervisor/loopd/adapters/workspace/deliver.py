"""One commit of a proven tree in the owner's repository: nothing is checked out, no hook runs."""

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from loopd.adapters.workspace.git import Git, raw
from loopd.adapters.workspace.store import Entry, Store, index_info, parsed_tree
from loopd.domain.errors import UsageError
from loopd.ports.workspace import TreeId

_FALLBACK = {"name": "loopd", "email": "loopd@localhost"}


class Base(Struct, frozen=True):
    """What the commit is put on."""

    top: Path
    git_dir: Path
    prefix: str
    head: str  # empty: the commit has no parent
    kept: Mapping[str, Entry]  # files on the disk whose committed form is another one
    submodules: tuple[str, ...] = ()


async def commit_tree(git: Git, store: Store, base: Base, tree: TreeId, branch: str, message: str) -> str:
    """Commit `tree` on `branch`; its id. Idempotent; `UsageError` when the branch holds something else."""
    theirs = git.at(cwd=base.top, git_dir=base.git_dir)
    wanted = await _tree_of_commit(theirs, store, base, tree)
    ref = f"refs/heads/{branch}"
    if (await theirs.run("check-ref-format", ref)).status:
        raise UsageError(f"{branch!r} is no name for a branch")
    parents = ["-p", base.head] if base.head else []
    existing = (await theirs.run("rev-parse", "-q", "--verify", f"{ref}^{{commit}}")).stdout.decode().strip()
    if existing:
        return await _same_or_refuse(theirs, existing, (wanted, base.head, message), branch)
    who = await _identity(git, base)
    commit = (await theirs("commit-tree", wanted, *parents, stdin=_lines(message), env=who)).decode().strip()
    await _verify(git, store, base, commit)
    await theirs("update-ref", "-m", "loopd: delivered", ref, commit, store.zero)
    return commit


async def _tree_of_commit(theirs: Git, store: Store, base: Base, tree: TreeId) -> TreeId:
    """The base commit's tree with every file of `tree`; what the run left alone stays as it was committed."""
    old = await _committed(theirs, base)
    new = await store.entries(tree)
    changes: dict[str, Entry | None] = {}
    for path in old.keys() | new.keys():
        untouched = path in base.kept and new.get(path) == base.kept[path]
        inside = any(path.startswith(folder + "/") for folder in base.submodules)
        if not untouched and not inside and old.get(path) != new.get(path):
            changes[path] = new.get(path)
    await _transfer(theirs, store, {entry.blob for entry in changes.values() if entry})
    ended = await _with_committed_line_ends(theirs, store, base, {p: e for p, e in changes.items() if e})
    return await _written(theirs, store, base, {**changes, **ended})


async def _with_committed_line_ends(
    theirs: Git, store: Store, base: Base, changes: Mapping[str, Entry]
) -> dict[str, Entry]:
    """Of the changed files, those that git had converted for the disk, converted back."""
    converted = [path for path in changes if path in base.kept]
    blobs = await store.blobs(side[path].blob for path in converted for side in (changes, base.kept))
    found = {}
    for path in converted:
        if b"\r\n" in blobs[base.kept[path].blob]:
            data = blobs[changes[path].blob].replace(b"\r\n", b"\n")
            blob = await theirs("hash-object", "-w", "--no-filters", "--stdin", stdin=data)
            found[path] = Entry(changes[path].mode, blob.decode().strip())
    return found


async def _committed(theirs: Git, base: Base) -> dict[str, Entry]:
    if not base.head:
        return {}
    spec = f"{base.head}:{base.prefix}" if base.prefix else base.head
    listing = await theirs.run("ls-tree", "-r", "-z", spec)
    found = parsed_tree(listing.stdout) if listing.status == 0 else {}
    return {path: entry for path, entry in found.items() if entry.mode != "160000"}


async def _transfer(theirs: Git, store: Store, blobs: set[str]) -> None:
    """Copy blobs into the owner's repository; git recomputes every hash on the way in."""
    if not blobs:
        return
    names = "".join(f"{blob}\n" for blob in sorted(blobs)).encode()
    pack = await store.git("pack-objects", "--stdout", "-q", stdin=names)
    await theirs("unpack-objects", "-q", stdin=pack)


async def _written(theirs: Git, store: Store, base: Base, changes: Mapping[str, Entry | None]) -> TreeId:
    home = base.prefix + "/" if base.prefix else ""
    placed = {home + path: entry for path, entry in changes.items()}
    async with store.scratch_index() as scratch:
        git = theirs.at(index=scratch.index)
        await git("read-tree", base.head or "--empty")
        await git("update-index", "-z", "--replace", "--index-info", stdin=index_info(placed, store.zero))
        return (await git("write-tree")).decode().strip()


async def _verify(git: Git, store: Store, base: Base, commit: str) -> None:
    """Fetch the commit into an empty repository, which recomputes every hash.

    The owner's object store can be written by the agent: an object it put there under the id of a proven file
    would be taken for that file, and nothing but this would notice.
    """
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(dir=store.scratch, prefix="proof-") as folder:
        await git("init", "-q", "--bare", "--template=", f"--object-format={store.object_format}", folder)
        inside = git.at(cwd=Path(folder), git_dir=Path(folder))
        pack = "git -c safe.directory=* -c uploadpack.allowAnySHA1InWant=true upload-pack"
        words = ("fetch", "-q", "--depth=1", "--no-tags", "--update-shallow", f"--upload-pack={pack}")
        done = await inside.run(*words, str(base.top), commit)
    if done.status:
        raise UsageError(
            f"the repository at {base.top} holds objects that are not what their names say:\n"
            f"{done.stderr.decode(errors='backslashreplace').strip()}\n"
            "Find them with `git fsck --full`, remove those files, and deliver again."
        )


async def _same_or_refuse(theirs: Git, existing: str, wanted: tuple[str, str, str], branch: str) -> str:
    tree, parent, message = wanted
    found = (await theirs("show", "-s", "--format=%T%n%P%n%B", existing)).split(b"\n", 2)
    if [found[0].decode(), found[1].decode()] == [tree, parent] and found[2].strip() == raw(message).strip():
        return existing
    raise UsageError(
        f"the branch {branch} exists and holds something else ({existing[:12]})\n"
        f"Rename or delete it (git branch -m {branch} OTHER), then deliver again."
    )


async def _identity(git: Git, base: Base) -> dict[str, str]:
    """The owner's name and address as their own git knows them, else loopd's."""
    found: dict[str, str] = {}
    passed = {name: os.environ[name] for name in ("HOME", "XDG_CONFIG_HOME") if name in os.environ}
    env = {"PATH": git.search_path, "LC_ALL": "C", **passed}
    for key in ("name", "email"):
        argv = [git.program, "config", "--get", f"user.{key}"]
        done = await git.run_program(argv, cwd=base.top, env=env, stdin=None, timeout_s=git.timeout_s)
        value = done.stdout.decode(errors="replace").strip() or _FALLBACK[key]
        found |= {f"GIT_{role}_{key.upper()}": value for role in ("AUTHOR", "COMMITTER")}
    return found


def _lines(message: str) -> bytes:
    return raw(message.rstrip("\n") + "\n")
