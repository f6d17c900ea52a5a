"""What the verdicts on one tree mean for the goal."""

import pytest
from msgspec.structs import replace

from loopd.domain.criteria import Assessment, holds
from loopd.domain.progress import Score
from loopd.domain.verdict import Status, Verdict

BOTH = {name: Verdict(name, Status.PASS) for name in ("lint", "tests")}
MET = Assessment("t1", ("lint", "tests"), BOTH, confirmed=True)


@pytest.mark.parametrize("status", list(Status))
def test_h7_a_criterion_holds_by_a_pass_and_by_nothing_else(status: Status) -> None:
    """An error, a skip or tampering is never a pass."""
    assert holds(Verdict("tests", status)) is (status is Status.PASS)


def test_a_criterion_that_was_not_reached_does_not_hold() -> None:
    assert not holds(None)
    reached = Assessment("t1", ("lint", "tests"), {"lint": BOTH["lint"]}, confirmed=True)
    assert (reached.holding, reached.failing, reached.met) == (("lint",), ("tests",), False)


def test_met_when_every_criterion_holds_and_was_confirmed_on_a_fresh_tree() -> None:
    assert MET.met
    assert (MET.holding, MET.failing) == (("lint", "tests"), ())


@pytest.mark.parametrize(
    "short",
    [
        replace(MET, confirmed=False),
        replace(MET, tampered="the contract was changed"),
        replace(MET, verdicts={**BOTH, "tests": Verdict("tests", Status.FAIL)}),
    ],
)
def test_not_met_unconfirmed_tampered_or_red(short: Assessment) -> None:
    assert not short.met


def test_an_assessment_has_the_score_and_the_fingerprint_of_its_verdicts() -> None:
    red = replace(MET, verdicts={**BOTH, "tests": Verdict("tests", Status.FAIL, summary="1 failed")})
    assert (MET.score, red.score) == (Score(2, 0), Score(1, 0))
    assert MET.fingerprint != red.fingerprint
