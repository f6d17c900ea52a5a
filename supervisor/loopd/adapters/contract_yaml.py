"""YAML text as plain data, with the place of every value, and nothing guessed.

The events of ruamel.yaml's parser are read one by one: that keeps line and column, shows duplicate keys with
both lines, and stops early on a file built to be expensive. Scalars are resolved here, since readers differ:
what YAML 1.1 and 1.2 read differently (`no`, `0755`, `1:30`) stays text and is marked as doubtful.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field
from ruamel.yaml import YAML
from ruamel.yaml import events as yaml_events
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.reader import ReaderError

from loopd.domain.errors import ContractError, Problem
from loopd.domain.written import Loc

# Measured: 300,000 nested "[" keep the parser busy for minutes, and 200 KB of text in one block take 0.1 s.
_DEEPEST = 40
_MOST_VALUES = 20_000
_MOST_PROBLEMS = 100

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?((0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_OLD_BOOLEAN = re.compile(r"y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF")
_OCTAL = re.compile(r"[-+]?0[0-9_]+")
_CLOCK = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_OTHER_NUMBER = re.compile(r"[-+]?(0[xo][0-9a-fA-F_]+|0b[01_]+|[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?)")


class Place(Struct, frozen=True):
    """Where a value stands (both 1-based, 0 when not in the file) and how it was written."""

    line: int
    column: int
    key_line: int
    key_column: int
    raw: str = ""  # of a scalar, quotes included
    empty: bool = False  # `key:` with nothing behind it, or null
    doubt: str = ""  # why readers of YAML would not agree on it


class Document(Struct, frozen=True):
    """A whole file. Empty values are None in `data`; problems are in the order of the file."""

    data: Mapping[str, Any]
    places: Mapping[Loc, Place]
    problems: tuple[Problem, ...]


class _Open(Struct):
    """A mapping or list whose end has not been read yet."""

    loc: Loc
    value: Any
    key: str | None = None
    key_event: yaml_events.Event | None = None
    twice: bool = False


class _Builder(Struct):
    file: str
    places: dict[Loc, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    stack: list[_Open] = field(default_factory=list)
    root: Any = None
    values: int = 0

    def problem(self, event: Any, message: str) -> None:
        mark = event.start_mark
        self.problems.append(Problem(message, self.file, mark.line + 1, mark.column + 1))
        if len(self.problems) >= _MOST_PROBLEMS:
            raise ContractError((*self.problems, Problem("the rest was not read")))

    def stop(self, event: Any, message: str) -> None:
        self.problem(event, message)
        raise ContractError(tuple(self.problems))

    def scalar(self, event: Any) -> None:
        if not event.value.isascii() and any("\ud800" <= char <= "\udfff" for char in event.value):
            self.stop(event, "an escape here is half a character; write \\U and eight digits")
        if "\0" in event.value:
            self.stop(event, "a text cannot hold NUL characters")
        top = self.stack[-1] if self.stack else None
        if isinstance(top, _Open) and isinstance(top.value, dict) and top.key is None:
            self.name_key(top, event)
            return
        value, doubt = _resolve(event)
        self.attach(event, value, raw=_as_written(event), empty=value is None, doubt=doubt)

    def name_key(self, top: _Open, event: Any) -> None:
        top.key, top.key_event = event.value, event
        top.twice = event.value in top.value
        if top.twice:
            first = self.places[(*top.loc, event.value)].key_line
            name = dotted((*top.loc, event.value))
            self.problem(event, f"{name} is given twice: in line {first} and in line {event.start_mark.line + 1}")

    def attach(self, event: Any, value: Any, **place: Any) -> Loc:
        """Put a value where it belongs; the second value of a key given twice is read and dropped."""
        self.values += 1
        if self.values > _MOST_VALUES:
            self.stop(event, f"more than {_MOST_VALUES} values: this is no contract")
        top = self.stack[-1] if self.stack else None
        loc: Loc = ()
        if top is None:
            self.root, key = value, event
        elif isinstance(top.value, list):
            loc, key = (*top.loc, len(top.value)), event
            top.value.append(value)
        else:
            loc, key = (*top.loc, str(top.key)), top.key_event
            if top.twice:
                loc = (*loc, "(again)")
            else:
                top.value[top.key] = value
            top.key = None
        marks = (event.start_mark.line, event.start_mark.column, key.start_mark.line, key.start_mark.column)
        self.places[loc] = Place(*(mark + 1 for mark in marks), **place)
        return loc

    def open(self, event: Any, value: Any) -> None:
        top = self.stack[-1] if self.stack else None
        if top and isinstance(top.value, dict) and top.key is None:
            self.stop(event, "a key must be a plain word")
        if len(self.stack) >= _DEEPEST:
            self.stop(event, f"nested more than {_DEEPEST} levels deep: this is no contract")
        loc = self.attach(event, value)
        self.stack.append(_Open(loc, value))


def read_yaml(text: str, file: str) -> Document:
    """Parse one document whose root is a mapping.

    Raises `ContractError` when the text cannot be read to its end; faults that leave the rest readable are in
    the `problems` of the result.
    """
    builder = _Builder(file)
    for event in _events(text, builder):
        _take(builder, event)
    if not isinstance(builder.root, dict):
        found = "nothing" if builder.root is None else "a list" if isinstance(builder.root, list) else "plain text"
        raise ContractError((*builder.problems, Problem(_needed(found), file, 1, 1)))
    return Document(builder.root, builder.places, tuple(builder.problems))


def dotted(loc: Loc) -> str:
    """The full name of a value: `criteria[0].timeout`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc if part != "(again)"]
    return "".join(parts).removeprefix(".")


def _needed(found: str) -> str:
    return f"{found} is written here; a contract is a mapping that begins with `goal: NAME`"


def _take(builder: _Builder, event: Any) -> None:
    if getattr(event, "tag", None) is not None:
        builder.problem(event, f"tags such as {str(event.tag)[:60]} are not used; write the value without it")
    match event:
        case yaml_events.ScalarEvent():
            builder.scalar(event)
        case yaml_events.MappingStartEvent():
            builder.open(event, {})
        case yaml_events.SequenceStartEvent():
            builder.open(event, [])
        case yaml_events.MappingEndEvent() | yaml_events.SequenceEndEvent():
            builder.stack.pop()
        case yaml_events.AliasEvent():
            builder.stop(event, "anchors and aliases are not used; write the value again")
        case yaml_events.DocumentStartEvent() if builder.root is not None:
            builder.stop(event, "a second document begins here; a contract is one")
        case yaml_events.DocumentStartEvent() if event.version or event.tags:
            builder.stop(event, "% directives are not used; remove the lines that begin with %")
        case _:
            pass


def _events(text: str, builder: _Builder) -> Iterator[Any]:
    """The parser's events; what it cannot read becomes a `ContractError`."""
    at = (1, 1)
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            at = (event.start_mark.line + 1, event.start_mark.column + 1)
            yield event
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else at
        problem = Problem(_plainly(error), builder.file, line, column)
    except ReaderError as error:
        before = text[: error.position]
        at = (before.count("\n") + 1, len(before) - before.rfind("\n"))
        problem = Problem(f"the character U+{ord(text[error.position]):04X} cannot stand in YAML", builder.file, *at)
    except (ValueError, OverflowError):  # an escape beyond Unicode, "\UFFFFFFFF": the parser lets it through
        problem = Problem("an escape after this place is no character", builder.file, *at)
    else:
        return
    raise ContractError((*builder.problems, problem))


def _plainly(error: MarkedYAMLError) -> str:
    """The parser's complaint, with the mend for those that people meet."""
    problem = str(error.problem or "the text cannot be read")
    if "'\\t'" in problem:
        return "a tab stands where YAML needs spaces"
    if "mapping values are not allowed" in problem:
        return "`: ` makes a mapping here; put the text in quotes, or write it as a block (key: |)"
    if "expected ',' or" in problem:
        return f"{problem}; a text with [ ] {{ }} or a comma inside a [list] must be in quotes"
    return f"this is not YAML: {error.context}, {problem}" if error.context else f"this is not YAML: {problem}"


def _as_written(event: Any) -> str:
    """A scalar as it stands in the file, at most 60 characters of one line."""
    quote = event.style if event.style in ("'", '"') else ""
    text = str(event.value).split("\n", 1)[0]
    shown = text if len(text) <= 60 and text == event.value else text[:57] + "…"
    return f"{quote}{shown}{quote}"


def _resolve(event: Any) -> tuple[Any, str]:
    """The value of a scalar, and why readers would not agree on it ("" when they do)."""
    text = event.value
    if event.style or event.tag:
        return text, ""
    if text in _NULLS:
        return None, ""
    if text in _BOOLEANS:
        return _BOOLEANS[text], ""
    if _INTEGER.fullmatch(text) and len(text) <= 300:
        return int(text), ""
    if _FLOAT.fullmatch(text) or _NOT_FINITE.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan")), ""
    return text, _doubt(text)


def _doubt(text: str) -> str:
    if _OLD_BOOLEAN.fullmatch(text):
        return f"got a boolean: `{text}` is one to many readers of YAML, and text to others"
    if _OCTAL.fullmatch(text):
        return f"`{text}` is decimal to some readers of YAML and octal to others"
    if _CLOCK.fullmatch(text):
        return f"`{text}` is text to some readers of YAML and a number to base 60 to others"
    if _OTHER_NUMBER.fullmatch(text):
        return f"`{text}` is a number to some readers of YAML and text to others"
    return ""
