"""Which implementation a plan asks for."""

from loopd.adapters.containment.programs import run_program
from loopd.adapters.workspace.clean import CleanWorkspace
from loopd.adapters.workspace.plan import WorkspacePlan
from loopd.adapters.workspace.weak import WeakWorkspace
from loopd.ports.processes import Containers
from loopd.ports.workspace import Workspace


def open_workspace(plan: WorkspacePlan, containers: Containers) -> Workspace:
    """The trees of one run; nothing is touched before `prepare`."""
    if plan.verification == "workspace":
        return WeakWorkspace(plan, containers, run_program)
    return CleanWorkspace(plan, containers, run_program)
