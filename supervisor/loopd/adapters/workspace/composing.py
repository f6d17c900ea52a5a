"""From two trees to the one that counts: facts about each change, a ruling on each, and what follows."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from loopd.domain.scope import Change, Kind, Ruling, Scope, judge
from loopd.ports.workspace import Composed


class Rulings(Struct, frozen=True):
    """Paths by what becomes of them, sorted."""

    carried: tuple[str, ...]
    restored: tuple[str, ...]
    unproven: tuple[str, ...]
    refused: tuple[str, ...]
    undone: tuple[str, ...]  # everything that the composed tree takes from the base

    def composed(self, tree: str) -> Composed:
        """The answer of the port."""
        return Composed(tree, self.carried, self.restored, self.unproven, self.refused)


def rule(changes: Iterable[Change], scope: Scope) -> Rulings:
    """Rule on all changes; a carried file that stands where a restored one must be is not carried."""
    found = {change: judge(change, scope) for change in changes}
    back = {c.path for c, ruling in found.items() if ruling is not Ruling.CARRIED and c.kind is not Kind.ADDED}
    above = {parent for path in back for parent in _parents(path)}
    for change, ruling in found.items():
        blocked = change.path in above or any(parent in back for parent in _parents(change.path))
        if ruling is Ruling.CARRIED and change.kind is Kind.ADDED and blocked:
            found[change] = Ruling.UNPROVEN
    return _sorted(found, back)


def _sorted(found: Mapping[Change, Ruling], back: set[str]) -> Rulings:
    paths = {ruling: sorted(c.path for c, r in found.items() if r is ruling) for ruling in Ruling}
    restored = sorted({*paths[Ruling.RESTORED], *(path for path in paths[Ruling.REFUSED] if path in back)})
    undone = sorted(change.path for change, ruling in found.items() if ruling is not Ruling.CARRIED)
    return Rulings(
        tuple(paths[Ruling.CARRIED]),
        tuple(restored),
        tuple(paths[Ruling.UNPROVEN]),
        tuple(paths[Ruling.REFUSED]),
        tuple(undone),
    )


def _parents(path: str) -> Iterable[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
