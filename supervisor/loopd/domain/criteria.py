"""What the verdicts on one tree mean for the goal."""

from collections.abc import Mapping

from msgspec import Struct, field

from loopd.domain.progress import Score, fingerprint, score
from loopd.domain.verdict import Status, Verdict


class Assessment(Struct, frozen=True):
    """All that is known about a tree when its verdicts are in."""

    tree: str
    criteria: tuple[str, ...]  # every criterion of the contract, in its order
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)  # of those that were reached
    confirmed: bool = False  # all of them held once more on a fresh clean tree
    broken: str = ""  # a verifier that errs on the baseline too: the environment is broken, nobody is blamed
    tampered: str = ""  # what was tampered with, in words

    @property
    def holding(self) -> tuple[str, ...]:
        """The criteria that hold."""
        return tuple(name for name in self.criteria if holds(self.verdicts.get(name)))

    @property
    def failing(self) -> tuple[str, ...]:
        """The criteria that do not hold, those not reached included."""
        return tuple(name for name in self.criteria if not holds(self.verdicts.get(name)))

    @property
    def met(self) -> bool:
        """Every criterion holds, confirmed, with nothing tampered with."""
        return self.confirmed and not self.failing and not self.tampered

    @property
    def score(self) -> Score:
        """How near this tree is."""
        return score(self.verdicts.values())

    @property
    def fingerprint(self) -> str:
        """Equal for the same failure."""
        return fingerprint(self.verdicts)


def holds(verdict: Verdict | None) -> bool:
    """A criterion holds by a pass and by nothing else: not by an error, a skip, or a verdict that is missing."""
    return verdict is not None and verdict.status is Status.PASS
