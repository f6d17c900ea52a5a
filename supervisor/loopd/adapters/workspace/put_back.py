"""Going back to what stood before, whatever form of trees the run has."""

import os
from pathlib import Path

from loopd.adapters.workspace.writing import FileContent, found_at, put, take_out
from loopd.domain.errors import UsageError


def put_back(root: Path, path: str, content: FileContent | None, evidence: Path) -> None:
    """Make `path` hold `content`, or nothing; what stood there goes to `evidence` first. Idempotent."""
    there = found_at(root, path)
    if there == content and (content or not os.path.lexists(root / path)):
        return
    if there is not None:
        save_evidence(evidence, path, there)
    if content is None:
        take_out(root, path)
    else:
        put(root, path, content, evidence / "displaced")


def save_evidence(evidence: Path, path: str, content: FileContent) -> None:
    """Keep what stood at `path`; a link is kept as a text that names its target, never as a link."""
    target = evidence / (path + ".link" if content.link else path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content.data)


def refuse_conflicts(paths: list[str]) -> None:
    """Raise `UsageError` naming the files; does nothing when there are none."""
    if paths:
        named = "\n".join(f"  {path}" for path in paths[:20])
        more = f"\n  and {len(paths) - 20} more" if len(paths) > 20 else ""
        raise UsageError(f"these files were changed since, and would be overwritten:\n{named}{more}")
