"""What a contract says about the disk: its workspace, and the files it names, read and pinned."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from loopd.adapters.contract_yaml import Loc
from loopd.domain.contract import Criterion, Goal

Fault = tuple[Loc, str]
LARGEST_TEXT = 1024 * 1024  # bytes of a contract or an objective
_MOST_FILES = 2_000  # of one glob; a whole source tree is no reference


@dataclass(frozen=True, slots=True)
class Pinned:
    """A file whose content belongs to the contract."""

    kind: str  # "objective" | "reference" | "sealed" | "verifier"
    label: str  # as named in the contract: the same on every machine
    file: Path
    sha256: str


def find_workspace(contract: Path, written: str | None) -> Path:
    """The folder the agent works in: as written, else the repository, else the contract's folder."""
    if written is not None:
        return (contract.parent / Path(written).expanduser()).resolve()
    folders = (contract.parent, *contract.parent.parents)
    return next((folder for folder in folders if (folder / ".git").exists()), contract.parent)


def workspace_faults(root: Path, home: Path) -> Iterator[Fault]:
    """Why this folder cannot be a workspace."""
    loc = ("workspace",)
    if root == Path(root.anchor) or home.resolve().is_relative_to(root):
        yield loc, f"the workspace would be {root}; name a project folder, such as workspace: ./project"
    elif not root.is_dir():
        yield loc, f"there is no folder {root}"


def file_faults(goal: Goal, root: Path, contract: Path) -> Iterator[Fault]:
    """Files and folders that are named and are not there."""
    if goal.objective.file is not None:
        yield from _text_faults(("objective", "file"), goal.objective.file, root, contract)
    for index, pattern in enumerate(goal.references):
        found = len(matches(root, pattern))
        if not found:
            yield ("references", index), _absent("file", pattern, root, contract)
        elif found > _MOST_FILES:
            yield ("references", index), f"this names more than {_MOST_FILES} files; name those that matter"
    if goal.templates and not _below(root, goal.templates).is_dir():
        yield ("templates",), _absent("folder", goal.templates, root, contract)
    for loc, scripted in _scripts(goal):
        if not _below(root, scripted).is_file():
            yield loc, _absent("file", scripted, root, contract)
    for index, criterion in enumerate(goal.criteria):
        if criterion.sealed:
            yield from _sealed_faults(("criteria", index, "sealed"), criterion.sealed, root, contract)


def _scripts(goal: Goal) -> Iterator[tuple[Loc, str]]:
    if goal.agent and goal.agent.scripted:
        yield ("agent", "scripted"), goal.agent.scripted
    inner = goal.roles.executor.agent
    if inner and inner.scripted:
        yield ("roles", "executor", "agent", "scripted"), inner.scripted


def _text_faults(loc: Loc, name: str, root: Path, contract: Path) -> Iterator[Fault]:
    file = _below(root, name)
    if not file.is_file():
        yield loc, _absent("file", name, root, contract)
        return
    try:
        if file.stat().st_size > LARGEST_TEXT:
            yield loc, "the file is larger than 1 MiB; name it in references, and say the goal in words"
        elif not read_text(file).strip():
            yield loc, "the file is empty"
    except UnicodeDecodeError as error:
        yield loc, f"the file is not UTF-8 text (byte {error.start})"
    except OSError as error:
        yield loc, f"the file cannot be read: {error.strerror}"


def _sealed_faults(loc: Loc, name: str, root: Path, contract: Path) -> Iterator[Fault]:
    folder = _below(root, name).resolve()
    if not folder.is_dir():
        yield loc, _absent("folder", name, root, contract)
    elif folder.is_relative_to(root):
        yield loc, "the folder lies in the workspace, where the agent reads it; keep it outside"


def _absent(what: str, name: str, root: Path, contract: Path) -> str:
    beside = contract.parent / name
    if beside.exists() and beside.is_relative_to(root):
        return f"paths begin at the workspace {root}; write {beside.relative_to(root)}"
    return f"there is no such {what} below the workspace {root}"


def _below(root: Path, name: str) -> Path:
    try:
        return root / Path(name).expanduser()
    except RuntimeError:  # "~someone" who has no home here
        return root / name


def read_text(file: Path) -> str:
    """The file byte for byte as text: no line end is translated. Raises OSError, UnicodeDecodeError."""
    return file.read_bytes().decode("utf-8")


def matches(root: Path, pattern: str) -> list[Path]:
    """The regular files a path or glob names, sorted; `.git` is left out, and what is too many is cut."""
    target = _below(root, pattern)
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


def pinned_files(goal: Goal, root: Path) -> tuple[Pinned, ...]:
    """Every file whose content belongs to the contract, hashed. Raises OSError when one cannot be read."""
    named = [("objective", goal.objective.file, _below(root, goal.objective.file))] if goal.objective.file else []
    for pattern in goal.references:
        named += [("reference", _label(root, path), path) for path in matches(root, pattern)]
    for criterion in goal.criteria:
        named += [("verifier", name, root / name) for name in named_files(criterion, root)]
        named += [("sealed", label, path) for label, path in _sealed_files(criterion, root)]
    unique = dict.fromkeys(named)
    return tuple(Pinned(kind, label, path, _sha256(path)) for kind, label, path in unique)


def named_files(criterion: Criterion, root: Path) -> tuple[str, ...]:
    """Files of the workspace that a criterion's command names: bench.py in `python bench.py`."""
    words = [word.rpartition("=")[2] for word in criterion.run or () if "{" not in word and len(word) < 1000]
    inside = [_inside(root, word) for word in words if word and not word.startswith("-")]
    return tuple(dict.fromkeys(name for name in inside if name))


def _inside(root: Path, word: str) -> str:
    """The path of a regular file below `root`, or ""."""
    path = (root / word).resolve()
    try:
        return str(path.relative_to(root.resolve())) if path.is_relative_to(root.resolve()) and path.is_file() else ""
    except OSError:
        return ""


def _sealed_files(criterion: Criterion, root: Path) -> Iterator[tuple[str, Path]]:
    if criterion.sealed:
        folder = _below(root, criterion.sealed)
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                yield f"{criterion.sealed}/{path.relative_to(folder)}", path


def _label(root: Path, path: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
