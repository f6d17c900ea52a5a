"""`status.json`: a run as status tools see it. Light to import, since `loopd status` must start at once."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loopd.adapters.atomic import write_whole
from loopd.adapters.state import RunFolder
from loopd.domain.errors import StateError


def publish_status(folder: RunFolder, status: Mapping[str, Any]) -> None:
    """Replace the status; a reader finds the old or the new one, whole. Raises `StateError` on a full disk.

    Not synced: it is a view, published with every change or a moment after it, and the ledger rebuilds it.
    """
    content = json.dumps({"format": 1, **status}, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    try:
        write_whole(folder.status, content, durable=False)
    except OSError as error:
        raise StateError(f"{folder.status} cannot be written: {error.strerror}") from error


def read_status(path: Path) -> dict[str, Any] | None:
    """The status at `path`; None when there is none yet, or a power loss left an empty one: the ledger knows.

    Raises `StateError` when it was written by a loopd with another format.
    """
    try:
        status = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(status, dict):
        return None
    if status.get("format") != 1:
        raise StateError(f"{path} says format {status.get('format')}; this loopd reads format 1, use a newer one")
    return status
