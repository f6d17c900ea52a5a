"""Instructions: rendered from templates that an owner may replace, saved whole before they are used.

Captured text is passed as values and never as template source. Templates come from the folders given, then
from the package; a folder that the agent can write must not be among them: hand over a pinned copy.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import fields

from loopd.adapters.atomic import write_whole
from loopd.domain.attempt import Outcome
from loopd.domain.digests import sha256_hex
from loopd.domain.errors import ContractError, Problem
from loopd.domain.feedback import Briefing, Excerpt, Failure, Failures, Left, Row, Tried, reduced
from loopd.domain.quantities import format_duration, format_money, format_tokens
from loopd.domain.text import head_and_tail, safe_line, safe_text

if TYPE_CHECKING:
    from jinja2 import Environment

FIRST_LINE = "This instruction comes from loopd, which started you and checks the work when you exit."
CAP_BYTES = 64 * 1024
INSTRUCTION = "instruction.md"
_SHIPPED = Path(__file__).parents[1] / "templates"


class Prompts:
    """The templates of one run."""

    def __init__(self, folders: Sequence[Path] = (), cap_bytes: int = CAP_BYTES) -> None:
        self._cap_bytes = cap_bytes
        self._folders = [*folders, _SHIPPED]

    @cached_property
    def _templates(self) -> "Environment":
        """Made when the first instruction is: jinja2 costs as much to import as a bare interpreter to start."""
        from jinja2 import FileSystemLoader, StrictUndefined
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        templates = ImmutableSandboxedEnvironment(
            loader=FileSystemLoader(self._folders),
            undefined=StrictUndefined,
            autoescape=False,  # the medium is an agent's prompt; fences keep data apart
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        templates.filters |= _FILTERS
        return templates

    def render(self, briefing: Briefing) -> str:
        """The instruction: loopd's own first line, then the template. Holds the objective byte for byte.

        Never longer than cap and objective together: excerpts go first, then the history, then the middle
        of what follows the objective. Raises `ContractError` when a template is wrong.
        """
        cap = self._cap_bytes + len(briefing.objective.encode())
        text = ""
        for shorter in reduced(briefing):
            text = f"{FIRST_LINE}\n\n{self._rendered(shorter)}"
            if len(text.encode()) <= cap:
                return text
        return _cut_after(text, briefing.objective, cap)

    def write(self, briefing: Briefing, folder: Path) -> tuple[Path, str]:
        """Render and save; the path of the instruction and its digest."""
        digest = save_instruction(folder, self.render(briefing))
        return folder / INSTRUCTION, digest

    def check(self) -> None:
        """Render a made-up briefing with everything in it: a wrong template is known early."""
        self.render(_EVERYTHING)

    def _rendered(self, briefing: Briefing) -> str:
        from jinja2 import TemplateError, TemplateSyntaxError

        values = {field.name: getattr(briefing, field.name) for field in fields(briefing)}
        try:
            return self._templates.get_template("instruction.md.j2").render(values)
        except TemplateSyntaxError as error:
            raise ContractError((Problem(str(error.message), error.filename or "", error.lineno, 1),)) from None
        except TemplateError as error:
            raise ContractError((Problem(f"instruction template: {error.message}"),)) from None


def _cut_after(text: str, objective: str, cap_bytes: int) -> str:
    before, found, after = text.partition(f"\n{objective}")
    if not found:
        return head_and_tail(text, cap_bytes)
    return before + found + head_and_tail(after, cap_bytes - len((before + found).encode()))


def save_instruction(folder: Path, text: str) -> str:
    """Write `instruction.md` into `folder`, whole and durable; its SHA-256 in hex."""
    data = text.encode()
    write_whole(folder / INSTRUCTION, data)
    return sha256_hex(data)


def fenced(text: str) -> str:
    """A code block that nothing inside can close."""
    fence = "`" * max(3, 1 + _longest_run(text))
    return f"{fence}text\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}"


def code(text: str) -> str:
    """One line as inline code that nothing inside can close; "" stays empty."""
    line = safe_line(text, 300)
    ticks = "`" * (1 + _longest_run(line))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}" if line else ""


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def _codes(texts: Sequence[str], most: int = 40) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(map(code, texts[:most])) + more


def _listed(texts: Sequence[str], most: int) -> str:
    more = [f"… and {len(texts) - most} more"] if len(texts) > most else []
    return fenced("\n".join([*(safe_line(text, 300) for text in texts[:most]), *more]))


def _cell(text: str) -> str:
    return safe_line(text, 400).replace("|", "\\|") or "-"


def _indented(text: str) -> str:
    return head_and_tail(safe_text(text, line_limit=0).strip(), 8_000).replace("\n", "\n  ")


def _failures(found: Failures) -> str:
    more = [f"… and {found.left_out} more"] if found.left_out else []
    return fenced("\n".join([*map(_failure, found.shown), *more]))


def _failure(failure: Failure) -> str:
    parts: Iterable[str] = (failure.criterion, failure.where, failure.message.replace("\n", "\n    "))
    return ": ".join(part for part in parts if part)


_FILTERS = {
    "cell": _cell,
    "code": code,
    "codes": _codes,
    "duration": format_duration,
    "failures": _failures,
    "fenced": fenced,
    "indented": _indented,
    "line": safe_line,
    "listed": _listed,
    "money": format_money,
    "tokens": format_tokens,
}

_EVERYTHING = Briefing(
    attempt=2,
    objective="objective",
    workspace="/workspace",
    left=Left(1, 60.0, 60.0, 60.0, 1.0, 1_000),
    criteria=(Row("tests", "run", "pass", "fail", "-", "-"),),
    references=("reference",),
    constraints=("constraint",),
    allowed=("allowed",),
    addable=("addable",),
    protected=("protected",),
    max_files=1,
    outcome=Outcome.FINISHED,
    failures=Failures((Failure("tests", "test", "message"),), 1),
    excerpts=(Excerpt("tests", "stdout", "text"),),
    changed=("changed",),
    tried=(Tried(1, ("changed",), "result"),),
    restored=("restored",),
    rejected=("rule",),
    ended=("command",),
    notes=("note",),
    lessons=("lesson",),
    rephrase=True,
)
