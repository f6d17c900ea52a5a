"""The ignore rules of the baseline as one file, so that no later .gitignore changes what is carried.

Order is rank: in git the last fitting pattern decides, a deeper .gitignore outranks a higher one, and those
outrank info/exclude and the user's own file.
"""

import re
from pathlib import Path, PurePosixPath

from loopd.adapters.workspace.git import Git, fields, raw, text

# Never part of a tree: an unchecked hash-based .pyc runs instead of the source beside it.
_ALWAYS = (b"__pycache__/", b"*.py[co]")


async def baseline_rules(git: Git, root: Path, outer: bytes, scratch: Path) -> bytes:
    """Compile the rules of the folder as it is now. `outer`: rules from outside it, lowest rank first.

    `git` points at a private repository; of the folder only file names and .gitignore files are read.
    """
    outer = b"\n".join((*_ALWAYS, outer, b""))
    scratch.mkdir(parents=True, exist_ok=True)
    outside = scratch / "outer-exclude"
    outside.write_bytes(outer)
    places = await _folders_with_rules(git.at(work_tree=root), outside)
    parts = [outer]
    for place in sorted(places, key=lambda folder: folder.count("/")):
        found = root / place / ".gitignore"
        if found.is_file() and not found.is_symlink():
            parts.append(anchored(found.read_bytes(), place))
    return b"\n".join(parts) + b"\n"


def anchored(rules: bytes, folder: str) -> bytes:
    """The lines of `folder`'s .gitignore as lines of the root's."""
    lines = (_anchored_line(line.rstrip(b"\r"), folder) for line in rules.split(b"\n"))
    return b"\n".join(line for line in lines if line)


def inherited(rules: bytes, prefix: str) -> bytes:
    """The lines of a .gitignore above the workspace that hold inside it; `prefix`: the way down, "a/b"."""
    lines = (_inherited_line(line.rstrip(b"\r"), raw(prefix)) for line in rules.split(b"\n"))
    return b"\n".join(line for line in lines if line)


async def _folders_with_rules(git: Git, outside: Path) -> set[str]:
    """Folders whose .gitignore git would read; one inside an ignored folder has no say."""
    rules = (f"--exclude-from={outside}", "--exclude-per-directory=.gitignore")
    seen = fields(await git("ls-files", "-z", "-o", *rules))
    nested = [path for path in seen if path.endswith(b"/")]
    hidden = fields(await git("ls-files", "-z", "-o", "-i", *rules))
    named = {path for path in (*seen, *hidden) if path.rpartition(b"/")[2] == b".gitignore"}
    named |= {path + b".gitignore" for path in nested}
    folders = {path.rpartition(b"/")[0] for path in named}
    return {text(folder) for folder in folders - await _ignored(git, outside, folders - {b""})}


async def _ignored(git: Git, outside: Path, folders: set[bytes]) -> set[bytes]:
    if not folders:
        return set()
    asked = b"".join(b"./" + folder + b"\0" for folder in sorted(folders))  # a leading ":" would be magic
    # the user's file ranks lowest, as `core.excludesFile` does
    words = ("-c", f"core.excludesFile={outside}", "check-ignore", "--no-index", "-z", "--stdin")
    return {path.removeprefix(b"./") for path in fields(await git(*words, stdin=asked, ok=(0, 1)))}


def _anchored_line(line: bytes, folder: str) -> bytes:
    negation, pattern = _parts(line)
    if not pattern or not folder or folder == ".":
        return line if pattern else b""
    home = b"/" + re.sub(rb"([\\*?\[\]!# ])", rb"\\\1", raw(str(PurePosixPath(folder))))
    if b"/" in pattern.rstrip(b"/"):
        return negation + home + b"/" + pattern.lstrip(b"/")
    return negation + home + b"/**/" + pattern


def _inherited_line(line: bytes, prefix: bytes) -> bytes:
    negation, pattern = _parts(line)
    if not pattern or b"/" not in pattern.rstrip(b"/") or pattern.startswith(b"**/"):
        return line if pattern else b""
    inside = pattern.lstrip(b"/")
    return negation + inside[len(prefix) :] if inside.startswith(prefix + b"/") else b""


def _parts(line: bytes) -> tuple[bytes, bytes]:
    if not line.strip() or line.startswith(b"#"):
        return b"", b""
    return (b"!", line[1:]) if line.startswith(b"!") else (b"", line)
