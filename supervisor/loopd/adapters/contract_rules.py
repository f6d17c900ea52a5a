"""What a contract says about the disk: its workspace, and the files it names, read and pinned."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from msgspec import Struct

from loopd.domain.contract import Criterion, Goal
from loopd.domain.digests import sha256_of
from loopd.domain.scope import files_named_by, only_inspects
from loopd.domain.written import Loc
from loopd.ports.agent import GROUP

Fault = tuple[Loc, str]
LARGEST_TEXT = 1024 * 1024  # bytes of a contract or an objective
_MOST_FILES = 2_000  # of one glob; a whole source tree is no reference


class Pinned(Struct, frozen=True):
    """A file whose content belongs to the contract."""

    kind: str  # "objective" | "reference" | "sealed" | "verifier"
    label: str  # as named in the contract: the same on every machine
    file: Path
    sha256: str


def find_workspace(contract: Path, written: str | None) -> Path:
    """The folder the agent works in: as written, else the repository, else the contract's folder."""
    if written is not None:
        return Path(os.path.realpath(below(contract.parent, written)))
    folders = (contract.parent, *contract.parent.parents)
    return next((folder for folder in folders if (folder / ".git").exists()), contract.parent)


def home_folder() -> Path | None:
    """The user's HOME; None where there is none: a user id without a name, a relative HOME."""
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home if home.is_absolute() else None


def workspace_faults(root: Path, home: Path | None) -> Iterator[Fault]:
    """Why this folder cannot be a workspace."""
    loc = ("workspace",)
    if root == Path(root.anchor) or (home and home.resolve().is_relative_to(root)):
        yield loc, f"the workspace would be {root}; name a project folder, such as workspace: ./project"
    elif not root.is_dir():
        yield loc, f"there is no folder {root}"


def file_faults(goal: Goal, root: Path, folder: Path) -> Iterator[Fault]:
    """Files and folders that are named and are not there.

    What the contract itself is made of (objective, script of an agent, templates, sealed folders) lies beside it:
    those paths begin at `folder`. References and everything about the tree begin at the workspace `root`.
    """
    if goal.objective.file is not None:
        yield from _text_faults(("objective", "file"), below(folder, goal.objective.file))
    for index, pattern in enumerate(goal.references):
        found = len(matches(root, pattern))
        if not found:
            yield ("references", index), f"there is no such file below the workspace {root}"
        elif found > _MOST_FILES:
            yield ("references", index), f"this names more than {_MOST_FILES} files; name those that matter"
    if goal.templates and not below(folder, goal.templates).is_dir():
        yield ("templates",), f"there is no folder {below(folder, goal.templates)}"
    yield from _agent_faults(goal, folder)
    for index, criterion in enumerate(goal.criteria):
        if criterion.sealed:
            yield from _sealed_faults(("criteria", index, "sealed"), below(folder, criterion.sealed), root)


def _agent_faults(goal: Goal, folder: Path) -> Iterator[Fault]:
    loc: Loc = ("agent",) if goal.agent else ("roles", "executor", "agent")
    agent = goal.executor.agent
    if agent and agent.scripted and not below(folder, agent.scripted).is_file():
        yield (*loc, "scripted"), f"there is no file {below(folder, agent.scripted)}"
    if agent and agent.name and agent.name not in _installed_agents():
        yield (*loc, "name"), f"not available yet; any program works: agent: {{command: [{agent.name}, …]}}"


def _installed_agents() -> set[str]:
    from importlib.metadata import entry_points

    return {entry.name for entry in entry_points(group=GROUP)}


def _text_faults(loc: Loc, file: Path) -> Iterator[Fault]:
    try:
        if not file.is_file():
            yield loc, f"there is no file {file}"
        elif file.stat().st_size > LARGEST_TEXT:
            yield loc, "the file is larger than 1 MiB; name it in references, and say the goal in words"
        elif not read_text(file).strip():
            yield loc, "the file is empty"
    except UnicodeDecodeError as error:
        yield loc, f"the file is not UTF-8 text (byte {error.start})"
    except (OSError, ValueError) as error:
        yield loc, f"the file cannot be read: {getattr(error, 'strerror', None) or error}"


def _sealed_faults(loc: Loc, folder: Path, root: Path) -> Iterator[Fault]:
    if not folder.is_dir():
        yield loc, f"there is no folder {folder}"
    elif folder.resolve().is_relative_to(root):
        yield loc, "the folder lies in the workspace, where the agent reads it; keep it outside"


def below(folder: Path, name: str) -> Path:
    """The path a contract means by `name`: from `folder`, from the home for `~/`, or absolute."""
    try:
        return folder / Path(name).expanduser()
    except RuntimeError:  # "~someone" who has no home here
        return folder / name


def read_text(file: Path) -> str:
    """The file byte for byte as text: no line end is translated. Raises OSError, UnicodeDecodeError."""
    return file.read_bytes().decode("utf-8")


def matches(root: Path, pattern: str) -> list[Path]:
    """The regular files a path or glob names, sorted; `.git` is left out, and what is too many is cut."""
    target = below(root, pattern)
    if target.is_file():
        return [target]
    base, glob = root, pattern
    if target.is_absolute() and not target.is_relative_to(root):
        base, glob = Path(target.anchor), str(target.relative_to(target.anchor))
    try:
        files = (path for path in base.glob(glob) if path.is_file() and ".git" not in path.parts)
        return sorted(islice(files, _MOST_FILES + 1))
    except (ValueError, NotImplementedError, OSError, IndexError):  # a pattern that pathlib refuses
        return []


def pinned_files(goal: Goal, root: Path, folder: Path) -> tuple[Pinned, ...]:
    """Every file whose content belongs to the contract, hashed. Raises OSError when one cannot be read."""
    words = goal.objective.file
    named = [("objective", words, below(folder, words))] if words else []
    for pattern in goal.references:
        named += [("reference", _label(root, path), path) for path in matches(root, pattern)]
    for criterion in goal.criteria:
        named += [("verifier", name, root / name) for name in named_files(criterion, root)]
        named += [("sealed", label, path) for label, path in _sealed_files(criterion, folder)]
    unique = dict.fromkeys(named)
    return tuple(Pinned(kind, label, path, _sha256(path)) for kind, label, path in unique)


def named_files(criterion: Criterion, root: Path) -> tuple[str, ...]:
    """Files of the workspace that a criterion's command runs: bench.py in `python bench.py`, the Makefile of `make`.

    What a command like `grep` or `test` looks at is the agent's work, and none of the check's own files.
    """
    argv = criterion.run or ()
    if only_inspects(argv):
        return ()
    words = [word.rpartition("=")[2] for word in argv if "{" not in word and len(word) < 1000]
    inside = [_inside(root, word) for word in (*words, *files_named_by(argv)) if word and not word.startswith("-")]
    return tuple(dict.fromkeys(name for name in inside if name))


def _inside(root: Path, word: str) -> str:
    """The path of a regular file below `root`, or ""."""
    try:
        path = (root / word).resolve()
        return str(path.relative_to(root.resolve())) if path.is_relative_to(root.resolve()) and path.is_file() else ""
    except (OSError, RuntimeError):  # a name that is too long, links in a circle
        return ""


def _sealed_files(criterion: Criterion, folder: Path) -> Iterator[tuple[str, Path]]:
    if criterion.sealed:
        sealed = below(folder, criterion.sealed)
        for path in sorted(sealed.rglob("*")):
            if path.is_file():
                yield f"{criterion.sealed}/{path.relative_to(sealed)}", path


def _label(root: Path, path: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return sha256_of(file)
    except OSError as error:  # one raised while reading does not name the file
        raise OSError(error.errno, error.strerror, str(path)) from error
