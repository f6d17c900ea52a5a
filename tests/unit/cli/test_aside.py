"""Doing something in a forked child: its result, its errors, and its death."""

import os
import signal

import pytest

from loopd.cli.aside import ToldError, aside
from loopd.domain.errors import BlockedError, StateError


def test_the_result_comes_back_and_nothing_else_does() -> None:
    """What the child changed in its memory is not changed here."""
    seen: list[int] = []

    def compute() -> tuple[int, int]:
        seen.append(1)
        return os.getpid(), 7

    pid, value = aside(compute)
    assert (pid == os.getpid(), value, seen) == (False, 7, [])


def test_an_error_for_people_keeps_its_words_and_its_status() -> None:
    """The exit status of the command is that of the error."""

    def compute() -> None:
        raise BlockedError("no agent", "install one")

    with pytest.raises(ToldError, match="no agent\ninstall one") as told:
        aside(compute)
    assert told.value.exit_status == BlockedError.exit_status


def test_a_fault_comes_back_with_its_traceback() -> None:
    """The crash report shows where it happened."""
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        aside(lambda: 1 // 0)


def test_a_killed_child_is_an_error_and_no_result() -> None:
    """Memory may be short."""
    with pytest.raises(StateError, match="was killed"):
        aside(lambda: os.kill(os.getpid(), signal.SIGKILL))
