"""Plays the steps of one scripted attempt; a program of its own, started like any agent, standard library only.

This is the agent's side of the boundary, not loopd: it may start processes and may fail.
"""

import json
import os
import shutil
import subprocess  # noqa: TID251  # the agent itself runs commands
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

EVENT = "loopd-scripted: "  # begins a line that tells loopd something
FAILED = 3  # exit status when a step cannot be played


def _say(event: dict[str, Any]) -> None:
    print(EVENT + json.dumps(event), flush=True)


def _made(path: str) -> Path:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return Path(path)


def _write(step: dict[str, str]) -> None:
    _made(step["path"]).write_bytes(step["text"].encode())


def _replace(step: dict[str, Any]) -> None:
    path, count = Path(step["path"]), step.get("count", 1)
    text = path.read_bytes().decode()
    if text.count(step["old"]) != count:
        raise ValueError(f"{step['old']!r} stands {text.count(step['old'])} times in {path}, not {count}")
    path.write_bytes(text.replace(step["old"], step["new"]).encode())


def _delete(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
        shutil.rmtree(path)
    else:
        Path(path).unlink()


def _copy(step: dict[str, str]) -> None:
    if Path(step["from"]).is_dir():
        shutil.copytree(step["from"], step["to"], symlinks=True, dirs_exist_ok=True)
    else:
        shutil.copy(step["from"], _made(step["to"]))


def _rename(step: dict[str, str]) -> None:
    Path(step["from"]).rename(_made(step["to"]))


def _run(argv: list[str]) -> None:
    status = subprocess.run(argv, check=False).returncode
    if status:
        print(f"{argv[0]}: exit {status}", flush=True)


_PLAYERS: dict[str, Callable[[Any], None]] = {
    "write": _write,
    "replace": _replace,
    "delete": _delete,
    "copy": _copy,
    "rename": _rename,
    "mkdir": lambda path: Path(path).mkdir(parents=True, exist_ok=True),
    "chmod": lambda step: Path(step["path"]).chmod(int(step["mode"], 8)),
    "symlink": lambda step: _made(step["path"]).symlink_to(step["to"]),
    "run": _run,
    "print": lambda text: print(text, flush=True),
    "sleep": time.sleep,
    "usage": lambda spent: _say({"usage": spent}),
    "final": lambda text: _say({"final": text}),
    "exit": sys.exit,
}


def play(steps: list[dict[str, Any]]) -> int:
    """Play each step in order; 0, or 3 with a word on stderr when one cannot be played."""
    for number, step in enumerate(steps, 1):
        ((name, value),) = step.items()
        try:
            _PLAYERS[name](value)
        except (OSError, ValueError) as error:
            print(f"step {number} ({name}): {error}", file=sys.stderr)
            return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(play(json.loads(Path(sys.argv[1]).read_bytes())))
