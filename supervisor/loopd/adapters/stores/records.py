"""What a run folder itself knows of its run: enough to make the index anew."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, replace

from loopd.adapters.atomic import write_whole
from loopd.adapters.state import RunFolder, StateFolder
from loopd.adapters.status import read_status
from loopd.domain.errors import StateError
from loopd.ports.store import RunEntry

FORMAT = 1
_CHANGING = ("state", "changed_at", "pid", "pid_start")  # taken from status.json, which is newer, where it has them


def record_run(folder: RunFolder, entry: RunEntry) -> None:
    """Write `run.json`, durably; once, when the run is made. Raises `StateError`."""
    fields = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(entry).items()}
    content = json.dumps({"format": FORMAT, **fields}, indent=1).encode() + b"\n"
    try:
        write_whole(folder.identity, content)
    except OSError as error:
        raise StateError(f"{folder.identity} cannot be written: {error.strerror}") from error


def recorded_run(folder: RunFolder) -> RunEntry | None:
    """The entry as the run folder tells it; None when it does not tell (a folder that was never finished).

    The folder is the one asked, not the one written down: state may be moved.
    """
    try:
        fields = json.loads(folder.identity.read_bytes())
        if fields.pop("format") != FORMAT:
            return None
        entry = RunEntry(**{**fields, **_paths(fields)})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    status = read_status(folder.status) or {}
    newer: Mapping[str, Any] = {name: status[name] for name in _CHANGING if name in status}
    return replace(entry, folder=folder.root, **newer)


def recorded_runs(state: StateFolder) -> tuple[RunEntry, ...]:
    """Every run that its folder tells of."""
    try:
        names = sorted(path.name for path in state.runs.iterdir())
    except FileNotFoundError:
        return ()
    entries = (recorded_run(state.run(name)) for name in names)
    return tuple(entry for entry in entries if entry)


def _paths(fields: Mapping[str, Any]) -> dict[str, Path]:
    return {name: Path(fields[name]) for name in ("folder", "workspace", "contract")}
