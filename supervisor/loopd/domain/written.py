"""How a contract is written: the strict base of its models, and the types of its values.

What may be written short (`agent: claude`) is brought into its long form: every reader meets one form.
"""

import re
import shlex
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, Union

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from loopd.domain import quantities

T = TypeVar("T")
RESOLVED = "resolved"  # validation context of a contract that was read before: quantities are numbers already
Loc = tuple[str | int, ...]  # where a value stands: ("criteria", 0, "timeout")


class Written(BaseModel):
    """Base of everything a contract says: frozen, strict, no unknown keys, finite numbers only."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


def refusal(message: str) -> PydanticCustomError:
    """An error whose text is shown to people as it is."""
    return PydanticCustomError("contract", "{text}", {"text": message})


def short(key: str, form: Any, text: Any = str) -> BeforeValidator:
    """`text` stands for `{key: text}`; `form` (the model) and `text` (the choices) are for the schema."""
    return BeforeValidator(lambda value: {key: value} if isinstance(value, str) else value, Union[text, form])  # noqa: UP007


def _quantity(parse: Callable[[object], T]) -> BeforeValidator:
    def validate(value: Any, info: ValidationInfo) -> T:
        if info.context == RESOLVED:
            accepted: T = value
            return accepted
        try:
            return parse(value)
        except quantities.QuantityError as error:
            raise refusal(str(error)) from None

    return BeforeValidator(validate)


def _duration_or_off(value: object) -> float | None:
    return None if value == "off" else quantities.parse_duration(value)


def _schema(pattern: str, example: str, **more: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern, "examples": [example], **more})


Duration = Annotated[float, _quantity(quantities.parse_duration), _schema(quantities.DURATION_PATTERN, "30m")]
DurationOrOff = Annotated[
    float | None,
    _quantity(_duration_or_off),
    WithJsonSchema({"anyOf": [{"const": "off"}, {"type": "string", "pattern": quantities.DURATION_PATTERN}]}),
]
Money = Annotated[float, _quantity(quantities.parse_money), _schema(quantities.MONEY_PATTERN, "20 USD")]
Tokens = Annotated[
    int,
    _quantity(quantities.parse_tokens),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": quantities.TOKENS_PATTERN},
            ]
        }
    ),
]

Size = Annotated[int, _quantity(quantities.parse_size), _schema(quantities.SIZE_PATTERN, "500 MB")]

Many = Annotated[tuple[T, ...], BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)]
NOT_BLANK = r"\S"
SLUG = r"^[a-z0-9]([a-z0-9-]{0,58}[a-z0-9])?$"
NAME = r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$"
Text = Annotated[str, Field(pattern=NOT_BLANK)]
Slug = Annotated[str, Field(pattern=SLUG)]
Name = Annotated[str, Field(pattern=NAME)]


def _regex(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise refusal(f"a regular expression is needed: {error}") from None
    return value


Pattern = Annotated[Text, AfterValidator(_regex)]

# Quoted parts and escapes are skipped; what is left over is what a shell would act upon.
_QUOTED = r"""'[^']*'|\\.|"(?P<quoted>(?:[^"\\]|\\.)*)\""""
_SHELL = re.compile(_QUOTED + r"|(?P<operator>&&|\|\||[|;&<>()`\n]|\$(?:\w+|[{(]))", re.S)
_EXPANDED = re.compile(r"(?<!\\)(`|\$(?:\w+|[{(]))")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


def _shell_part(text: str) -> str | None:
    """What in `text` only a shell understands, or None."""
    for match in _SHELL.finditer(text):
        if match["operator"]:
            return match["operator"]
        if expanded := _EXPANDED.search(match["quoted"] or ""):
            return expanded[0]
    return None


def split_command(text: str) -> tuple[str, ...]:
    """The words of a command written as text. There is no shell: what only a shell understands raises."""
    if part := _shell_part(text.strip()):
        what = "a line break" if part == "\n" else f"`{part}`"
        raise refusal(f"{what} needs a shell, and commands run without one; write [sh, -c, '…'] if it is meant")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise refusal(f"the command cannot be split into words: {str(error).lower()}") from None
    if words and _ASSIGNMENT.match(words[0]):
        raise refusal(f"`{words[0]}` needs a shell; write [env, {words[0]}, …] instead")
    return tuple(words)


def _command(value: object) -> object:
    words = split_command(value) if isinstance(value, str) else value
    return tuple(words) if isinstance(words, list) else words


def _runnable(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words or not words[0].strip():
        raise refusal("a command is needed, such as: pytest -q")
    if words[0].startswith("-"):
        raise refusal(f"a command cannot begin with the option `{words[0]}`; write each command as one text")
    if any("\0" in word for word in words):
        raise refusal("a command cannot hold NUL characters")
    return words


Command = Annotated[tuple[str, ...], BeforeValidator(_command, str | list[str]), AfterValidator(_runnable)]
