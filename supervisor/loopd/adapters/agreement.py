"""What a run was started with, kept in its folder: the contract as understood, its text, and the settings.

A run is only ever judged by this; the files it came from may change meanwhile. `loopd amend` replaces it.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct, field

from loopd.adapters.atomic import write_whole
from loopd.domain.budget import Allowance
from loopd.domain.contract import Goal
from loopd.domain.decision import Policy
from loopd.domain.digests import sha256_hex
from loopd.domain.errors import StateError
from loopd.domain.written import RESOLVED
from loopd.engine.run import Timers

FORMAT = 1
NAME = "agreement.json"
TEXT = "contract.yaml"
SCRIPT = "script.yaml"  # the copy of a scripted agent's file
TEMPLATES = "templates"  # the folder with copies of the owner's instruction templates


class Setting(Struct, frozen=True):
    """One effective value and where it came from, as printed before the first attempt."""

    name: str
    value: str
    source: str


class Terms(Struct, frozen=True):
    """Everything of an agreement but the goal itself."""

    contract: Path  # where it was read; named to people only
    digest: str
    root: Path  # the owner's tree
    allowance: Allowance
    policy: Policy
    timers: Timers
    search_path: str  # the PATH fixed at the start
    containment: str = "auto"
    with_changes: bool = False
    protected: tuple[str, ...] = ()  # files the contract and its criteria name, below the root
    references: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)  # "reference SPEC.md" -> sha256


class Agreement(Struct, frozen=True):
    """The goal, its text, its terms."""

    goal: Goal
    text: str
    terms: Terms
    copies: Mapping[str, str] = field(
        default_factory=dict
    )  # files of the contract's, by their name in the run's folder


def content(agreement: Agreement) -> bytes:
    """The file's bytes."""
    terms = msgspec.to_builtins(agreement.terms, enc_hook=str)  # a path is all that needs it
    goal = agreement.goal.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    whole = {"format": FORMAT, "goal": goal, "terms": terms, "text": agreement.text, "copies": dict(agreement.copies)}
    return json.dumps(whole, indent=1, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


def keep(folder: Path, agreement: Agreement) -> None:
    """Write it into the run's folder, durably. Raises `StateError`."""
    try:
        write_whole(folder / NAME, content(agreement))
        for name, text in {TEXT: agreement.text, **agreement.copies}.items():
            (folder / name).parent.mkdir(mode=0o700, exist_ok=True)
            write_whole(folder / name, text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise StateError(f"{folder / NAME} cannot be written: {error.strerror}") from error


def pins(folder: Path, agreement: Agreement) -> dict[str, str]:
    """SHA-256 of the files of an agreement as they lie there now, to notice later changes."""
    return {name: sha256_hex((folder / name).read_bytes()) for name in (NAME, TEXT, *agreement.copies)}


def recall(folder: Path) -> Agreement:
    """Read it. Raises `StateError` when it is missing, damaged, or of a newer version."""
    path = folder / NAME
    try:
        whole = json.loads(path.read_bytes().decode("utf-8", "surrogateescape"))
        if whole["format"] != FORMAT:
            raise StateError(f"{path} has format {whole['format']}; this loopd reads format {FORMAT}, use a newer one")
        goal = Goal.model_validate(whole["goal"], context=RESOLVED)
        return Agreement(
            goal,
            whole["text"],
            msgspec.convert(whole["terms"], Terms, dec_hook=lambda kind, value: kind(value)),
            whole["copies"],
        )
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}; the run cannot be resumed") from error
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise StateError(f"{path} is damaged ({type(error).__name__}); the run cannot be resumed") from error
