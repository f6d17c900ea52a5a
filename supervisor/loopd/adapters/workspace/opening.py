"""Which implementation a plan asks for."""

from loopd.adapters.containment.programs import run_program
from loopd.adapters.workspace.plan import WorkspacePlan
from loopd.ports.processes import Containers
from loopd.ports.workspace import Workspace


def open_workspace(plan: WorkspacePlan, containers: Containers) -> Workspace:
    """The trees of one run; nothing is touched before `prepare`. Only the form that is asked for is imported."""
    if plan.verification == "workspace":
        from loopd.adapters.workspace.weak import WeakWorkspace

        return WeakWorkspace(plan, containers, run_program)
    from loopd.adapters.workspace.clean import CleanWorkspace

    return CleanWorkspace(plan, containers, run_program)
