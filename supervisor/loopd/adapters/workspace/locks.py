"""Lock files that a killed agent left in its repository."""

import os
from collections.abc import Iterator
from pathlib import Path

# Held for milliseconds by a living git; a rebase or a merge in progress leaves other files, which stay.
_PLACES = ("index.lock", "HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock", "ORIG_HEAD.lock")
_EVERYTHING = "*"
_FOLDERS = ("refs", "worktrees", "modules")


def release_stale_locks(root: Path) -> tuple[str, ...]:
    """Remove lock files of git in `root` that no process has open; their paths, relative to `root`.

    To be called after the agent's process tree is empty and before anybody else works there. A lock that some
    process still has open (the owner's own git) stays. Idempotent.
    """
    git_dir = _git_dir(root)
    found = sorted(_locks(git_dir)) if git_dir else []
    if not found:
        return ()
    held = _in_use(root)
    stale = [path for path in found if not held & {_EVERYTHING, str(path.resolve())}]
    for path in stale:
        path.unlink(missing_ok=True)
    return tuple(os.path.relpath(path, root) for path in stale)


def _git_dir(root: Path) -> Path | None:
    place = root / ".git"
    if place.is_dir():
        return place
    try:
        words = place.read_text(errors="surrogateescape")
    except OSError:
        return None
    target = root / words.removeprefix("gitdir:").strip()
    return target if words.startswith("gitdir:") and target.is_dir() else None


def _locks(git_dir: Path) -> Iterator[Path]:
    for name in _PLACES:
        if (git_dir / name).is_file():
            yield git_dir / name
    for folder in _FOLDERS:
        yield from (path for path in (git_dir / folder).rglob("*.lock") if path.is_file())


def _in_use(root: Path) -> set[str]:
    """Files that processes of this machine have open, as far as we may look; everything while a git works
    here.

    git closes its lock file while an editor is open, so the descriptor alone tells too little.
    """
    found: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        found |= {target for link in _links(process / "fd") if (target := _target(link))}
        works_in = _target(process / "cwd")
        if works_in and Path(works_in).is_relative_to(root.resolve()) and _name(process) == "git":
            found.add(_EVERYTHING)
    return found


def _links(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return ""
