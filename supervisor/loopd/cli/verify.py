"""`verify`: a contract's criteria on the tree as it is now, without an agent and without a run."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import anyio
import typer

from loopd.adapters.agreement import Agreement
from loopd.adapters.clock import SystemClock
from loopd.adapters.containment.containers import OwnedContainers
from loopd.adapters.state import RunFolder, ensure_state, keep_outside, locate_state
from loopd.adapters.verifiers.command import CommandVerifiers
from loopd.adapters.workspace.removing import remove_tree
from loopd.cli.agree import agree
from loopd.cli.compose import check_terms, open_containers, workspace_of
from loopd.cli.flags import Flags
from loopd.domain.criteria import holds
from loopd.domain.verdict import Status, Verdict
from loopd.engine.verification import layers
from loopd.ports.verifier import CheckContext


def verify(
    context: typer.Context,
    contract: Annotated[Path, typer.Argument(help="The goal contract.")],
) -> int:
    """Check every criterion of a contract now: 0 when all hold, 1 when not, 5 when one cannot run."""
    agreed = agree(contract, Flags())
    state = ensure_state(locate_state(os.environ))
    keep_outside(state, agreed.terms.root)
    folder = RunFolder(Path(tempfile.mkdtemp(prefix="verify-", dir=state.root)) / "x" / f"verify-{os.urandom(2).hex()}")
    folder.root.mkdir(parents=True)
    containers = open_containers(agreed, context.obj)
    try:
        verdicts = anyio.run(_check_all, folder, agreed, containers)
    finally:
        containers.close()
        anyio.run(remove_tree, folder.root.parents[1])
    if any(verdict.status is Status.ERROR for verdict in verdicts):
        return 5
    return 0 if all(map(holds, verdicts)) else 1


async def _check_all(folder: RunFolder, agreed: Agreement, containers: OwnedContainers) -> list[Verdict]:
    workspace = workspace_of(folder, agreed, containers)
    verifiers = CommandVerifiers(containers, SystemClock(), check_terms(agreed))
    prepared = await workspace.prepare()
    for note in prepared.notes:
        print(f"note: {note}", file=sys.stderr)
    tree = await workspace.check_tree(prepared.baseline, fresh=True)
    baseline = await workspace.baseline_tree(prepared.baseline)
    verdicts = []
    for criterion in (criterion for group in layers(agreed.goal.criteria) for criterion in group):
        place = folder.root / "checks" / criterion.name
        marker = f"{folder.run}/{criterion.name}"
        context = CheckContext(tree, place, marker, baseline=baseline, parameters=criterion.with_)
        verdict = await verifiers.check(criterion, context)
        said = verdict.reason or verdict.summary
        print(f"{criterion.name}: {verdict.status}{f', {said}' if said else ''}")
        verdicts.append(verdict)
    return verdicts
