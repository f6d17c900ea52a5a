"""The output of a process, read while it grows."""

from pathlib import Path
from typing import Protocol


class Lines(Protocol):
    """The lines of one file from byte 0 on, each at most 1 MiB (longer ones arrive cut)."""

    def read(self) -> list[bytes]:
        """New complete lines, without their newline; a bounded number, so ask until it is empty."""
        ...

    def grew(self) -> bool:
        """Whether bytes came since the last call, without looking at them: for readers that do not listen."""
        ...

    def finish(self) -> bytes:
        """The last line when no newline ends it, else b"". Call once, after `read` returned nothing."""
        ...


class Outputs(Protocol):
    """Opens output files."""

    def __call__(self, path: Path) -> Lines:
        """Lines of the file at `path`, which need not exist yet."""
        ...
