"""Something done in a forked child, for its result alone.

Reading a command line and a contract needs typer, a YAML parser and the settings library for a moment; a supervisor
lives for a night. What is done aside leaves nothing in its memory.
"""

import os
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import TypeVar

from loopd.domain.errors import LoopdError, StateError

T = TypeVar("T")


class ToldError(LoopdError):
    """An error of the child's, with its words and its exit status."""

    def __init__(self, message: str, exit_status: int) -> None:
        super().__init__(message)
        self.exit_status = exit_status


def aside(compute: Callable[[], T], meanwhile: Callable[[], object] = lambda: None) -> T:
    """The result of `compute`, which must be picklable. Call it while this process has one thread.

    `meanwhile` is done here at the same time.

    A `LoopdError` comes back as `ToldError`; any other error as `RuntimeError` with the child's traceback.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(compute, writing)
    os.close(writing)
    meanwhile()
    with open(reading, "rb") as pipe:  # noqa: PTH123
        answer = pipe.read()
    os.waitpid(child, 0)
    if not answer:
        raise StateError("the command line could not be read: the process that read it was killed")
    kind, value = pickle.loads(answer)
    if kind == "told":
        raise ToldError(*value)
    if kind == "error":
        raise RuntimeError(value)
    result: T = value
    return result


def _answer(compute: Callable[[], object], writing: int) -> None:
    try:
        try:
            answer: tuple[str, object] = ("result", compute())
        except LoopdError as error:
            answer = ("told", (str(error), error.exit_status))
        except Exception:
            answer = ("error", traceback.format_exc())
        with open(writing, "wb") as pipe:
            pickle.dump(answer, pipe)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)
