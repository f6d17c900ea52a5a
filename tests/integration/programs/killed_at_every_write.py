"""Runs one loopd command again and again; each process dies by SIGKILL at a ledger write that none died at before.

usage: killed_at_every_write.py before|after KILLS WORD...

Ends with the status of the first process that ends by itself. KILLS gets one line a kill. The libraries are imported
once and every process is a fork, so that a hundred of them take seconds and not minutes.
"""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import loopd.cli.work
from loopd.adapters.ledger import FileLedger
from loopd.main import main
from loopd.ports.ledger import Event

_append = FileLedger.append
assert loopd.cli.work


def writes(ledger: FileLedger, kind: str, data: Mapping[str, Any]) -> str:
    """What an event is about: the same write of another process has the same name.

    By the number of attempts that have ended, not by the attempt's own: one that was never launched is reserved anew.
    """
    ended = sum(event.kind == "attempt.ended" for event in ledger.events())
    about = data.get("verdict", {}).get("criterion", ""), data.get("fresh", ""), data.get("adopted", "")
    number = ended if kind.startswith(("attempt.", "verdict", "decision")) else ""
    return " ".join(str(part) for part in (kind, number, *about)).strip()


def deadly(when: str, kills: Path) -> None:
    """Make `append` the last thing this process does, before or after it writes something new."""

    def append(self: FileLedger, kind: str, data: Mapping[str, Any], *, durable: bool = True) -> Event:
        name = writes(self, kind, data)
        new = name not in kills.read_text().splitlines()
        if not new:
            return _append(self, kind, data, durable=durable)
        with kills.open("a") as file:
            file.write(f"{name}\n")
        if when == "after":
            _append(self, kind, data, durable=durable)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("still alive")

    FileLedger.append = append  # type: ignore[method-assign]


def once(when: str, kills: Path, words: list[str]) -> int:
    """One process of loopd; its status as `os.wait` gives it."""
    pid = os.fork()
    if pid == 0:
        deadly(when, kills)
        os._exit(main(words))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    chosen, place, *command = sys.argv[1:]
    Path(place).touch()
    status = -signal.SIGKILL
    while status == -signal.SIGKILL:
        status = once(chosen, Path(place), command)
    sys.exit(status)
