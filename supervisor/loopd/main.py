"""The front door: answers cheap questions at once, and forks the spawning helper before anything heavy is imported.

The cheap ones (`--version`, `--help`, `ps`, `status`) must not import the libraries the loop needs: together those
cost about 30 bare interpreter starts.
"""

import sys
from pathlib import Path

from loopd import __version__
from loopd.domain.errors import LoopdError

HELP = Path(__file__).parent / "cli" / "help"
LAUNCHING = frozenset({"run", "resume", "verify"})


def main(argv: list[str] | None = None) -> int:
    """Run one command line; the exit status. No traceback reaches a person."""
    words = sys.argv[1:] if argv is None else argv
    try:
        status = _cheap(words)
        return _full(words) if status is None else status
    except LoopdError as error:
        print(f"loopd: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    except Exception as error:
        from loopd.cli.crash import report

        return report(error, words)


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
        case [command, "--help" | "-h"] if (HELP / f"{command}.txt").is_file():
            return _help(command)
        case ["ps" | "status", *_]:
            from loopd.cli.glance import glance

            return glance(words)
    return None


def _full(words: list[str]) -> int:
    nursery = None
    if words[0] in LAUNCHING:
        from loopd.adapters.containment.nursery import fork

        nursery = fork()
    from loopd.cli.app import invoke

    return invoke(words, nursery)


def _help(name: str) -> int:
    print((HELP / f"{name}.txt").read_text(encoding="utf-8"), end="")
    return 0
