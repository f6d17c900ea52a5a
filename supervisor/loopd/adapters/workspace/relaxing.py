"""What a verifier may be missing, one thing at a time, each with the contract line that would give it."""

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from loopd.ports.processes import Bind, Sandbox
from loopd.ports.workspace import CheckTree, Relaxation

_MOST_CARRIED = 12


def relaxations(tree: CheckTree, owner: Path) -> Iterator[Relaxation]:
    """Carried files first, then all of them together, the network, and last no sandbox at all."""
    if tree.sandbox is None:
        return
    missing = sorted(entry.name for entry in os.scandir(owner) if _is_missing(tree, entry))[:_MOST_CARRIED]
    for names in [[name] for name in missing] + ([missing] if len(missing) > 1 else []):
        yield Relaxation(f"environment: {{carry: [{', '.join(names)}]}}", _with(tree, _carrying(tree, owner, names)))
    if not tree.sandbox.network:
        yield Relaxation("environment: {network: host}", _with(tree, replace(tree.sandbox, network=True)))
    yield Relaxation("sandbox: none", replace(tree, sandbox=None, seen_at=tree.path))


def _is_missing(tree: CheckTree, entry: os.DirEntry[str]) -> bool:
    return entry.name != ".git" and not os.path.lexists(tree.path / entry.name)


def _carrying(tree: CheckTree, owner: Path, names: list[str]) -> Sandbox:
    assert tree.sandbox is not None
    binds = tuple(Bind(owner / name, tree.seen_at / name) for name in names)
    return replace(tree.sandbox, binds=(*tree.sandbox.binds, *binds))


def _with(tree: CheckTree, sandbox: Sandbox) -> CheckTree:
    return replace(tree, sandbox=sandbox)
