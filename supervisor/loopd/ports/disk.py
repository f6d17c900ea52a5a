"""Room on the disk: how much is left, and how much a log may take."""

from pathlib import Path
from typing import Protocol


class Disk(Protocol):
    """The file system that holds the runs."""

    def free_bytes(self) -> int:
        """What is free for this user there now."""
        ...

    def cap(self, path: Path, cap_bytes: int) -> int:
        """Shorten a finished log to its ends, with a line that says so; the bytes left out. Idempotent."""
        ...
