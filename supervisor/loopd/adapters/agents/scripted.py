"""An agent that plays edits from a file: for tests, demonstrations and the bundled goals; no model, no network.

The file is a YAML list of attempts, each a list of steps; an attempt beyond the list does nothing and says so.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from loopd.adapters.agents import scripted_player
from loopd.adapters.agents.usage import usage_from
from loopd.adapters.atomic import write_whole
from loopd.adapters.plain_file import PlainFileError, read_plain
from loopd.domain.attempt import Usage
from loopd.domain.errors import BlockedError, ContractError, Problem
from loopd.domain.quantities import parse_duration
from loopd.domain.text import safe_line, safe_text
from loopd.ports.agent import AgentEvent, Final, Launch, Order, Text, Usages

SCRIPT_BYTES = 4 * 1024 * 1024
STEPS = "steps.json"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class _Write(_Strict):
    path: str
    text: str


class _Replace(_Strict):
    path: str
    old: str = Field(min_length=1)
    new: str
    count: int = Field(1, ge=1)  # how often `old` must occur; all are replaced


class _Move(_Strict):
    from_: str = Field(alias="from")
    to: str


class _Chmod(_Strict):
    path: str
    mode: str = Field(pattern=r"^[0-7]{3,4}$")


class _Symlink(_Strict):
    path: str
    to: str


class _Spent(_Strict):
    cost_usd: float | None = Field(None, ge=0)
    tokens: int | None = Field(None, ge=0)


class Step(_Strict):
    """One thing to do; exactly one key."""

    write: _Write | None = None
    replace: _Replace | None = None
    delete: str | None = None
    copy_: _Move | None = Field(None, alias="copy")  # from a file beside the script
    rename: _Move | None = None
    mkdir: str | None = None
    chmod: _Chmod | None = None
    symlink: _Symlink | None = None
    run: list[str] | None = Field(None, min_length=1)
    print: str | None = None
    sleep: Annotated[float, BeforeValidator(parse_duration)] | None = None  # "2s"
    usage: _Spent | None = None  # one more part of the attempt's cost
    final: str | None = None
    exit: int | None = Field(None, ge=0, le=255)

    @model_validator(mode="after")
    def _one(self) -> "Step":
        if len(self.model_fields_set) != 1:
            raise ValueError("a step has exactly one key: write, replace, delete, copy, run, …")
        return self


Script = tuple[tuple[Step, ...], ...]
_SCRIPT: TypeAdapter[list[list[Step]]] = TypeAdapter(list[list[Step]])


def parse_script(data: bytes, file: str) -> Script:
    """The attempts written in `data`. Raises `ContractError` with file, line and what would be right."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        loaded = YAML(typ="rt").load(data)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise ContractError((Problem(f"no valid YAML: {error.problem}", file, line, column),)) from None
    except (YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ContractError((Problem(f"no valid YAML: {safe_line(str(error))}", file, 1, 1),)) from None
    try:
        plain = json.loads(json.dumps(loaded))
        return tuple(tuple(steps) for steps in _SCRIPT.validate_python(plain))
    except ValidationError as error:
        raise ContractError(tuple(_problem(fault, loaded, file) for fault in error.errors())) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise ContractError((Problem(f"a list of attempts is needed: {safe_line(str(error))}", file, 1, 1),)) from None


def _problem(fault: Any, loaded: Any, file: str) -> Problem:
    line, column, node = 1, 1, loaded
    for part in fault["loc"]:
        try:
            line, column = (number + 1 for number in _position(node, part))
            node = node[part]
        except (KeyError, IndexError, TypeError, AttributeError):
            break
    where = ".".join(str(part + 1) if isinstance(part, int) else str(part) for part in fault["loc"])
    return Problem(f"{where or 'script'}: {fault['msg'].removeprefix('Value error, ')}", file, line, column)


def _position(node: Any, part: object) -> tuple[int, int]:
    at: tuple[int, int] = node.lc.item(part) if isinstance(part, int) else node.lc.key(part)
    return at


class ScriptedAgent:
    """Plays the attempt with its number from the script, which is read once, when this is made.

    `copy` steps take files from beside `path`; `pinned` is a copy of the script that is read in its place.
    """

    first_signal = "SIGINT"
    name = "scripted"

    def __init__(self, path: Path, pinned: Path | None = None) -> None:
        try:
            data = read_plain((pinned or path).resolve(), SCRIPT_BYTES)
        except PlainFileError as error:
            raise ContractError((Problem(f"scripted: {path} {error}"),)) from None
        self._folder = path.resolve().parent
        self._script = parse_script(data, str(path))

    def probe(self, search_path: str) -> str:
        """The player; `search_path` plays no part, since it runs in loopd's own interpreter."""
        if not Path(sys.executable).exists():
            raise BlockedError(f"{sys.executable} is gone", f"Searched PATH: {search_path}")
        return f"{sys.executable} ({len(self._script)} scripted attempts)"

    def launch(self, order: Order) -> Launch:
        """The player with the steps of this attempt, saved in the attempt's folder. Idempotent."""
        steps = [_as_data(step, self._folder) for step in self._steps(order.attempt)]
        write_whole(order.folder / STEPS, json.dumps(steps).encode(), durable=False)
        player = scripted_player.__file__
        return Launch((sys.executable, "-I", player, str(order.folder / STEPS)), stdin=order.instruction)

    def _steps(self, attempt: int) -> tuple[Step, ...]:
        if attempt <= len(self._script):
            return self._script[attempt - 1]
        return (Step(print=f"nothing is scripted for attempt {attempt}"),)

    def reader(self, order: Order) -> "ScriptedReader":
        """A parser of the player's output."""
        return ScriptedReader()


def _as_data(step: Step, folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = step.model_dump(by_alias=True, exclude_unset=True)
    if step.copy_ is not None:
        data["copy"]["from"] = str(folder / step.copy_.from_)
    return data


class ScriptedReader:
    """Events of the player are JSON lines with its own key; everything else is text."""

    def __init__(self) -> None:
        self._spent: Usage | None = None

    @property
    def listens(self) -> bool:
        """Usage and the final event come as lines."""
        return True

    def feed(self, line: bytes) -> Iterator[AgentEvent]:
        """Usage, the end, or text."""
        event = _event(line)
        if event is None:
            if shown := safe_text(line):
                yield Text(shown)
        elif isinstance(event.get("usage"), dict) and (usage := usage_from(event["usage"])):
            self._spent = usage if self._spent is None else self._spent + usage
            yield Usages(self._spent)
        elif isinstance(event.get("final"), str):
            yield Final(safe_line(event["final"]))

    def usage(self) -> Usage | None:
        """The sum of the usage steps played; None when there was none."""
        return self._spent


def _event(line: bytes) -> dict[str, Any] | None:
    if not line.startswith(scripted_player.EVENT.encode()):
        return None
    try:
        event = json.loads(line[len(scripted_player.EVENT) :])
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None
