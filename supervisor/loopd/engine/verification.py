"""From a captured attempt to verdicts: cheap layers first, cached by tree, confirmed on a fresh one."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from loopd.domain.contract import Criterion
from loopd.domain.criteria import Assessment, holds
from loopd.domain.record import Current, dump_value
from loopd.domain.reports import judge_report
from loopd.domain.verdict import Status, Verdict
from loopd.engine.run import Run
from loopd.ports.verifier import CheckContext
from loopd.ports.workspace import CheckTree, SetupError

LAYERS = ("fast", "tests", "slow", "held-out", "review")
NOT_REPRODUCIBLE = "not reproducible"


async def verify(run: Run) -> None:
    """Complete the verdicts of the captured attempt and record what they mean together."""
    current = _current(run)
    broken = await _kept(run, current)
    if not broken and _holding(run) and not run.weak:
        broken = await _fresh(run, current)
    assessment = assess(run)
    run.note(
        "attempt.assessed",
        durable=False,  # it follows from the verdicts
        attempt=current.number,
        score=dump_value(assessment.score),
        fingerprint=assessment.fingerprint,
        failing=list(assessment.failing),
        tampered=assessment.tampered,
        met=assessment.met and not broken,
        broken=broken,
    )


def assess(run: Run) -> Assessment:
    """The recorded verdicts of the attempt, read together; a fresh verdict outranks a kept one."""
    current = _current(run)
    confirmed = set(current.fresh) >= set(run.criteria) or run.weak
    verdicts = {**current.verdicts, **current.fresh}
    forged = [f"{name}: {verdict.summary}" for name, verdict in verdicts.items() if verdict.status is Status.TAMPER]
    tampered = "; ".join([current.tampered, *forged] if current.tampered else forged)
    return Assessment(current.tree, run.criteria, verdicts, confirmed, run.record.broken, tampered)


def layers(criteria: Sequence[Criterion]) -> Iterator[tuple[Criterion, ...]]:
    """The criteria by layer, cheap ones first, in the contract's order within each."""
    for layer in LAYERS:
        if group := tuple(criterion for criterion in criteria if criterion.layer == layer):
            yield group


def reached(criteria: Sequence[Criterion], verdicts: Mapping[str, Verdict]) -> tuple[Verdict, ...]:
    """Those of `verdicts` that an attempt's verification would have come to before a layer stopped it."""
    found: dict[str, Verdict] = {}
    for group in layers(criteria):
        while criterion := next_in(group, found):
            found[criterion.name] = verdicts[criterion.name]
        if not all(holds(found.get(criterion.name)) for criterion in group):
            break
    return tuple(found.values())


def next_in(group: Sequence[Criterion], verdicts: Mapping[str, Verdict]) -> Criterion | None:
    """The first criterion without a verdict whose needs hold, in whatever order they are written."""
    for criterion in group:
        if criterion.name not in verdicts and all(holds(verdicts.get(name)) for name in criterion.needs):
            return criterion
    return None


async def check_again(run: Run, criterion: Criterion, tree: CheckTree, label: str) -> Verdict:
    """Check once, and once more after an error, which may have been the machine's and not the tree's."""
    verdict = await check(run, criterion, tree, label)
    if verdict.status is Status.ERROR:
        verdict = await check(run, criterion, tree, f"{label}-again")
    return verdict


async def check(run: Run, criterion: Criterion, tree: CheckTree, label: str) -> Verdict:
    """One check in a private, fresh folder, and the rule about the tests of the baseline."""
    folder = run.folder / "checks" / f"{label}-{criterion.name}"
    baseline = None
    if "{baseline}" in " ".join(criterion.run or ()):
        baseline = await run.ports.workspace.baseline_tree(run.record.base or run.record.baseline)
    context = CheckContext(
        tree=tree,
        folder=folder,
        marker=f"{run.record.run}/check/{label}/{criterion.name}",
        attempt=run.record.number,
        baseline=baseline,
        parameters=criterion.with_,
    )
    verdict = await run.ports.verifiers.check(criterion, context)
    return replace(verdict, output=str(folder.relative_to(run.folder)))


async def _kept(run: Run, current: Current) -> str:
    """Verdicts on the kept tree, layer by layer; the reason when the environment proves broken."""
    tree: CheckTree | SetupError | None = None
    for group in layers(run.goal.criteria):
        while criterion := next_in(group, _current(run).verdicts):
            verdict = _known(run, criterion, current.tree)
            if verdict is None:
                tree = tree or await _tree(run, current)
                verdict, broken = await _judged(run, criterion, tree, f"{current.number:04d}")
                if broken:
                    return broken
            _record(run, verdict, fresh=False)
        if not all(holds(_current(run).verdicts.get(criterion.name)) for criterion in group):
            break
    return ""


async def _fresh(run: Run, current: Current) -> str:
    """Everything held: once more on a tree made from the pristine state, which no verifier ever touched."""
    tree: CheckTree | SetupError | None = None
    for criterion in (criterion for group in layers(run.goal.criteria) for criterion in group):
        verdict = _current(run).fresh.get(criterion.name)
        if verdict is None:
            tree = tree or await _tree(run, current, fresh=True)
            verdict, broken = await _judged(run, criterion, tree, f"{current.number:04d}-fresh")
            if broken:
                return broken
            if not holds(verdict):
                verdict = _not_reproducible(verdict)
                await run.ports.workspace.rebuild()  # before the record: what comes after a crash relies on it
            _record(run, verdict, fresh=True)
        if not holds(verdict):
            break
    return ""


def _not_reproducible(verdict: Verdict) -> Verdict:
    status = verdict.status if verdict.status is Status.TAMPER else Status.FAIL
    return replace(verdict, status=status, flags=(*verdict.flags, NOT_REPRODUCIBLE))


async def _tree(run: Run, current: Current, *, fresh: bool = False) -> CheckTree | SetupError:
    """Where the attempt is checked, or the setup that fails since it changed what the setup depends on."""
    try:
        return await run.ports.workspace.check_tree(current.tree, fresh=fresh)
    except SetupError as error:
        return error


async def _judged(run: Run, criterion: Criterion, tree: CheckTree | SetupError, label: str) -> tuple[Verdict, str]:
    if isinstance(tree, SetupError):
        return Verdict(criterion.name, Status.FAIL, summary=f"the setup fails with this change: {tree.message}"), ""
    verdict = await check_again(run, criterion, tree, label)
    return await _blame(run, criterion, _same_tests(run, criterion, verdict))


async def _blame(run: Run, criterion: Criterion, verdict: Verdict) -> tuple[Verdict, str]:
    """Whether an error is the change's or the environment's: the same check on the baseline tells."""
    if verdict.status is not Status.ERROR:
        return verdict, ""
    base = await run.ports.workspace.baseline_tree(run.record.base)
    twin = await check(run, criterion, base, f"{run.record.number:04d}-baseline")
    if twin.status is Status.ERROR:
        return verdict, f"{criterion.name} cannot run here: {twin.reason or twin.summary} (on the baseline too)"
    flags = (*verdict.flags, "errs with the change, not without it")
    return replace(verdict, status=Status.FAIL, flags=flags), ""


def _same_tests(run: Run, criterion: Criterion, verdict: Verdict) -> Verdict:
    """A green suite that lost tests of the baseline, or skips new ones, is red."""
    if verdict.status is not Status.PASS or criterion.report is None:
        return verdict
    stable = run.record.stable_tests.get(criterion.name, ())
    skipped = run.record.baseline_verdicts[criterion.name].skipped
    findings = judge_report(stable, skipped, verdict.tests, verdict.skipped, criterion.report.may_go)
    if not findings:
        return verdict
    return replace(verdict, status=Status.FAIL, summary=findings[0].message, findings=(*verdict.findings, *findings))


def _known(run: Run, criterion: Criterion, tree: str) -> Verdict | None:
    """The verdict this criterion gave on this very tree; errors, red confirmations and weak ones are never reused."""
    if run.weak:
        return None
    known = [(summary.tree, summary.verdicts) for summary in reversed(run.record.recent)]
    known.append((run.record.baseline, run.record.baseline_verdicts))
    for other, verdicts in known:
        verdict = verdicts.get(criterion.name)
        if other == tree and verdict and verdict.status in (Status.PASS, Status.FAIL):
            return None if NOT_REPRODUCIBLE in verdict.flags else replace(verdict, cached=True)
    return None


def _holding(run: Run) -> bool:
    verdicts = _current(run).verdicts
    return all(holds(verdicts.get(name)) for name in run.criteria)


def _record(run: Run, verdict: Verdict, *, fresh: bool) -> None:
    run.note("verdict", attempt=run.record.number, verdict=dump_value(verdict), fresh=fresh)


def _current(run: Run) -> Current:
    if run.record.current is None:
        raise ValueError("nothing was captured")
    return run.record.current
