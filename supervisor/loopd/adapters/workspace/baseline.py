"""What happens once, before the first attempt: look at the owner's tree, take the baseline, prepare."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from loopd.adapters.workspace.check_trees import CheckTrees
from loopd.adapters.workspace.clone import make_clone, uncommitted
from loopd.adapters.workspace.furnish import furnish_clone
from loopd.adapters.workspace.git import Git, RunProgram, find_git
from loopd.adapters.workspace.ignore import baseline_rules
from loopd.adapters.workspace.leads_back import refuse_what_leads_back
from loopd.adapters.workspace.plan import WorkspacePlan
from loopd.adapters.workspace.prepared import Pristine, Workshop, environment, take_carried
from loopd.adapters.workspace.record import Record, load, save
from loopd.adapters.workspace.repository import (
    Repository,
    committed,
    find_repository,
    same_but_for_form,
    touched,
)
from loopd.adapters.workspace.setup import Setup
from loopd.adapters.workspace.snapshots import Snapshots, own_index
from loopd.adapters.workspace.store import Entry, Store, open_store
from loopd.adapters.workspace.tree_repository import make_tree_repository
from loopd.adapters.workspace.view import sandbox
from loopd.domain.errors import BlockedError
from loopd.ports.processes import Containers, Sandbox
from loopd.ports.workspace import CheckTree, TreeId


class Ready(Struct, frozen=True):
    """Everything that is there once the workspace is prepared."""

    plan: WorkspacePlan
    root: Path
    record: Record
    store: Store
    snapshots: Snapshots
    trees: CheckTrees
    pristine: Pristine
    notes: tuple[str, ...]
    sandboxed: bool

    async def check_tree(self, name: str, tree: TreeId, *, fresh: bool = False) -> CheckTree:
        """The named check tree and how it is seen."""
        place, pristine = await self.trees.ready(name, tree, fresh=fresh)
        if not self.sandboxed:
            return CheckTree(place, place, None)
        there = [path for path in pristine.read_only if (place / path).exists()]
        view = sandbox(
            self.plan,
            place,
            _seen_at(self.plan, self.root),
            read_only=there,
            network=self.plan.network,
            host=os.environ,
        )
        return CheckTree(place, self.root, view)


async def make_ready(plan: WorkspacePlan, containers: Containers, run_program: RunProgram) -> Ready:
    """Complete whatever of the preparation is missing. Idempotent, also after a crash at any point."""
    plan.state.mkdir(parents=True, exist_ok=True)
    git = find_git(run_program, plan.search_path, plan.state)
    sandboxed = await _bubblewrap_works(plan, run_program)
    fields = load(plan.state / "record.json")
    record = Record(**fields) if fields else await _taken(plan, git)
    root = Path(record.root)
    store = await open_store(git, plan.state / "store.git", "sha1")
    exclude = plan.state / "exclude"
    snapshots = await _opened(store, root, plan, record)
    setup = _setup(plan, containers, root, sandboxed)
    repository = plan.state / "tree.git" if record.top else None
    workshop = Workshop(plan, store, exclude, setup, repository, None if sandboxed else plan.state / "tree")
    pristine = await workshop.pristine(record.baseline)
    if not sandboxed:
        made = [pristine.tree / path for path in (*record.carried, *pristine.read_only)]
        refuse_what_leads_back(plan.search_path, made, {root, plan.root})
    if plan.isolation == "clone":
        await furnish_clone(store.git, plan, root, pristine, setup)
    notes = (*record.notes, *_said_about(sandboxed))
    trees = CheckTrees(_workshops(workshop, plan, sandboxed), store, exclude, plan.state)
    return Ready(plan, root, record, store, snapshots, trees, pristine, notes, sandboxed)


def _workshops(workshop: Workshop, plan: WorkspacePlan, sandboxed: bool) -> dict[str, Workshop]:
    """Without bubblewrap the baseline tree lies elsewhere, and a setup of its own must know that path."""
    place = plan.state / "baseline"
    own = replace(workshop, setup=replace(workshop.setup, seen_at=place), build_at=place)
    return {"tree": workshop, "baseline": workshop if sandboxed else own}


async def _taken(plan: WorkspacePlan, git: Git) -> Record:
    """Look at the owner's tree, clone, take the baseline; the record is written last."""
    owners = await find_repository(git, plan.root)
    store = await open_store(git, plan.state / "store.git", owners.object_format if owners else "sha1")
    root, repository, notes = await _workplace(plan, git, store, owners)
    rules = await baseline_rules(store.git, root, owners.excludes if owners else b"", store.scratch)
    (plan.state / "exclude").write_bytes(rules)
    snapshots = Snapshots(store, root, own_index(plan.state / "index", "workspace"), plan.state / "exclude")
    tracked = repository.tracked if repository else {}
    taken = await snapshots.take(first=tracked)
    files = await store.entries(taken.tree)
    carried, missing = await take_carried(git, plan)
    said = [*notes, *missing, *(f"{path} cannot be carried" for path in taken.left_out)]
    committed_form, clean = await _committed_form(git, store, repository, root, files)
    said += await _tree_repository(plan, git, store, repository, taken.tree, clean)
    record = Record(
        root=str(root),
        baseline=taken.tree,
        files=len(files),
        tracked=await _ignored_but_tracked(store, root, plan.state / "exclude", tracked),
        submodules=repository.submodules if repository else (),
        as_committed=clean,
        kept=tuple((path, files[path].mode, files[path].blob) for path in sorted(committed_form)),
        carried=carried,
        notes=tuple(said),
        top=str(owners.top) if owners else "",
        git_dir=str(owners.git_dir) if owners else "",
        prefix=owners.prefix if owners else "",
        head=owners.head if owners else "",
    )
    await _synced(plan, git)
    save(plan.state / "record.json", record)
    return record


async def _synced(plan: WorkspacePlan, git: Git) -> None:
    """Have the baseline on the disk before the record says so: it may be the only copy of some work.

    Later trees are not synced: git's own fsync of every object cost a third more CPU a snapshot (measured).
    """
    argv = ["sync", "-f", str(plan.state)]
    env = {"PATH": plan.search_path}
    with suppress(BlockedError):  # no such program: as durable as the disk makes it by itself
        await git.run_program(argv, cwd=plan.state, env=env, stdin=None, timeout_s=git.timeout_s)


async def _workplace(
    plan: WorkspacePlan, git: Git, store: Store, owners: Repository | None
) -> tuple[Path, Repository | None, list[str]]:
    """Where the agent works, the repository there, and what to say aloud."""
    if plan.isolation != "clone":
        return plan.root, owners, []
    if owners is None:
        raise BlockedError(f"{plan.root} is no git repository", "Write `isolation: inplace`, or `git init` there.")
    folder = plan.state / "clone"
    root = folder / owners.prefix if folder.exists() else await make_clone(git, owners, folder, plan.branch)
    notes = await uncommitted(plan, store, owners, root)
    if owners.submodules:
        notes.append(f"submodules are empty in the clone: {', '.join(owners.submodules)}")
    return root, await find_repository(git, root), notes


async def _committed_form(
    git: Git, store: Store, repository: Repository | None, root: Path, files: Mapping[str, Entry]
) -> tuple[set[str], bool]:
    """Untouched files that git commits in another form (line ends, LFS), and whether all is as committed."""
    if repository is None or not repository.head:
        return set(), False
    head = {path: e for path, e in (await committed(git, repository)).items() if e.mode != "160000"}
    differing = {path for path, entry in head.items() if files.get(path) != entry}
    if not differing and repository.tracked.keys() == head.keys():
        return set(), True
    edited = await touched(store, repository, root)
    unstaged = {path for path in differing & files.keys() if repository.tracked.get(path) == head[path]}
    theirs = replace(store, git=git.at(cwd=repository.top, git_dir=repository.git_dir))
    old = await theirs.blobs(head[path].blob for path in unstaged & edited)
    new = await store.blobs(files[path].blob for path in unstaged & edited)
    doubtful = unstaged & edited
    same = {path for path in doubtful if same_but_for_form(old[head[path].blob], new[files[path].blob])}
    return unstaged - edited | same, False


async def _tree_repository(
    plan: WorkspacePlan, git: Git, store: Store, repository: Repository | None, tree: TreeId, clean: bool
) -> list[str]:
    if repository is None:
        return []
    folder = plan.state / "tree.git"
    made = await make_tree_repository(git, store, repository, folder, tree, as_committed=clean)
    return [made.note] if made.note else []


async def _ignored_but_tracked(
    store: Store, root: Path, exclude: Path, tracked: Mapping[str, Entry]
) -> tuple[str, ...]:
    if not tracked:
        return ()
    index = own_index(exclude.parent / "index", "workspace")
    git = store.git.at(work_tree=root, index=index)
    listed = await git("ls-files", "-z", "-c", "-i", f"--exclude-from={exclude}")
    return tuple(sorted(os.fsdecode(path) for path in listed.split(b"\0")[:-1]))


async def _opened(store: Store, root: Path, plan: WorkspacePlan, record: Record) -> Snapshots:
    index = own_index(plan.state / "index", "workspace")
    snapshots = Snapshots(store, root, index, plan.state / "exclude", record.tracked, record.baseline)
    if not index.exists():
        await snapshots.start_anew()
    return snapshots


def _setup(plan: WorkspacePlan, containers: Containers, root: Path, sandboxed: bool) -> Setup:
    def view(tree: Path) -> Sandbox:
        return sandbox(plan, tree, _seen_at(plan, root), network=True, host=os.environ)

    home = Path(os.environ.get("HOME", "/nonexistent")) if sandboxed else plan.state / "home"
    if not sandboxed:
        home.mkdir(exist_ok=True)
    seen_at = root if sandboxed else plan.state / "tree"
    return Setup(plan, containers, dict(environment(plan, home)), seen_at, view if sandboxed else None)


def _seen_at(plan: WorkspacePlan, root: Path) -> tuple[Path, ...]:
    """Where our tree is seen: for a clone at the owner's path too, where a carried environment leads to."""
    return (plan.root, root) if root != plan.root else (root,)


async def _bubblewrap_works(plan: WorkspacePlan, run_program: RunProgram) -> bool:
    """Whether bubblewrap is used: as told, else tried. `BlockedError` when it is wanted and does not work."""
    if plan.bubblewrap is False:
        return False
    argv = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid", "true"]
    env = {"PATH": plan.search_path}
    try:
        done = await run_program(argv, cwd=Path("/"), env=env, stdin=None, timeout_s=20.0)
        words = done.stderr.decode(errors="replace").strip()
        works = done.status == 0
    except BlockedError as problem:
        works, words = False, problem.message
    if plan.bubblewrap and not works:
        raise BlockedError(f"bubblewrap does not work here: {words}", "Install it, or write `sandbox: none`.")
    return works


def _said_about(sandboxed: bool) -> tuple[str, ...]:
    return () if sandboxed else ("no bubblewrap: verifiers see a tree at another path, and the whole disk",)
