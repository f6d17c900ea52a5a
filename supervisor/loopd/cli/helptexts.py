"""Writes `help/*.txt`, so that `--help` needs no library: `python -m loopd.cli.helptexts`. A test finds drift."""

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from textwrap import fill, wrap
from typing import Any

from loopd.cli.app import COMMANDS, build
from loopd.cli.glance import PS_FORMAT, SHOWN
from loopd.cli.index import STATUS_FORMAT

FOLDER = Path(__file__).parent / "help"
WIDTH = 80

EXITS = """\
Exit statuses
    0  met: every criterion holds          5  blocked: something is missing
    1  exhausted: the budget is spent      6  busy: a run holds the workspace
    2  usage or contract error, refused   70  loopd itself failed; loopd resume
    3  stuck: nothing is left to try     130  interrupted (Ctrl-C); loopd resume
    4  halted: tampering, repeatedly     143  terminated; or stopped, for good"""

PS = f"""\
Usage: loopd ps [--all] [--json]

All runs, the most recently changed first. A run whose supervisor is gone
without a word is shown as interrupted.

Options:
  --all   All runs; default: the newest {SHOWN}.
  --json  One JSON object, {PS_FORMAT}: total, runs.
"""

STATUS = f"""\
Usage: loopd status [RUN] [--json]

One run on one screen: state and reason, budget, criteria (now, before the first
attempt, at best), the best attempt, what needs attention, and what to do next.
A cost or a count of tokens that no agent told is said to be unknown; partial
means that an attempt was ended before its last figure, estimated that a reserve
stands for a figure that is missing.

Arguments:
  [RUN]   An id, a unique beginning of one, a goal, or last.  [default: last]

Options:
  --json  One JSON object, {STATUS_FORMAT}.
"""


FIXED = {"ps": PS, "status": STATUS, "version": "Usage: loopd version\n\nPrint the version.\n"}


def help_of(name: str) -> str:
    """What `loopd NAME --help` prints; `loopd` itself included. Raises `ImportError` when its module is missing."""
    if name == "loopd":
        return top()
    return FIXED.get(name) or of_command(name)


def top() -> str:
    """`loopd --help`."""
    lines = [
        "loopd: a supervisor for coding agents.",
        "Done is decided by evidence, never by words.",
        "",
        "Usage: loopd COMMAND [ARGUMENTS] [OPTIONS]; see loopd COMMAND --help",
    ]
    for group, names in groupby(COMMANDS, key=lambda name: COMMANDS[name].group):
        lines += ["", group, *(f"  {name:<8}  {COMMANDS[name].about}" for name in names)]
    return "\n".join([*lines, "", EXITS, ""])


def of_command(name: str) -> str:
    """`loopd NAME --help`: made from the function's own signature, so that releases of typer do not change it."""
    command = build(name, COMMANDS[name].target)
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    words = [_metavar(one) if one.required else f"[{_metavar(one)}]" for one in arguments]
    words = [f"{word}..." if one.nargs == -1 else word for word, one in zip(words, arguments, strict=True)]
    about = [fill(" ".join(part.split()), WIDTH) for part in str(command.help or "").split("\n\n")]
    rows = [("  " + _metavar(one), _told(one)) for one in arguments]
    more = [("  " + _written(one), _told(one)) for one in options]
    parts = [" ".join(["Usage: loopd", name, *words, "[OPTIONS]" if options else ""]).rstrip(), *about]
    parts += ["\n".join(["Arguments:", *_listed(rows)])] if rows else []
    parts += ["\n".join(["Options:", *_listed(more)])] if more else []
    return "\n\n".join(parts) + "\n"


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper()).strip("[]")


def _written(option: Any) -> str:
    """Such as "-f, --follow" or "--attempt N"."""
    names = ", ".join(sorted(option.opts, key=len))
    return names if option.is_flag else f"{names} {_metavar(option)}"


def _told(parameter: Any) -> str:
    default = parameter.default
    shown = parameter.show_default and default not in (None, False, True, (), []) and not callable(default)
    return f"{parameter.help or ''}" + (f"  [default: {default}]" if shown else "")


def _listed(rows: list[tuple[str, str]]) -> Iterator[str]:
    wide = min(max(len(name) for name, _ in rows), 28)
    for name, told in rows:
        lines = wrap(told, WIDTH - wide - 2) or [""]
        if len(name) > wide:
            yield name
            name = ""
        yield f"{name:<{wide}}  {lines[0]}".rstrip()
        yield from (f"{'':<{wide}}  {line}" for line in lines[1:])


def write(folder: Path = FOLDER) -> int:
    """Write all that can be written; the exit status is 1 when a command's module is missing."""
    missing = 0
    for name in ("loopd", *COMMANDS):
        try:
            text = help_of(name)
        except ImportError as error:
            print(f"{name}: {error}", file=sys.stderr)
            missing = 1
            continue
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return missing


if __name__ == "__main__":
    raise SystemExit(write())
