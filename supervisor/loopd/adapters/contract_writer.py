"""The contract that `loopd run "objective" --check COMMAND` means, written so that a person can read and keep it."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from loopd.adapters.atomic import write_whole
from loopd.adapters.contract_file import understand
from loopd.adapters.contract_rules import find_workspace
from loopd.adapters.contract_yaml import read_yaml
from loopd.domain.errors import ContractError, Problem, StateError, UsageError

FOLDER = "goals"
_MOST_NAMES = 1000
_UNPRINTABLE = re.compile("[^\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


class Wish(Struct, frozen=True):
    """What the command line says. Exactly one of `objective` and `prompt_file`; paths are meant from `cwd`."""

    cwd: Path
    checks: Sequence[str]
    objective: str | None = None
    prompt_file: Path | None = None
    agent: str | None = None  # a name
    command: Sequence[str] = ()  # a program instead
    name: str | None = None  # default: made from the objective


def write_contract(wish: Wish) -> tuple[Path, str]:
    """Write the contract to `goals/` of the workspace; its path and text. The same wish again gives the same file.

    An objective that YAML cannot hold byte for byte gets a file of its own beside the contract. Raises
    `UsageError` when something is missing, `ContractError` for what no contract can say, both before anything is
    written, and `StateError` when it cannot be written.
    """
    objective = _objective(wish)
    folder = find_workspace(wish.cwd.resolve() / "contract", None) / FOLDER
    name = wish.name or _name_from(objective)
    _must_hold(_composed(wish, "objective: standin", name, folder), folder)
    try:
        return _kept(wish, objective, name, folder)
    except OSError as error:
        raise StateError(f"the contract cannot be written to {folder}: {error.strerror}") from error


def _objective(wish: Wish) -> str:
    """The objective's words, wherever they are."""
    if (wish.objective is None) == (wish.prompt_file is None):
        raise UsageError('say the objective once: loopd run "OBJECTIVE" --check COMMAND, or -p FILE')
    if not wish.checks:
        raise UsageError("nothing would tell done from now: add --check COMMAND, such as --check 'pytest -q'")
    if wish.agent and wish.command:
        raise UsageError("name the agent once: --agent NAME, or -- COMMAND")
    try:
        words = wish.objective if wish.prompt_file is None else (wish.cwd / wish.prompt_file).read_bytes().decode()
        (words or "").encode()
    except UnicodeError:
        raise UsageError(f"{wish.prompt_file or 'the objective'} is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{wish.prompt_file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not words or not words.strip():
        raise UsageError("the objective is empty; say the desired end state in words")
    return words


def _name_from(objective: str) -> str:
    """A few words of the first line: `Make the flaky tests pass!` → `make-the-flaky-tests-pass`."""
    first = next((line for line in objective.splitlines() if re.search(r"[A-Za-z0-9]", line)), "goal")
    words = re.findall(r"[a-z0-9]+", first.lower())[:6]
    return "-".join(words)[:40].rstrip("-")


def _composed(wish: Wish, said: str, name: str, folder: Path) -> str:
    """The contract's text; `said` is the line or block of its objective."""
    lines = [f"goal: {_scalar(name)}", said]
    if not (folder.parent / ".git").exists():
        lines.append("workspace: ..")
    lines += ["criteria:", *(f"  - run: {_scalar(check)}" for check in wish.checks)]
    if wish.agent:
        lines.append(f"agent: {_scalar(wish.agent)}")
    if wish.command:
        words = ", ".join(_scalar(word) for word in _command(wish, folder))
        lines.append(f"agent: {{command: [{words}]}}")
    return "\n".join([*lines, ""])


def _command(wish: Wish, folder: Path) -> list[str]:
    """The agent's words; a program named by a relative path is found from the contract's folder."""
    program, *rest = wish.command
    if "/" in program and not Path(program).is_absolute():
        program = _from(folder, wish.cwd / program)
    return [program, *rest]


def _from(folder: Path, path: Path) -> str:
    relative = os.path.relpath(path, folder)
    return relative if "/" in relative else f"./{relative}"


def _written(objective: str) -> str | None:
    """The key `objective` in YAML that reads back byte for byte, as readable as can be; None when there is none."""
    forms = [] if "\n" in objective else [f"objective: {objective}"]
    forms += [_block(objective), f"objective: {_quoted(objective)}"]
    if len(objective) > 2000:
        forms.pop()  # one line of that length is nothing a person wants to read
    return next((form for form in forms if _reads_back(form, objective)), None)


def _block(objective: str) -> str:
    """A literal block that keeps every line end."""
    body = objective.rstrip("\n")
    ends = len(objective) - len(body)
    chomp = "-" if ends == 0 else "" if ends == 1 else "+"
    indent = "2" if body[:1] in (" ", "\n", "") else ""
    lines = [f"  {line}" if line else "" for line in objective.split("\n")]
    return "\n".join([f"objective: |{indent}{chomp}", *(lines if ends == 0 else lines[:-1])])


def _reads_back(form: str, objective: str) -> bool:
    try:
        document = read_yaml(f"{form}\nend: mark\n", "")
    except ContractError:
        return False
    place = document.places.get(("objective",))
    return (
        document.data == {"objective": objective, "end": "mark"}
        and not document.problems
        and not (place and place.doubt)
    )


def _scalar(text: str) -> str:
    """A text as a YAML scalar, plain where that reads back as the same text."""
    try:
        document = read_yaml(f"plain: [{text}]\n", "")
    except ContractError:
        return _quoted(text)
    same = document.data == {"plain": [text]} and not document.problems
    return text if same and not document.places["plain", 0].doubt and text == text.strip() else _quoted(text)


def _quoted(text: str) -> str:
    """A double-quoted scalar in one line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return '"' + _UNPRINTABLE.sub(lambda match: f"\\U{ord(match[0]):08X}", escaped) + '"'


def _must_hold(text: str, folder: Path) -> None:
    """Raise what is wrong with the wish, without places: the file is not there yet."""
    try:
        understand(text, folder / "contract.yaml")
    except ContractError as error:
        raise ContractError(tuple(Problem(problem.message) for problem in error.problems)) from None


def _kept(wish: Wish, objective: str, name: str, folder: Path) -> tuple[Path, str]:
    """Write under the first name that is free, or that holds the very same already."""
    folder.mkdir(exist_ok=True)
    for count in range(1, _MOST_NAMES):
        chosen = name if count == 1 else f"{name}-{count}"
        path = folder / f"{chosen}.yaml"
        files = _files(wish, objective, chosen, path)
        if all(not file.exists() or file.read_bytes() == content for file, content in files.items()):
            for file, content in files.items():
                write_whole(file, content, mode=0o644)
            return path, files[path].decode()
    raise UsageError(f"{folder} holds too many contracts named {name}; choose a name")


def _files(wish: Wish, objective: str, name: str, path: Path) -> dict[Path, bytes]:
    """What is to be written: the contract last, so that it never names a file that is not there."""
    if wish.prompt_file is not None:
        said = f"objective: {{file: {_scalar(_from(path.parent, wish.cwd / wish.prompt_file))}}}"
    elif (inside := _written(objective)) is not None:
        said = inside
    else:
        said = f"objective: {{file: {_scalar(f'{name}.md')}}}"
        beside = {path.with_suffix(".md"): objective.encode()}
        return beside | {path: _composed(wish, said, name, path.parent).encode()}
    return {path: _composed(wish, said, name, path.parent).encode()}
