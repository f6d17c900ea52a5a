"""The text an agent is given: rendered from verdicts, saved with its digest before anything starts."""

from pathlib import Path
from typing import Protocol

from loopd.domain.feedback import Briefing


class Instructions(Protocol):
    """Renders briefings by templates the owner can replace."""

    def write(self, briefing: Briefing, folder: Path) -> tuple[Path, str]:
        """Render into `folder`, durably; the path and the sha256 of the text.

        Raises `ContractError` when a replaced template is wrong, naming the template and line.
        """
        ...
