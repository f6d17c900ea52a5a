"""The disk that holds a run's folder."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from loopd.adapters.tail import keep_head_and_tail


@dataclass(frozen=True, slots=True)
class FolderDisk:
    """Implements `ports.disk` for the file system of `folder`."""

    folder: Path

    def free_bytes(self) -> int:
        """See the port."""
        return shutil.disk_usage(self.folder).free

    def cap(self, path: Path, cap_bytes: int) -> int:
        """See the port; a log that is not there takes no room."""
        return keep_head_and_tail(path, cap_bytes) if path.exists() else 0
