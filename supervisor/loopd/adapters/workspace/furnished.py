"""What was done to the agent's tree."""

from msgspec import Struct


class Furnished(Struct, frozen=True):
    """What was done to the agent's tree, and where it lies."""

    root: str = ""
    setup_s: float = 0.0
    cached: bool = False
    carried: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
