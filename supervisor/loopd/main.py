"""The front door: answers cheap questions at once, and forks the spawning helper before anything heavy is imported.

The cheap ones (`--version`, `--help`, `ps`, `status`) must not import the libraries the loop needs: together those
cost about 30 bare interpreter starts. Even pathlib and dataclasses, which the errors need, cost one each.
"""

import io
import os
import sys

from loopd import __version__

HELP = f"{os.path.dirname(__file__)}/cli/help"  # noqa: PTH120
LAUNCHING = frozenset({"run", "resume", "verify"})


def main(argv: list[str] | None = None) -> int:
    """Run one command line; the exit status. No traceback reaches a person."""
    words = sys.argv[1:] if argv is None else argv
    if isinstance(sys.stdout, io.TextIOWrapper):  # in a file or pipe too, a line is there when it was said
        sys.stdout.reconfigure(line_buffering=True)
    try:
        status = _cheap(words)
        return _full(words) if status is None else status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still unwritten has nobody to read it
        return 141
    except Exception as error:
        return _told(error, words)


def _cheap(words: list[str]) -> int | None:
    """Answer without the heavy libraries, or None."""
    match words:
        case ["--version" | "-V" | "version"]:
            print(f"loopd {__version__}")
            return 0
        case []:
            return _help("loopd")
        case ["--help" | "-h" | "help"]:
            return _help("loopd")
        case [command, "--help" | "-h"] if os.path.isfile(f"{HELP}/{command}.txt"):  # noqa: PTH113
            return _help(command)
        case ["ps" | "status", *_]:
            from loopd.cli.glance import glance

            return glance(words)
    return None


def _full(words: list[str]) -> int:
    import gc

    gc.disable()  # what is imported now stays; collecting in between costs as much as four bare interpreters
    nursery = None
    if words[0] in LAUNCHING:
        import signal

        from loopd.adapters.containment.nursery import fork

        nursery = fork()
        for number in (signal.SIGTERM, signal.SIGHUP):  # until the loop listens itself: leave in good order
            signal.signal(number, _leave)
    from loopd.cli import lean

    lean.prepare()
    from loopd.cli.app import invoke

    return invoke(words, nursery)


def _leave(number: int, frame: object) -> None:
    raise SystemExit(143)


def _help(name: str) -> int:
    with open(f"{HELP}/{name}.txt", encoding="utf-8") as file:  # noqa: PTH123
        print(file.read(), end="")
    return 0


def _told(error: Exception, words: list[str]) -> int:
    from loopd.domain.errors import LoopdError

    if isinstance(error, LoopdError):
        print(f"loopd: {error}", file=sys.stderr)
        return error.exit_status
    from loopd.cli.crash import report

    return report(error, words)
