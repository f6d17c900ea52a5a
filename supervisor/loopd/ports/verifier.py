"""A verifier: a program outside the agent that turns a tree into a verdict."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct, field

from loopd.domain.contract import Criterion
from loopd.domain.verdict import Verdict
from loopd.ports.workspace import CheckTree


class CheckContext(Struct, frozen=True):
    """Where and for what a criterion is checked."""

    tree: CheckTree
    folder: Path  # private, fresh, outside every tree; becomes {out} and holds the logs
    marker: str
    attempt: int = 0  # 0: the baseline
    baseline: CheckTree | None = None  # for {baseline}; None when no placeholder asks for it
    sealed: Path | None = None  # for {sealed}: the copy out of the agent's reach
    baseline_metrics: Mapping[str, float] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)


class Verifiers(Protocol):
    """Runs criteria."""

    def locate(self, criterion: Criterion) -> str:
        """One line that names the program found. Raises `BlockedError` with the PATH searched when it is not there."""
        ...

    async def check(self, criterion: Criterion, context: CheckContext) -> Verdict:
        """Run the criterion once, contained and within its limits. Never raises for what the program does."""
        ...
