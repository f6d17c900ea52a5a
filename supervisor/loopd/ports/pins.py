"""The pinned copies a run is judged by: contract, references, the scripted agent's file."""

from typing import Protocol


class Pins(Protocol):
    """Digests taken once, at the start."""

    def changed(self) -> tuple[str, ...]:
        """Names of pinned copies that no longer have their digest. Changes nothing: they are recorded first."""
        ...

    def repair(self) -> None:
        """Put every changed copy right again. Idempotent."""
        ...
