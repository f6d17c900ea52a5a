"""The pinned copies a run is judged by: contract, references, the scripted agent's file."""

from typing import Protocol


class Pins(Protocol):
    """Digests taken once, at the start."""

    def repair(self) -> tuple[str, ...]:
        """Names of pinned copies that no longer have their digest; each is put right again before this returns."""
        ...
