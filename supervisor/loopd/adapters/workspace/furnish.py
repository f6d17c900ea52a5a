"""What a clone needs besides its files: the agent's tree gets carried things and the setup too."""

from pathlib import Path

from loopd.adapters.workspace.clone import make_clone, uncommitted
from loopd.adapters.workspace.furnished import Furnished
from loopd.adapters.workspace.git import Git, RunProgram, fields, find_git, text
from loopd.adapters.workspace.plan import WorkspacePlan
from loopd.adapters.workspace.prepared import Pristine, copy_tree, environment, take_carried
from loopd.adapters.workspace.record import load, save
from loopd.adapters.workspace.removing import remove_tree
from loopd.adapters.workspace.repository import find_repository
from loopd.adapters.workspace.setup import Setup
from loopd.adapters.workspace.store import open_store
from loopd.domain.errors import BlockedError
from loopd.ports.processes import Containers


async def furnish_clone(git: Git, plan: WorkspacePlan, root: Path, pristine: Pristine, setup: Setup) -> None:
    """Give the clone what the prepared tree has besides files of the baseline. Idempotent.

    Under bubblewrap the setup ran at the clone's own path, so its results are copied; else it runs again
    there.
    """
    marker = plan.state / "furnished.json"
    if marker.exists() or not (plan.carry or plan.setup):
        return
    inside = git.at(work_tree=pristine.tree, index=pristine.index)
    for path in fields(await inside("ls-files", "-z", "-o", "--directory")):
        target = root / text(path).rstrip("/")
        await remove_tree(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        await copy_tree(git, pristine.tree / text(path).rstrip("/"), target)
    if setup.sandbox is None:
        await setup.run(root, plan.state / "setup-clone")
    save(marker, Furnished())


async def clone_workplace(plan: WorkspacePlan, containers: Containers, run_program: RunProgram) -> Furnished:
    """The workspace of the weak form in a clone, with carried things and setup."""
    done = load(plan.state / "furnished.json")
    if done is not None:
        return Furnished(**{**done, "cached": True})
    git = find_git(run_program, plan.search_path, plan.state)
    owners = await find_repository(git, plan.root)
    if owners is None:
        raise BlockedError(f"{plan.root} is no git repository", "Write `isolation: inplace`.")
    folder = plan.state / "clone"
    if not folder.exists():
        await make_clone(git, owners, folder, plan.branch)
    root = folder / owners.prefix
    store = await open_store(git, plan.state / "store.git", owners.object_format)
    notes = await uncommitted(plan, store, owners, root)
    carried, missing = await take_carried(git, plan)
    for path in carried:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        await copy_tree(git, plan.state / "carried" / path, root / path)
    home = plan.state / "home"
    home.mkdir(exist_ok=True)
    setup = Setup(plan, containers, dict(environment(plan, home)), root, None)
    took_s = await setup.run(root, plan.state / "setup")
    furnished = Furnished(str(root), took_s, False, carried, (*notes, *missing))
    save(plan.state / "furnished.json", furnished)
    return furnished
