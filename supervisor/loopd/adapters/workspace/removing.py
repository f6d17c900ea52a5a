"""Removing what a program has made."""

import os
import shutil
import stat
from pathlib import Path

from anyio import to_thread


async def remove_tree(path: Path) -> None:
    """Remove a file, link or folder, read-only folders included. Idempotent."""
    await to_thread.run_sync(_remove_tree, path)


def _remove_tree(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        try:
            shutil.rmtree(path)
        except OSError:
            _open_folders(path)
            shutil.rmtree(path)


def _open_folders(path: Path) -> None:
    for here, names, _ in os.walk(path):
        for place in (Path(here, name) for name in names):
            if not place.is_symlink():
                place.chmod(stat.S_IRWXU)
