"""What the command line says about settings."""

from msgspec import Struct


class Flags(Struct, frozen=True):
    """What the command line says about settings."""

    attempts: int | None = None
    time: str | None = None
    cost: str | None = None
    agent: str | None = None
    clone: bool = False
    with_changes: bool = False

    def texts(self) -> dict[str, str]:
        """The same by the full names of settings."""
        said = {
            "budget.attempts": self.attempts,
            "budget.time": self.time,
            "budget.cost": self.cost,
            "agent": self.agent,
            "isolation": "clone" if self.clone else None,
        }
        return {name: str(value) for name, value in said.items() if value is not None}
