"""The file a container leaves in its folder: one line each for claim, start, exit and the proof that it is empty.

Part of the lean half. The claim is linked into place whole; the lines after it are appended by the one who took it,
each by a single write. One file and not four, because a new file costs more than anything else of a launch, and
because a full disk that had room for the claim has room for the lines that follow.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

from loopd.adapters.containment.procfs import Identity

FILE = "container.ndjson"
CLAIM = "claim"
STARTED = "started"
EXIT = "exit"
CLEARED = "cleared"

Record = dict[str, Any]


def take_claim(folder: str, claim: Record) -> bool:
    """Become the only one that may launch, or void, what belongs into `folder`; False when another was first.

    link() decides, as it fails when the name exists, and it never shows half a claim. Not synced, which would
    cost a third of a launch: it has to outlive processes. A claim of the last seconds before a power failure
    may be missing; what it launched was cut short then.
    """
    private = os.path.join(folder, f".{FILE}.{os.getpid()}")
    _append(private, CLAIM, claim)
    try:
        os.link(private, os.path.join(folder, FILE))
    except FileExistsError:
        return False
    finally:
        os.unlink(private)
    return True


def add(folder: str, kind: str, record: Record) -> None:
    """Record what came after the claim; for the one who took it."""
    _append(os.path.join(folder, FILE), kind, record)


def read(folder: str) -> Mapping[str, Record] | None:
    """What is recorded, by kind; None when nobody has claimed the folder.

    A line that cannot be read (cut by a power failure) is as good as missing.
    """
    try:
        descriptor = os.open(os.path.join(folder, FILE), os.O_RDONLY)
    except OSError:
        return None
    try:
        text = os.read(descriptor, 1 << 20)
    finally:
        os.close(descriptor)
    found: dict[str, Record] = {}
    for line in text.split(b"\n"):
        try:
            ((kind, record),) = json.loads(line).items()
        except (ValueError, AttributeError):
            break
        if isinstance(record, dict):
            found[kind] = record
    return found


def withdraw(folder: str) -> None:
    """Give the claim back: the launch failed before its program ran."""
    os.unlink(os.path.join(folder, FILE))


def identity_of(value: object) -> Identity | None:
    """Read back a pair of pid and start time; None when the record has none."""
    if isinstance(value, list | tuple) and len(value) == 2:
        return Identity(int(value[0]), int(value[1]))
    return None


def _append(path: str, kind: str, record: Record) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, json.dumps({kind: record}).encode() + b"\n")
    finally:
        os.close(descriptor)
