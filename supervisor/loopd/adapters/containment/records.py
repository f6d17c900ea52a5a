"""The files a container leaves in its folder: `claim`, `started`, `exit`. Part of the lean half.

Each is JSON, written whole or not at all: to a private name first, then linked or renamed.
"""

import json
import os
from typing import Any

from loopd.adapters.containment.procfs import Identity

CLAIM = "claim"
STARTED = "started"
EXIT = "exit"
CLEARED = "cleared"  # what `started` is called once the container was proven empty

Record = dict[str, Any]


def take_claim(folder: str, claim: Record) -> bool:
    """Become the only one that may launch, or void, what belongs into `folder`; False when another was first.

    link() decides, as it fails when the name exists, and it never shows half a claim. Not synced, which would
    cost a third of a launch: it has to outlive processes. A claim of the last seconds before a power failure
    may be missing; what it launched was cut short then.
    """
    private = _write_private(folder, CLAIM, claim)
    try:
        os.link(private, os.path.join(folder, CLAIM))
    except FileExistsError:
        return False
    finally:
        os.unlink(private)
    return True


def write_record(folder: str, name: str, record: Record) -> None:
    """Put or replace one record by rename."""
    os.rename(_write_private(folder, name, record), os.path.join(folder, name))


def read_record(folder: str, name: str) -> Record | None:
    """The record, or None when it is not there or cannot be read (a claim cut by a power failure)."""
    try:
        with open(os.path.join(folder, name), "rb") as file:
            record = json.loads(file.read())
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def mark_cleared(folder: str) -> None:
    """Say that the container is over: its shim may hold another one from now on."""
    os.rename(os.path.join(folder, STARTED), os.path.join(folder, CLEARED))


def withdraw(folder: str) -> None:
    """Give the claim back: the launch failed before its program ran."""
    os.unlink(os.path.join(folder, CLAIM))


def identity_of(value: object) -> Identity | None:
    """Read back a pair of pid and start time; None when the record has none."""
    if isinstance(value, list | tuple) and len(value) == 2:
        return Identity(int(value[0]), int(value[1]))
    return None


def _write_private(folder: str, name: str, record: Record) -> str:
    path = os.path.join(folder, f".{name}.{os.getpid()}")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, json.dumps(record).encode() + b"\n")
    finally:
        os.close(descriptor)
    return path
