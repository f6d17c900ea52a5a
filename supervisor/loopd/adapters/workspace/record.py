"""What was found out before the first attempt, so that a restarted loopd need not ask the agent's tree."""

import json
import os
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from loopd.domain.errors import StateError

FORMAT = "loopd.trees/1"


class Record(Struct, frozen=True):
    """Facts of the baseline. Paths of files are relative to the workspace."""

    root: str  # where the agent works
    baseline: str  # tree id
    files: int
    tracked: tuple[str, ...] = ()  # ignored, and yet part of every tree
    submodules: tuple[str, ...] = ()
    as_committed: bool = False  # every tracked file is as HEAD has it
    kept: tuple[tuple[str, str, str], ...] = ()  # path, mode, blob of files that git commits in another form
    carried: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    top: str = ""  # of the owner's repository; empty without one
    git_dir: str = ""
    prefix: str = ""
    head: str = ""


def save(path: Path, facts: Any) -> None:
    """Write a frozen dataclass whole or not at all, on the disk when this returns."""
    whole = json.dumps({"format": FORMAT, **asdict(facts)}, ensure_ascii=True)
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w", encoding="ascii") as file:
        file.write(whole)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)


def load(path: Path) -> dict[str, Any] | None:
    """The fields, lists as tuples; None when there is no record. Raises `StateError` for another format."""
    try:
        fields = json.loads(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        return None
    except ValueError as problem:
        raise StateError(f"{path} cannot be read: {problem}") from problem
    if fields.pop("format", "") != FORMAT:
        raise StateError(f"{path} was written by another version of loopd")
    return {key: _tuples(value) for key, value in fields.items()}


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
