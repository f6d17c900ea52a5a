"""What lands: the proven tree and nothing else, as a commit or in place."""

from loopd.domain.errors import UsageError
from loopd.domain.record import Record, Summary
from loopd.engine.run import Run


async def deliver(run: Run, *, to: str) -> str:
    """Deliver the proven tree as "tree" or "branch"; what was done, in words. Idempotent."""
    record = run.record
    tree = record.current.tree if record.current else record.baseline
    if run.weak:
        return f"the workspace {run.ports.workspace.root} as it was checked (weak boundary)"
    if to == "branch":
        return await _branch(run, tree, proven=True)
    if run.goal.isolation == "inplace":
        return _in_place(run)
    changed = await run.ports.workspace.write_tree(tree, expected=record.baseline)
    return f"{len(changed)} files written to {run.user_root}"


async def deliver_best(run: Run, *, to: str) -> str:
    """Deliver the best attempt of a run that is not met, marked unproven."""
    best = best_of(run.record)
    if to == "branch":
        return await _branch(run, best.tree, proven=False)
    expected = run.record.last_after if run.goal.isolation == "inplace" else run.record.baseline
    changed = await run.ports.workspace.write_tree(best.tree, expected=expected)
    return f"attempt {best.number}, unproven: {len(changed)} files written"


def best_of(record: Record) -> Summary:
    """The best verified attempt. Raises `UsageError` when there is none."""
    if record.best is None:
        raise UsageError(f"run {record.run} has no attempt with an effect yet; nothing can be delivered")
    return record.best


def _in_place(run: Run) -> str:
    root, current = run.ports.workspace.root, run.record.current
    text = f"the workspace {root} is the proven tree"
    if current and current.unproven:
        text += f"; no part of the proof, left where they lie: {', '.join(current.unproven[:10])}"
    return text


async def _branch(run: Run, tree: str, *, proven: bool) -> str:
    record = run.record
    branch = f"loopd/{record.goal}-{record.run.rsplit('-', 1)[-1]}"
    commit = await run.ports.workspace.commit(tree, branch, message(run, tree, proven=proven))
    return f"branch {branch} ({commit[:12]}){'' if proven else ', unproven'}"


def message(run: Run, tree: str, *, proven: bool) -> str:
    """The commit message: goal, criteria with their verdicts, trailers that lead back to the run."""
    record, first = run.record, (run.goal.objective.text or "").strip().split("\n", 1)[0]
    verdicts = _verdicts(record, tree)
    rows = [f"- {name}: {verdicts.get(name, 'not reached')}" for name in run.criteria]
    title = f"{record.goal}: {first}"[:200] + ("" if proven else " (unproven)")
    trailers = [f"Loopd-Run: {record.run}", f"Loopd-Tree: {tree}", f"Loopd-Contract: {record.contract_digest}"]
    return "\n".join([title, "", "Criteria:", *rows, "", *trailers, ""])


def _verdicts(record: Record, tree: str) -> dict[str, str]:
    for summary in reversed((record.best, *record.recent)) if record.best else reversed(record.recent):
        if summary.tree == tree:
            return {name: str(verdict.status) for name, verdict in summary.verdicts.items()}
    return {name: str(verdict.status) for name, verdict in record.baseline_verdicts.items()}
