"""From a file to a contract: read, understood, checked, pinned; or every problem at once, in its place."""

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from msgspec import Struct
from pydantic import ValidationError

from loopd.adapters.contract_problems import Places, problems_of
from loopd.adapters.contract_rules import (
    LARGEST_TEXT,
    Pinned,
    below,
    file_faults,
    find_workspace,
    home_folder,
    pinned_files,
    read_text,
    workspace_faults,
)
from loopd.adapters.contract_yaml import Document, Place, read_yaml
from loopd.domain.availability import unavailable
from loopd.domain.consistency import inconsistencies, named
from loopd.domain.contract import Goal, digest
from loopd.domain.errors import ContractError, Problem
from loopd.domain.written import Loc

_MOST_PROBLEMS = 100
# Stand in for what is missing or wrong, so that the rest can be checked in the same go.
_STANDINS: Mapping[str, Any] = {"goal": "standin", "objective": "standin", "criteria": [{"run": "standin"}]}
_VERIFIER_LOCS: tuple[Loc, ...] = ((), ("run",), ("use",))


class Loaded(Struct, frozen=True):
    """A contract that holds. The objective's text is in `goal`, whether it was written here or in a file."""

    goal: Goal
    path: Path  # absolute
    root: Path  # the workspace, absolute, links resolved
    text: str  # as written
    digest: str
    files: tuple[Pinned, ...]
    places: Places
    overridden: frozenset[str] = frozenset()  # keys given on the command line instead

    @property
    def folder(self) -> Path:
        """Where the contract lies: its own files are found from here."""
        return self.path.parent


def load_contract(path: Path, *, overrides: Mapping[str, Any] | None = None, home: Path | None = None) -> Loaded:
    """Read, check and pin the contract at `path`.

    `overrides` are values of the command line by full key ("budget.attempts"), as YAML would have given them.
    The workspace and the files the contract is made of (objective, script, templates, sealed) are found from its
    folder, everything else from the workspace.
    Raises `ContractError` with every problem, in the order of the file. Writes nothing.
    """
    return understand(_read(path), path, overrides=overrides, home=home)


def understand(
    text: str, path: Path, *, overrides: Mapping[str, Any] | None = None, home: Path | None = None
) -> Loaded:
    """`load_contract` for a text that lies at `path`, or will."""
    document = read_yaml(text, str(path))
    data, found = _overlaid(document, overrides or {})
    places = Places(str(path), found)
    goal, problems, blamed = _understand(data, places)
    absolute = path.resolve()
    root = find_workspace(absolute, goal.workspace if goal else None)
    if goal:
        faults = _faults(goal, root, absolute.parent, home or home_folder())
        problems += [places.at_value(loc, message) for loc, message in faults if not _follows(loc, blamed)]
    problems += document.problems
    if goal is None or problems:
        raise ContractError(_sorted(problems))
    return _pin(goal, absolute, root, text, places, frozenset(overrides or {}))


def _pin(goal: Goal, path: Path, root: Path, text: str, places: Places, overridden: frozenset[str]) -> Loaded:
    """The accepted contract with its names, its objective and the hashes of its files."""
    try:
        if goal.objective.file is not None:
            words = read_text(below(path.parent, goal.objective.file))
            goal = goal.model_copy(update={"objective": goal.objective.model_copy(update={"text": words})})
        files = pinned_files(goal, root, path.parent)
    except OSError as error:
        raise ContractError(
            (Problem(f"{error.filename} cannot be read: {error.strerror}", str(path), 1, 1),)
        ) from error
    goal = named(goal)
    labels = {f"{file.kind} {file.label}": file.sha256 for file in files}
    return Loaded(goal, path, root, text, digest(goal, labels), files, places, overridden)


def _read(path: Path) -> str:
    """The text of the file. A mark at its beginning (BOM) is dropped."""
    try:
        if path.exists() and not path.is_file():
            raise _unusable(path, "is a folder; name the contract in it" if path.is_dir() else "is not a regular file")
        with path.open("rb") as file:
            raw = file.read(LARGEST_TEXT + 1)
    except (OSError, ValueError) as error:
        raise _unusable(path, _why(error)) from None
    if len(raw) > LARGEST_TEXT:
        raise _unusable(path, "is larger than 1 MiB; a contract is a short text, long ones go to files it names")
    if b"\0" in raw:
        raise _unusable(path, "is a binary file; a contract is YAML text")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{raw[error.start]:02X} is not UTF-8; save the file as UTF-8"
        raise ContractError((Problem(message, str(path), line, 1),)) from None


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    return f"cannot be read: {error.strerror}" if isinstance(error, OSError) and error.strerror else "cannot be read"


def _unusable(path: Path, why: str) -> ContractError:
    return ContractError((Problem(f"{path} {why}", str(path)),))


def _overlaid(document: Document, overrides: Mapping[str, Any]) -> tuple[dict[str, Any], dict[Loc, Place]]:
    """The data and its places, with values of the command line laid over them."""
    data, places = deepcopy(dict(document.data)), dict(document.places)
    for name, value in overrides.items():
        *parents, last = loc = tuple(name.split("."))
        below = data
        for parent in parents:
            if not isinstance(below.get(parent), dict):
                below[parent] = {}
            below = below[parent]
        below[last] = value
        for old in [old for old in places if old[: len(loc)] == loc]:
            del places[old]
        places[loc] = Place(0, 0, 0, 0, raw=str(value))
    return data, places


def _understand(data: dict[str, Any], places: Places) -> tuple[Goal | None, list[Problem], set[Loc]]:
    """The contract, and what keeps it from being one; what is wrong is left out to check the rest as well."""
    faults = list(_empty_and_doubtful(data, places))
    problems = [places.at_value(loc, message) for loc, message in faults]
    blamed = {loc for loc, _ in faults}
    data = _without_empty(data)
    for _ in range(10):  # leaving out one thing can show another
        try:
            return Goal.model_validate(data), problems, blamed
        except ValidationError as error:
            found = list(problems_of(error, places))
        problems += [problem for loc, problem in found if not _follows(loc, blamed)]
        blamed |= {loc for loc, _ in found}
        data = _without([loc for loc, _ in found], data)
    return None, problems, blamed


def _follows(loc: Loc, blamed: set[Loc]) -> bool:
    """Whether a fault may only be there because something at, in or around it was left out before."""
    return any(loc == other[: len(loc)] or other == loc[: len(other)] for other in blamed)


def _empty_and_doubtful(value: Any, places: Places, loc: Loc = (), free: bool = False) -> Iterator[tuple[Loc, str]]:
    """Empty values; and, in free parameters (`with`) where no type tells what is meant, doubtful ones."""
    place = places.place(loc)
    if value is None and not free:
        yield loc, "nothing is written here; give a value, or leave the key out"
    elif free and places.known(loc) == loc and place.doubt:
        yield loc, f"{place.doubt}; put it in quotes if text is meant"
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        yield from _empty_and_doubtful(item, places, (*loc, key), free or key == "with")


def _without_empty(value: Any) -> Any:
    """The data without keys that have no value, outside free parameters."""
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if item is not None}
        return {key: item if key == "with" else _without_empty(item) for key, item in kept.items()}
    return [_without_empty(item) for item in value if item is not None] if isinstance(value, list) else value


def _without(locs: Iterable[Loc], data: dict[str, Any]) -> dict[str, Any]:
    """The data without what is wrong; items stay in their lists, so that all places remain right."""
    pruned = deepcopy(data)
    for loc in locs:
        _leave_out(loc, pruned)
    for key, standin in _STANDINS.items():
        pruned.setdefault(key, deepcopy(standin))
    return pruned


def _leave_out(loc: Loc, data: dict[str, Any]) -> None:
    """Remove the innermost key that holds `loc`. A criterion without a verifier gets a stand-in for it."""
    below: Any = data
    cut: tuple[dict[str, Any], str] | None = None
    for depth, part in enumerate(loc):
        if isinstance(below, list) and isinstance(part, int) and part < len(below):
            if loc[:depth] == ("criteria",) and loc[depth + 1 : depth + 2] in _VERIFIER_LOCS:
                below[part] = _verified_by_standin(below[part])
                return
            below = below[part]
        elif isinstance(below, dict) and isinstance(part, str):
            cut = (below, part)
            below = below.get(part)
    if cut:
        cut[0].pop(cut[1], None)


def _verified_by_standin(criterion: Any) -> dict[str, Any]:
    rest = criterion if isinstance(criterion, dict) else {}
    return {key: value for key, value in rest.items() if key != "use"} | {"run": "standin"}


def _faults(goal: Goal, root: Path, folder: Path, home: Path | None) -> Iterator[tuple[Loc, str]]:
    """Of a contract that is well formed, stand-ins included: their names are not those that will be."""
    nameless = any(item.run == ("standin",) and not item.name for item in goal.criteria)
    yield from (fault for fault in inconsistencies(goal) if not (nameless and "needs" in fault[0]))
    yield from workspace_faults(root, home)
    if root.is_dir():
        yield from file_faults(goal, root, folder)
    for loc, _ in unavailable(goal):
        yield loc, "not available yet"


def _sorted(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """In the order of the file, each once, at most a hundred."""
    ordered = sorted(dict.fromkeys(problems), key=lambda problem: (problem.line, problem.column))
    more = len(ordered) - _MOST_PROBLEMS
    cut = (Problem(f"and {more} more problems"),) if more > 0 else ()
    return (*ordered[:_MOST_PROBLEMS], *cut)
