"""What the user's own repository says about a folder. Read only, before any agent ran."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from loopd.adapters.workspace.git import Git, GitError, fields, text
from loopd.adapters.workspace.ignore import inherited
from loopd.adapters.workspace.store import Entry, Store, parsed_tree
from loopd.domain.digests import sha256_hex
from loopd.domain.errors import UsageError

_SUBMODULE = "160000"


class Repository(Struct, frozen=True):
    """The repository around a folder. Paths are relative to the folder."""

    top: Path  # the root of its working tree
    git_dir: Path
    prefix: str = ""  # from `top` down to the folder, "" or "a/b"
    head: str = ""  # commit id; empty on an unborn branch
    branch: str = ""  # empty when HEAD is detached
    object_format: str = "sha1"
    tracked: Mapping[str, Entry] = field(default_factory=dict)
    submodules: tuple[str, ...] = ()
    excludes: bytes = b""  # the user's own rules, info/exclude and those of folders above, lowest rank first


async def find_repository(git: Git, root: Path) -> Repository | None:
    """The repository that has files of this folder, or None. Raises `UsageError` for a bare one."""
    asked = ("--is-bare-repository", "--is-inside-git-dir", "--absolute-git-dir")
    done = await git.at(cwd=root).run("rev-parse", *asked)
    if done.status != 0:
        _refuse_broken(root, done.stderr)
        return None
    bare, inside, git_dir = done.stdout.decode(errors="surrogateescape").split("\n")[:3]
    if bare == "true" or inside == "true":
        raise UsageError(f"{root} is a bare repository or lies in one: there are no files to work on\nClone it.")
    own = git.at(cwd=root)
    top, prefix = (await own("rev-parse", "--show-toplevel", "--show-prefix")).split(b"\n")[:2]
    found = Repository(Path(text(top)), Path(git_dir), text(prefix).rstrip("/"))
    return await _with_content(own, found)


async def _with_content(own: Git, found: Repository) -> Repository | None:
    listed = await own("ls-files", "-s", "-z", "--", ".") if found.prefix else await own("ls-files", "-s", "-z")
    tracked, submodules = _tracked(listed)
    if found.prefix and not tracked and not submodules:
        return None  # a plain folder that happens to lie below somebody's repository
    head = (await own.run("rev-parse", "--verify", "-q", "HEAD^{commit}")).stdout.decode().strip()
    branch = (await own.run("symbolic-ref", "-q", "--short", "HEAD")).stdout.decode().strip()
    return Repository(
        found.top,
        found.git_dir,
        found.prefix,
        head,
        branch,
        (await own("rev-parse", "--show-object-format")).decode().strip(),
        tracked,
        submodules,
        await _excludes(own, found),
    )


async def committed(git: Git, repository: Repository) -> dict[str, Entry]:
    """The files of HEAD below the folder."""
    if not repository.head:
        return {}
    spec = f"{repository.head}:{repository.prefix}" if repository.prefix else repository.head
    done = await git.at(cwd=repository.top, git_dir=repository.git_dir).run("ls-tree", "-r", "-z", spec)
    return parsed_tree(done.stdout) if done.status == 0 else {}


def same_but_for_form(committed_form: bytes, on_disk: bytes) -> bool:
    """Whether git would commit `on_disk` as `committed_form`: other line ends, or a pointer of git-lfs."""
    if on_disk.replace(b"\r\n", b"\n") == committed_form:
        return True
    if not committed_form.startswith(b"version https://git-lfs"):
        return False
    return f"oid sha256:{sha256_hex(on_disk)}".encode() in committed_form


async def touched(store: Store, repository: Repository, root: Path) -> set[str]:
    """Tracked paths whose stat data differs from the user's index; all of them when that cannot be told.

    Asked through a copy of the index in loopd's own repository, so that no filter of the user's can run.
    """
    copy = store.scratch / "users-index"
    try:
        shutil.copy2(repository.git_dir / "index", copy)
        git = store.git.at(cwd=root, work_tree=repository.top, index=copy)
        listed = fields(await git("diff-files", "-z", "--name-only", "--relative", "--ignore-submodules=all"))
    except (OSError, GitError):
        return set(repository.tracked)
    finally:
        copy.unlink(missing_ok=True)
    return {text(path) for path in listed}


def _tracked(listed: bytes) -> tuple[dict[str, Entry], tuple[str, ...]]:
    tracked, submodules = {}, []
    for line in fields(listed):
        head, _, path = line.partition(b"\t")
        mode, blob, _ = head.decode().split(" ")
        if mode == _SUBMODULE:
            submodules.append(text(path))
        else:
            tracked[text(path)] = Entry(mode, blob)
    return tracked, tuple(sorted(submodules))


async def _excludes(own: Git, found: Repository) -> bytes:
    info = (await own("rev-parse", "--git-path", "info/exclude")).rstrip(b"\n")
    parts = [_read(await _users_file(own)), _above(_read(own.cwd / text(info)), found.prefix)]
    folder, way = found.top, found.prefix
    while way:
        parts.append(_above(_read(folder / ".gitignore"), way))
        step, _, way = way.partition("/")
        folder = folder / step
    return b"\n".join(parts)


async def _users_file(own: Git) -> Path:
    """core.excludesFile as the user's git knows it. `git config` starts nothing."""
    home = os.environ.get("HOME", "/nonexistent")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path(home, ".config"))
    users = {"HOME": home, "XDG_CONFIG_HOME": str(config), "GIT_CONFIG_NOSYSTEM": "0"}
    words = ["config", "--type=path", "--get", "core.excludesFile"]
    argv = [own.program, *words]
    env = {"PATH": own.search_path, "LC_ALL": "C", **users}
    done = await own.run_program(argv, cwd=own.cwd, env=env, stdin=None, timeout_s=own.timeout_s)
    named = text(done.stdout.rstrip(b"\n"))
    return own.cwd / named if named else config / "git" / "ignore"


def _above(rules: bytes, prefix: str) -> bytes:
    return inherited(rules, prefix) if prefix else rules


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _refuse_broken(root: Path, words: bytes) -> None:
    """A `.git` that git cannot read must not pass for a folder without git."""
    if (root / ".git").exists() and b"not a git repository" not in words:
        raise UsageError(f"git cannot read the repository at {root}: {words.decode(errors='replace').strip()}")
