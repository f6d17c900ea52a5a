"""The runs of this user, read at the least cost: the index and each run's `status.json`, nothing else.

Importing what writes them (pathlib, dataclasses) would cost more than the whole answer. So the rules of
`adapters.state`, `adapters.liveness` and `adapters.stores.find` are told here once more; tests hold both to the
same answers, and whatever is unusual is left to the originals.
"""

import json
import os
import sqlite3

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = 1  # of the index
STATUS_FORMAT = "loopd.status/1"
_READABLE = (1, STATUS_FORMAT)  # what a file may say; a later version is refused
AT_WORK = ("ready", "running", "waiting")
_COLUMNS = ("run", "goal", "folder", "workspace", "contract", "state", "started_at", "changed_at", "pid", "pid_start")
_RUNS = f"select {', '.join(_COLUMNS)} from run order by changed_at desc, started_at desc, run"


def state_root() -> str:
    """The folder of loopd's state, as `adapters.state.locate_state` finds it."""
    environ = os.environ
    if chosen := environ.get("LOOPD_STATE"):
        return os.path.abspath(chosen)  # noqa: PTH100
    if (xdg := environ.get("XDG_STATE_HOME", "")).startswith("/"):
        return f"{xdg.rstrip('/')}/loopd"
    if (home := environ.get("HOME", "")).startswith("/"):
        return f"{home.rstrip('/')}/.local/state/loopd"
    from loopd.adapters.state import locate_state

    return str(locate_state(environ).root)  # says what is missing


def all_runs() -> "list[dict[str, Any]]":
    """Every run, the most recently changed first. Raises `StateError` when the index cannot be read."""
    root = state_root()
    index = f"{root}/loopd.db"
    if not os.path.exists(index):  # noqa: PTH110
        return _ask_the_store() if os.path.isdir(f"{root}/runs") else []  # noqa: PTH112
    try:
        connection = sqlite3.connect(index, timeout=5)
        try:
            if connection.execute("pragma user_version").fetchone()[0] != VERSION:
                return _ask_the_store()
            rows = connection.execute(_RUNS).fetchall()
        finally:
            connection.close()
    except sqlite3.Error:
        return _ask_the_store()
    return [
        {
            name: os.fsdecode(value) if isinstance(value, bytes) else value
            for name, value in zip(_COLUMNS, row, strict=True)
        }
        for row in rows
    ]


def pick(runs: "list[dict[str, Any]]", name: str) -> "dict[str, Any]":
    """The run that a person means, as `adapters.stores.find.find_run` does. Raises `UsageError`."""
    if name == "last" and runs:
        return runs[0]
    if same := [run for run in runs if run["run"] == name] or [run for run in runs if run["goal"] == name]:
        return max(same, key=lambda run: str(run["started_at"]))
    fitting = [run for run in runs if name and run["run"].startswith(name)]
    if len(fitting) == 1:
        return fitting[0]
    from loopd.adapters.stores.find import find_run

    found = find_run(tuple(map(_entry, runs)), name)  # raises, with near misses
    return next(run for run in runs if run["run"] == found.run)


def read_status(run: "dict[str, Any]") -> "dict[str, Any]":
    """What `status.json`, or without it the ledger, says of a run, corrected for a supervisor that is gone.

    Added to the shape of `domain.status`: `folder`, `started_at`, `changed_at`, `pid`, `alive`, `crashed`.
    """
    try:
        with open(f"{run['folder']}/status.json", "rb") as file:  # noqa: PTH123
            status = json.loads(file.read())
    except (OSError, ValueError):
        status = None
    if isinstance(status, dict) and status.get("format") not in _READABLE:
        from loopd.domain.errors import StateError

        raise StateError(
            f"{run['folder']}/status.json says format {status.get('format')}; this loopd reads {STATUS_FORMAT}\n"
            "use the loopd that wrote it, or a newer one"
        )
    if not isinstance(status, dict) or "budget" not in status:
        from loopd.cli.replay import status_from_ledger

        status = status_from_ledger(run)
    return _with_life(status, run)


def _with_life(status: "dict[str, Any]", run: "dict[str, Any]") -> "dict[str, Any]":
    """A run that says it is at work while no supervisor lives was interrupted by a crash or a power loss."""
    newer = {name: status.get(name, run[name]) for name in ("changed_at", "pid", "pid_start")}
    alive = is_alive(newer["pid"], newer["pid_start"])
    crashed = status["state"] in AT_WORK and not alive
    if crashed:
        status = {**status, "state": "interrupted", "reason": "crashed", "next": f"loopd resume {run['run']}"}
    more = {"format": STATUS_FORMAT, "folder": run["folder"], "started_at": run["started_at"], **newer}
    return {**status, **more, "pid": newer["pid"] if alive else 0, "alive": alive, "crashed": crashed}


def is_alive(pid: int, pid_start: int) -> bool:
    """Whether the very process that had this pid at that start time still runs."""
    if pid <= 0:
        return False
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            stat = file.read()
    except OSError:
        return False
    state, *fields = stat[stat.rindex(b")") + 1 :].split()
    return state not in (b"Z", b"X") and int(fields[18]) == pid_start


def _ask_the_store() -> "list[dict[str, Any]]":
    from pathlib import Path

    from msgspec.structs import asdict

    from loopd.adapters.state import StateFolder
    from loopd.adapters.stores.sqlite import open_store

    with open_store(StateFolder(Path(state_root()))) as store:
        entries = [asdict(entry) for entry in store.runs()]
    return [{name: _plain(entry[name]) for name in _COLUMNS} for entry in entries]


def _plain(value: object) -> object:
    return value if isinstance(value, int | str) else str(value)


def _entry(run: "dict[str, Any]") -> "Any":
    from pathlib import Path

    from loopd.ports.store import RunEntry

    paths = {name: Path(run[name]) for name in ("folder", "workspace", "contract")}
    return RunEntry(**{**run, **paths, "contract_digest": ""})
