"""Before the first attempt: every verifier on the baseline, so that "done" can be told from "now"."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from loopd.domain.contract import Criterion
from loopd.domain.criteria import holds
from loopd.domain.errors import BlockedError, RefusedError
from loopd.domain.forecast import forecast
from loopd.domain.progress import score
from loopd.domain.record import Step, dump_value
from loopd.domain.reports import stable_tests
from loopd.domain.verdict import Status, Verdict
from loopd.engine.run import BETWEEN, Run
from loopd.engine.verification import check, check_again, reached
from loopd.ports.workspace import CheckTree, Prepared


async def prepare(run: Run) -> Prepared:
    """Find the agent and every verifier, and open the trees: once in each process, before its first step.

    Programs are looked for where they are needed next. What is missing must not keep a process from the agent that
    another one left at work, nor a proven tree from its delivery.
    """
    found = _programs(run) if run.record.step in (*BETWEEN, Step.PREFLIGHT) else {}
    run.prepared = await run.ports.workspace.prepare()
    run.note("tree.prepared", **dump_value(run.prepared), **found)
    return run.prepared


def _programs(run: Run) -> dict[str, Any]:
    verifiers = {criterion.name: run.ports.verifiers.locate(criterion) for criterion in run.goal.criteria}
    return {"agent": run.ports.agent.probe(run.search_path), "verifiers": verifiers}


async def preflight(run: Run) -> None:
    """Measure the baseline, and refuse a goal that cannot tell done from now."""
    prepared = run.prepared or await prepare(run)
    tree = await run.ports.workspace.check_tree(prepared.baseline)
    for criterion in run.goal.criteria:
        if criterion.name not in run.record.baseline_verdicts:
            await _measure(run, criterion, tree)
    verdicts = run.record.baseline_verdicts
    promises(run.goal.criteria, verdicts, met_before=run.met_before)
    met = all(holds(verdicts[name]) for name in run.criteria)
    near = score(reached(run.goal.criteria, verdicts))
    told = forecast(
        check_s=sum(verdict.duration_s for verdict in verdicts.values()),
        setup_s=prepared.setup_s,
        attempts=run.record.allowance.attempts,
        disk_bytes=await run.ports.workspace.disk_bytes(),
        setup_cached=prepared.setup_cached,
    )
    run.note("preflight.passed", baseline=prepared.baseline, score=dump_value(near), met=met, forecast=told)
    if met:
        run.note("decision", decision="met", state="met", reason="all criteria hold already; no attempt was needed")


def promises(criteria: tuple[Criterion, ...], verdicts: Mapping[str, Verdict], *, met_before: bool) -> None:
    """Compare the baseline with what the contract promised about it. Raises `RefusedError` with the mend."""
    for criterion in criteria:
        held = holds(verdicts[criterion.name])
        if criterion.baseline == "fail" and held and not met_before:
            raise RefusedError(
                f"criterion {criterion.name} passes before any attempt, and the contract promises that it fails; "
                f"mend the check, or write baseline: any"
            )
        if criterion.baseline == "pass" and not held:
            raise RefusedError(
                f"criterion {criterion.name} fails before any attempt ({verdicts[criterion.name].summary}), and the "
                f"contract promises that it passes; mend the tree, or write baseline: any"
            )
    kept_green = all(criterion.baseline in ("any", "pass") for criterion in criteria)
    if all(holds(verdict) for verdict in verdicts.values()) and not (kept_green or met_before):
        raise RefusedError(
            "every criterion already holds: nothing here tells done from now; add a criterion that fails today, "
            "or write baseline: any to keep it green"
        )


async def _measure(run: Run, criterion: Criterion, tree: CheckTree) -> None:
    verdict = await _baseline_check(run, criterion, tree, "baseline")
    stable: tuple[str, ...] = verdict.tests
    unstable: tuple[str, ...] = ()
    if criterion.report is not None:
        second = await _baseline_check(run, criterion, tree, "baseline-second")
        stable, unstable = stable_tests(verdict, second)
        verdict = replace(verdict, skipped=tuple(sorted({*verdict.skipped, *second.skipped})))
    run.note("baseline.verdict", verdict=dump_value(verdict), stable_tests=list(stable), unstable_tests=list(unstable))


async def _baseline_check(run: Run, criterion: Criterion, tree: CheckTree, label: str) -> Verdict:
    verdict = await check_again(run, criterion, tree, label)
    if verdict.status is Status.ERROR:
        raise await _explain(run, criterion, tree, verdict)
    return verdict


async def _explain(run: Run, criterion: Criterion, tree: CheckTree, verdict: Verdict) -> BlockedError:
    """Try one relaxation at a time; the first that mends the check names the contract line to write."""
    why = f"criterion {criterion.name} cannot run on the baseline: {verdict.reason or verdict.summary}"
    for number, relaxation in enumerate(await run.ports.workspace.relaxations(tree), start=1):
        relaxed = await check(run, criterion, relaxation.tree, f"relaxed-{number}")
        if relaxed.status is not Status.ERROR:
            return BlockedError(why, f"it runs with this line in the contract: {relaxation.line}")
    return BlockedError(why, f"see {run.folder / verdict.output}, mend it, then loopd resume {run.record.run}")
