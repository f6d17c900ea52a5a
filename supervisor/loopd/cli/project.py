"""`loopd init`, `check`, `schema`, `agents`: before there is a run."""

import json
import os
import re
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from loopd.adapters.contract_file import Loaded, load_contract
from loopd.adapters.contract_lint import warnings
from loopd.adapters.contract_schema import schema_text
from loopd.adapters.settings import Effective, render_effective, resolve
from loopd.cli.survey import Found, survey
from loopd.cli.words import span
from loopd.domain.errors import ContractError, UsageError
from loopd.domain.text import safe_line
from loopd.ports.agent import GROUP

_TEMPLATES = Path(__file__).parents[1] / "templates"
_PLAIN = re.compile(r"[A-Za-z0-9./][\w ./,+=-]*")
_PLANNED = ("claude", "codex", "gemini", "opencode", "aider", "pi", "qwen", "gptme")


def check(
    contract: Annotated[Path, typer.Argument(metavar="CONTRACT", help="The file to read.")],
    strict: Annotated[bool, typer.Option("--strict", help="A warning is an error too.")] = False,
) -> int:
    """Find everything wrong with a contract: each problem with file, line and column, and what would be right."""
    try:
        loaded = load_contract(contract)
        effective = resolve(loaded, environ=os.environ)
    except ContractError as error:
        for problem in error.problems:
            print(safe_line(str(problem), 500))
        print(f"{_number(len(error.problems), 'problem')}; nothing would run", file=sys.stderr)
        return error.exit_status
    found = warnings(loaded)
    for warning in found:
        print(safe_line(f"{warning} (warning)", 500))
    print("\n".join(_facts(loaded, effective)))
    return 2 if strict and found else 0


def schema() -> int:
    """Print the JSON Schema of contracts, for editors."""
    print(schema_text(), end="")
    return 0


def agents() -> int:
    """List what a contract can name as its agent."""
    print("agent: {command: [PROGRAM, ARG]}   any program that reads an instruction and edits files")
    print("agent: {scripted: FILE}            edits from a file, in the place of a model")
    installed = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    for name, where in sorted(installed.items()):
        print(f"agent: {safe_line(name):<27} installed: {safe_line(where)}")
    if later := [name for name in _PLANNED if name not in installed]:
        print(f"not available by name yet, only as a command: {', '.join(later)}")
    return 0


def init(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="The project; default: this folder.", show_default=False)
    ] = Path(),
) -> int:
    """Look at a project's files and write a first contract to its goals/ folder; nothing is ever overwritten."""
    root = path.resolve()
    if not root.is_dir():
        raise UsageError(f"there is no folder {path}")
    found = survey(root)
    target = root / "goals" / f"{slug(root.name)}.yaml"
    text = contract_text(root, found)
    _write_new(target, text)
    for one in found:
        said = ", ".join(check.run for check in one.checks) or "no check of its own"
        print(safe_line(f"found {one.kind} ({one.because}): {said}", 300))
    if not found:
        print("found no project file that is known (Python, Node, Go, Rust, Make)")
    shown = _from_here(target)
    print(f"wrote {shown}\nnext: write its objective and a criterion that fails today, then loopd check {shown}")
    return 0


def contract_text(root: Path, found: tuple[Found, ...]) -> str:
    """A contract for the project at `root`, with comments that teach."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["yaml"] = _yaml
    checks = _distinct([check for one in found for check in one.checks])
    return environment.get_template("contract.yaml.j2").render(
        name=slug(root.name),
        path=f"goals/{slug(root.name)}.yaml",
        workspace="" if (root / ".git").exists() else "..",
        checks=checks,
        carry=[_yaml(name) for one in found for name in one.carry],
        setup=[one.setup for one in found if one.setup],
        example=next((one.example for one in found if one.example), "make test-new-behaviour"),
    )


def slug(name: str) -> str:
    """A goal's name from a folder's."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60].strip("-") or "goal"


def _distinct(checks: list[Any]) -> list[dict[str, str]]:
    """Two languages may both have tests: names are made different."""
    taken: set[str] = set()
    rows = []
    for one in checks:
        first_word = one.run.split()[0].rpartition("/")[2]
        name = one.name if one.name not in taken else f"{one.name}-{slug(first_word)}"
        taken.add(name)
        rows.append({"name": name, "run": one.run, "why": one.why, "report": one.report})
    return rows


def _facts(loaded: Loaded, effective: Effective) -> list[str]:
    goal, rows = effective.goal, render_effective(effective)
    wide = max(len(name) for name, _, _ in rows)
    longest = sum(criterion.runs * criterion.timeout_s for criterion in goal.criteria)
    return [
        f"{safe_line(str(loaded.path), 300)} holds: goal {goal.goal}, "
        f"{_number(len(goal.criteria), 'criterion', 'criteria')}",
        f"workspace {safe_line(str(loaded.root), 300)}",
        f"digest {loaded.digest[:16]}",
        "",
        *(safe_line(f"{one.name}: {' '.join(one.run or (str(one.use),))}") for one in goal.criteria),
        f"one verification takes at most {span(longest)} by the timeouts of its checks, twice when all of them hold",
        "",
        *(f"{name:<{wide}}  {safe_line(value, 60):<24}  {safe_line(source, 100)}" for name, value, source in rows),
    ]


def _write_new(target: Path, text: str) -> None:
    try:
        target.parent.mkdir(exist_ok=True)
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{_from_here(target)} exists already; nothing was written") from None
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}") from error


def _from_here(target: Path) -> str:
    here = Path.cwd()
    return str(target.relative_to(here) if target.is_relative_to(here) else target)


def _yaml(text: str) -> str:
    """A YAML scalar that means this very text; JSON is YAML."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _number(amount: int, one: str, many: str = "") -> str:
    return f"{amount} {one if amount == 1 else many or one + 's'}"
