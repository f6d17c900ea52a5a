"""The commands, each imported only when it is called."""

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import Struct

from loopd.cli import lean
from loopd.cli.aside import aside
from loopd.domain.errors import UsageError
from loopd.domain.text import safe_line


class Command(Struct, frozen=True):
    """One command: a group of the help, one line about it, and `module:function`.

    With `then`, the function only reads the words, in a child, and `then` carries out what it returns: a supervisor
    keeps nothing of the libraries that read a command line. `plain` reads the commonest words of all, a single name,
    which need no library.
    """

    group: str
    about: str
    target: str
    then: str = ""
    plain: str = ""


RUN, LOOK, STEER, WRITE = "Run", "Look", "Steer", "Write contracts"
COMMANDS: Mapping[str, Command] = {
    "run": Command(
        RUN,
        "pursue a goal until every criterion holds or the budget is spent",
        "loopd.cli.run:run",
        then="loopd.cli.work:carry_out",
        plain="loopd.cli.agree:start_of",
    ),
    "resume": Command(
        RUN,
        "go on with an interrupted or reopened run",
        "loopd.cli.run:resume",
        then="loopd.cli.work:carry_out",
        plain="loopd.cli.orders:GoOn",
    ),
    "verify": Command(RUN, "check a contract's criteria now, without an agent", "loopd.cli.verify:verify"),
    "ps": Command(LOOK, "all runs, the most recently changed first", "loopd.cli.glance:glance"),
    "status": Command(LOOK, "one run on one screen", "loopd.cli.glance:glance"),
    "show": Command(LOOK, "one run in full: settings, attempts, verdicts, decisions", "loopd.cli.inspect:show"),
    "logs": Command(LOOK, "what an agent printed", "loopd.cli.inspect:logs"),
    "diff": Command(LOOK, "what an attempt changed", "loopd.cli.inspect:diff"),
    "stop": Command(STEER, "end a run for good", "loopd.cli.control:stop"),
    "extend": Command(STEER, "give a run more attempts, time, cost or tokens", "loopd.cli.control:extend"),
    "steer": Command(STEER, "put a note into the next instruction", "loopd.cli.control:steer"),
    "amend": Command(STEER, "give a run a changed contract", "loopd.cli.control:amend"),
    "apply": Command(STEER, "write the best attempt into your files", "loopd.cli.control:apply"),
    "deliver": Command(STEER, "repeat a delivery that failed", "loopd.cli.control:deliver"),
    "init": Command(WRITE, "look at a project and write a first contract", "loopd.cli.project:init"),
    "check": Command(WRITE, "find everything wrong with a contract", "loopd.cli.project:check"),
    "schema": Command(WRITE, "print the JSON Schema of contracts, for editors", "loopd.cli.project:schema"),
    "agents": Command(WRITE, "the agents that can be named in a contract", "loopd.cli.project:agents"),
    "version": Command(WRITE, "print the version", "loopd.main:main"),
}


def invoke(words: list[str], nursery: object = None, commands: Mapping[str, Command] = COMMANDS) -> int:
    """Run one command line; the exit status. `nursery` reaches the command as `typer.Context.obj`.

    What the command line says wrongly is one message and status 2, before the command begins.
    """
    name, *rest = words
    if name not in commands:
        raise UsageError(f"{_unknown(name, commands, 'command')}\nsee loopd --help")
    if {"--help", "-h"} & set(rest[: rest.index("--")] if "--" in rest else rest):
        return _help(name)
    command = commands[name]
    if not command.then:
        return _status(_called(name, command.target, rest, nursery))
    import_module("loopd.cli.orders")  # before the fork, or both would import it
    read = partial(_called, name, command.target, rest)
    if command.plain and len(rest) == 1 and not rest[0].startswith("-"):
        read = partial(_named, command.plain, rest[0])
    order = aside(read, meanwhile=partial(_function, command.then))
    _settle()
    return _status(order if isinstance(order, int) else _function(command.then)(order, nursery))


def _named(target: str, word: str) -> object:
    return _function(target)(word)


def _called(name: str, target: str, words: list[str], nursery: object = None) -> object:
    """What the function behind a command returns. Raises `UsageError` for words that are wrong."""
    import typer

    try:
        command = build(name, target)
        _settle()
        return command.main(args=words, prog_name=f"loopd {name}", standalone_mode=False, obj=nursery)
    except _bad_usage() as error:
        raise UsageError(f"{name}: {_mend(error)}\nsee loopd {name} --help") from None
    except typer.Abort:
        return 130
    except SystemExit as left:  # click's own answer to a closed pipe is 1, which means exhausted here
        if isinstance(left.__context__, BrokenPipeError):
            raise left.__context__ from None
        raise
    finally:
        sys.stdout.flush()


def _status(result: object) -> int:
    return result if isinstance(result, int) else 0


def _settle() -> None:
    """What was imported stays: the collector need not walk over it again."""
    lean.settle()
    gc.freeze()
    gc.enable()


def _bad_usage() -> type[Exception]:
    """Click's UsageError, or the copy of it that newer releases of typer carry; typer exports neither."""
    import typer

    return typer.BadParameter.__mro__[1]


def _help(name: str) -> int:
    print((Path(__file__).parent / "help" / f"{name}.txt").read_text(encoding="utf-8"), end="")
    return 0


def build(name: str, target: str) -> Any:
    """The click command of one entry, its module imported now."""
    import typer

    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(name)(_function(target))
    return typer.main.get_command(app)


def _function(target: str) -> Callable[..., Any]:
    module, _, function = target.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def _mend(error: Exception) -> str:
    """What was wrong, in one line, with the nearest thing that would be right."""
    option = getattr(error, "option_name", None)
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoSuchOption" and option and context:
        return _unknown(option, list(_options(context)), "option")
    message: str = error.format_message() if hasattr(error, "format_message") else str(error)
    return safe_line(message[:1].lower() + message[1:], 400).rstrip(".")


def _options(context: Any) -> Iterator[str]:
    for parameter in context.command.get_params(context):
        yield from (*parameter.opts, *parameter.secondary_opts)


def _unknown(word: str, known: Any, what: str) -> str:
    from difflib import get_close_matches

    options = sorted(name for name in known if what == "command" or name.startswith("-"))
    near = get_close_matches(word, options, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"there is no {what} {safe_line(word, 60)}{hint}"
