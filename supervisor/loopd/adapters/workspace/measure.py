"""How much room the trees of a run take."""

import os
from pathlib import Path

from anyio import to_thread

_BLOCK = 512  # what st_blocks counts in, whatever the file system's own block is


async def size_on_disk(folder: Path) -> int:
    """Bytes that the files below `folder` occupy; what vanishes meanwhile counts as nothing."""
    return await to_thread.run_sync(_size, folder)


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * _BLOCK
            except OSError:
                continue
    return total
