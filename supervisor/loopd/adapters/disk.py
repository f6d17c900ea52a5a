"""The disk that holds a run's folder."""

import os
from pathlib import Path

from msgspec import Struct

from loopd.adapters.tail import keep_head_and_tail


class FolderDisk(Struct, frozen=True):
    """Implements `ports.disk` for the file system of `folder`."""

    folder: Path

    def free_bytes(self) -> int:
        """See the port."""
        free = os.statvfs(self.folder)
        return free.f_bavail * free.f_frsize

    def cap(self, path: Path, cap_bytes: int) -> int:
        """See the port; a log that is not there takes no room."""
        return keep_head_and_tail(path, cap_bytes) if path.exists() else 0
