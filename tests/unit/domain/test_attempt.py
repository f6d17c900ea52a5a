"""What one attempt costs, and how a process left."""

import pytest

from loopd.domain.attempt import Exit, Usage


@pytest.mark.parametrize(
    ("left", "right", "total"),
    [
        (Usage(), Usage(), Usage()),
        (Usage(1.0, 10), Usage(2.0, 5), Usage(3.0, 15)),
        (Usage(1.0), Usage(), Usage(1.0, partial=True)),
        (Usage(), Usage(1.0), Usage(1.0, partial=True)),
        (Usage(tokens=1), Usage(tokens=2, estimated=True), Usage(tokens=3, estimated=True)),
    ],
)
def test_usage_adds_up_and_an_unknown_part_makes_the_sum_partial(left: Usage, right: Usage, total: Usage) -> None:
    assert left + right == total


@pytest.mark.parametrize(
    ("how", "words"), [(Exit(3), "exit 3"), (Exit(signal="SIGKILL"), "SIGKILL"), (Exit(lost=True), "lost")]
)
def test_an_exit_says_how_a_process_left(how: Exit, words: str) -> None:
    assert str(how) == words
