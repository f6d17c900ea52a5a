"""Any program as an agent: `agent: {command: [...], prompt: …, usage: …, final: …}`, no code needed.

How the instruction gets to it: by stdin (a file, always at its end), by a file whose path stands for `{prompt}` or is
the last argument, or as an argument in the same places. How its cost gets back: a JSON file or a pattern.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from loopd.adapters.agents.usage import GROUPS, PatternMeter, usage_from_json
from loopd.adapters.containment.programs import require_program
from loopd.adapters.plain_file import PlainFileError, read_plain
from loopd.domain.attempt import Usage
from loopd.domain.errors import ContractError, Problem
from loopd.domain.roles import AgentChoice
from loopd.domain.text import head_and_tail, safe_line, safe_text
from loopd.ports.agent import AgentEvent, Final, Launch, Order, Text, Usages

ARGUMENT_BYTES = 131_071  # measured: one byte more and Linux refuses to start the program
MATCHED_BYTES = 64 * 1024  # of a line; a pattern is not tried on more
USAGE_FILE_BYTES = 1024 * 1024
PROMPT = "{prompt}"
USAGE_FOLDER = "usage"  # in the attempt's folder; the agent must be able to write there


class CommandAgent:
    """One program of the owner's. `folder` is where a program named with a slash is looked up."""

    first_signal = "SIGINT"

    def __init__(self, choice: AgentChoice, folder: Path, args: Sequence[str] = ()) -> None:
        assert choice.command is not None
        self._choice = choice
        self._folder = folder
        self._command = (*choice.command, *args)
        self._pattern = _usage_pattern(choice)
        self._final = re.compile(choice.final) if choice.final else None
        self._usage_file = _usage_file(choice)

    @property
    def name(self) -> str:
        """The command as it would be typed, cut to a line."""
        return safe_line(shlex.join(self._command), 80)

    def probe(self, search_path: str) -> str:
        """Where the program is. Raises `BlockedError` with the PATH searched."""
        return str(require_program(self._command[0], search_path, cwd=self._folder))

    def launch(self, order: Order) -> Launch:
        """The command with the instruction in its place; makes the folder for the usage file. Idempotent."""
        program, *args = self.probe(order.search_path), *self._command[1:]
        env = {}
        if self._usage_file is not None:
            place = _in_folder(order, self._usage_file)
            place.parent.mkdir(parents=True, exist_ok=True)
            env["LOOPD_USAGE_FILE"] = str(place)
        if self._choice.prompt == "stdin":
            return Launch((program, *args), stdin=order.instruction, env=env)
        if not any(PROMPT in arg for arg in args):
            args.append(PROMPT)
        return Launch((program, *(self._filled(arg, order) for arg in args)), env=env)

    def _filled(self, arg: str, order: Order) -> str:
        if PROMPT not in arg:
            return arg
        if self._choice.prompt == "file":
            return arg.replace(PROMPT, str(order.instruction))
        around = len(arg.replace(PROMPT, "").encode())
        return arg.replace(PROMPT, as_argument(order.instruction, (ARGUMENT_BYTES - around) // arg.count(PROMPT)))

    def reader(self, order: Order) -> "CommandReader":
        """A new parser of this agent's output."""
        places: tuple[Path, ...] = ()
        if self._usage_file is not None:
            places = (_in_folder(order, self._usage_file), order.workspace / self._usage_file)
        return CommandReader(self._pattern, self._final, places, order.instruction)


class CommandReader:
    """Reads lines for figures and for the final one; everything else is only shown."""

    def __init__(
        self,
        pattern: re.Pattern[str] | None,
        final: re.Pattern[str] | None,
        usage_files: Iterable[Path] = (),
        instruction: Path | None = None,
    ) -> None:
        self._meter = PatternMeter(pattern) if pattern else None
        self._final = final
        self._usage_files = tuple(usage_files)
        self._instruction = instruction

    @property
    def listens(self) -> bool:
        """Only when the contract names a pattern."""
        return self._meter is not None or self._final is not None

    def feed(self, line: bytes) -> Iterator[AgentEvent]:
        """Usage when the total changed, the end when the pattern says so, and the line as safe text."""
        text = safe_text(line[:MATCHED_BYTES], line_limit=0)
        if self._meter and self._meter.feed(text) and (usage := self._meter.usage()):
            yield Usages(usage)
        if self._final and self._final.search(text):
            yield Final(safe_line(text))
        if shown := safe_text(line):
            yield Text(shown)

    def usage(self) -> Usage | None:
        """The total: from the file where one is named, else from the pattern; None when nothing was told."""
        for path in self._usage_files:
            if self._is_of_this_attempt(path) and (usage := _read(path)):
                return usage
        return self._meter.usage() if self._meter else None

    def _is_of_this_attempt(self, path: Path) -> bool:
        # A file that the attempt before left in the workspace would be charged twice.
        try:
            return not self._instruction or path.stat().st_mtime_ns >= self._instruction.stat().st_mtime_ns
        except (OSError, ValueError):
            return False


def as_argument(instruction: Path, limit_bytes: int = ARGUMENT_BYTES) -> str:
    """The instruction as one argument: without NUL, and when it is too long its ends and the path to all of it.

    Its first line is loopd's own, so it never looks like an option.
    """
    text = instruction.read_bytes().decode().replace("\0", "")
    if len(text.encode()) <= limit_bytes:
        return text
    first = text.partition("\n")[0][:200]
    start = f"{first}\nIt is too long for an argument. Read all of it in this file first: {instruction}\n"
    return start + head_and_tail(text[len(first) :].lstrip("\n"), limit_bytes - len(start.encode()))


def _in_folder(order: Order, usage_file: str) -> Path:
    return order.folder / USAGE_FOLDER / usage_file


def _read(path: Path) -> Usage | None:
    try:
        return usage_from_json(read_plain(path, USAGE_FILE_BYTES))
    except PlainFileError:
        return None


def _usage_pattern(choice: AgentChoice) -> re.Pattern[str] | None:
    if choice.usage is None or choice.usage.pattern is None:
        return None
    pattern = re.compile(choice.usage.pattern)
    if not set(GROUPS) & set(pattern.groupindex):
        raise ContractError((Problem("usage.pattern: a group named cost, tokens, cost_add or tokens_add is needed"),))
    return pattern


def _usage_file(choice: AgentChoice) -> str | None:
    if choice.usage is None or choice.usage.file is None:
        return None
    path = PurePosixPath(choice.usage.file)
    if path.is_absolute() or ".." in path.parts:
        raise ContractError((Problem("usage.file: a path relative to the workspace, without .., is needed"),))
    return choice.usage.file
