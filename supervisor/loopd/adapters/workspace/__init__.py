"""The trees of a run: `open_workspace` makes the implementation that a plan asks for."""

from loopd.adapters.workspace.locks import release_stale_locks
from loopd.adapters.workspace.opening import open_workspace
from loopd.adapters.workspace.plan import WorkspacePlan

__all__ = ["WorkspacePlan", "open_workspace", "release_stale_locks"]
