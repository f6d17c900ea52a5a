"""Budgets: reserved before a launch, settled after it, never forgotten and never counted twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from loopd.domain.attempt import Usage
from loopd.domain.budget import Allowance, Limit, Reserve, Spent, exhausted_by, overrun, reserve, settle

WIDE = Allowance(attempts=10, time_s=3600.0)
PRICED = replace(WIDE, cost_usd=10.0)
COUNTED = replace(WIDE, tokens=1000)


@pytest.mark.parametrize(
    ("allowance", "spent", "budget", "words"),
    [
        (WIDE, Spent(attempts=10), "attempts", "10 of 10 attempts are used"),
        (WIDE, Spent(time_s=3600.0), "time", "3600 of 3600 s are used"),
        (PRICED, Spent(cost_usd=10.0), "cost", "10.00 of 10.00 USD are used"),
        (PRICED, Spent(cost_usd=12.5), "cost", "12.50 of 10.00 USD are used"),
        (COUNTED, Spent(tokens=1000), "tokens", "1000 of 1000 tokens are used"),
        (PRICED, Spent(attempts=10, time_s=9999.0, cost_usd=99.0), "attempts", "10 of 10 attempts are used"),
    ],
)
def test_g7_the_first_budget_that_is_used_up_is_named(
    allowance: Allowance, spent: Spent, budget: str, words: str
) -> None:
    """Attempts, time, cost, tokens: whichever ends first is said in words."""
    assert exhausted_by(allowance, spent) == Limit(budget, words)
    assert reserve(allowance, spent) == Limit(budget, words)


@pytest.mark.parametrize(
    ("allowance", "spent"),
    [
        (WIDE, Spent()),
        (WIDE, Spent(attempts=9, time_s=3599.0)),
        (WIDE, Spent(cost_usd=1e9, tokens=10**12)),
        (PRICED, Spent(cost_usd=9.9)),
        (COUNTED, Spent(tokens=999)),
        (replace(WIDE, cost_usd=0.3), Spent(cost_usd=0.1 + 0.1, priced=2, cheapest_usd=0.1)),
    ],
)
def test_nothing_is_used_up_while_something_is_left_of_each(allowance: Allowance, spent: Spent) -> None:
    assert exhausted_by(allowance, spent) is None


def test_bud_6_what_does_not_buy_the_cheapest_attempt_so_far_is_used_up() -> None:
    """0.06 USD left are no budget when no launch has ever cost less than 0.12; the message says so."""
    spent = Spent()
    for _ in range(2):
        spent = settle(spent, Reserve(1.0), Usage(cost_usd=0.12))
    limit = exhausted_by(replace(WIDE, cost_usd=0.30), spent)
    assert limit == Limit("cost", "0.06 USD are left, less than the cheapest attempt so far (0.12 USD)")


def test_bud_4_one_attempt_alone_does_not_say_what_a_launch_costs_at_least() -> None:
    """0.40 USD are left after a first attempt for 0.60: the second may well be cheaper, so it runs."""
    spent = settle(Spent(), Reserve(1.0), Usage(cost_usd=0.60))
    assert exhausted_by(replace(WIDE, cost_usd=1.0), spent) is None


def test_an_attempt_that_was_cut_short_says_nothing_about_the_cheapest() -> None:
    spent = settle(Spent(), Reserve(1.0), Usage(cost_usd=5.0, partial=True))
    assert (spent.priced, spent.cheapest_usd) == (0, None)
    assert spent.dearest_usd == 5.0


@pytest.mark.parametrize(
    ("allowance", "spent", "cost"),
    [
        (WIDE, Spent(), None),
        (WIDE, Spent(dearest_usd=2.0), 2.0),
        (replace(WIDE, attempt_cost_usd=3.0), Spent(dearest_usd=2.0), 3.0),
        (PRICED, Spent(), 1.0),
        (PRICED, Spent(dearest_usd=2.0), 2.0),
        (PRICED, Spent(dearest_usd=0.0), 1.0),
        (PRICED, Spent(cost_usd=9.5, dearest_usd=2.0), 0.5),
        (replace(PRICED, attempt_cost_usd=3.0), Spent(dearest_usd=2.0), 3.0),
    ],
)
def test_the_reserve_of_an_attempt_is_its_cap_else_the_dearest_so_far_else_a_tenth(
    allowance: Allowance, spent: Spent, cost: float | None
) -> None:
    """Never more than is left, and never zero because some attempt told a price of zero."""
    reserved = reserve(allowance, spent)
    assert isinstance(reserved, Reserve)
    assert reserved.cost_usd == cost


@pytest.mark.parametrize(
    ("allowance", "spent", "tokens"),
    [
        (WIDE, Spent(most_tokens=7), None),
        (COUNTED, Spent(), 100),
        (COUNTED, Spent(tokens=300, most_tokens=200), 200),
        (COUNTED, Spent(tokens=900, most_tokens=200), 100),
        (replace(WIDE, tokens=5), Spent(), 1),
    ],
)
def test_tokens_are_reserved_like_money(allowance: Allowance, spent: Spent, tokens: int | None) -> None:
    reserved = reserve(allowance, spent)
    assert isinstance(reserved, Reserve)
    assert reserved.tokens == tokens


def test_the_time_of_an_attempt_is_its_own_limit_or_what_is_left_of_the_run() -> None:
    assert reserve(WIDE, Spent()) == Reserve(2700.0)
    assert reserve(WIDE, Spent(time_s=3000.0)) == Reserve(600.0)


def test_bud_3_an_attempt_cut_short_is_booked_at_what_was_seen_and_marked_partial() -> None:
    """Those that time out have spent most; they are never booked at nothing."""
    spent = settle(Spent(), Reserve(5.0, cost_usd=2.0), Usage(cost_usd=0.5, partial=True))
    assert (spent.cost_usd, spent.cost_known, spent.partial, spent.estimated) == (0.5, True, True, False)


def test_bud_3_an_attempt_that_told_nothing_is_booked_at_its_reserve_and_marked_estimated() -> None:
    """Unknown is settled at the reserve, never at zero."""
    spent = settle(Spent(), Reserve(5.0, cost_usd=2.0, tokens=50), None)
    assert (spent.cost_usd, spent.tokens, spent.estimated, spent.partial) == (2.0, 50, True, False)
    assert (spent.cost_known, spent.tokens_known, spent.cheapest_usd, spent.dearest_usd) == (True, True, None, None)


def test_what_nobody_told_and_nothing_bounds_stays_unknown() -> None:
    spent = settle(Spent(), Reserve(5.0), None)
    assert (spent.attempts, spent.cost_known, spent.tokens_known, spent.estimated) == (1, False, False, False)


def test_each_figure_is_settled_for_itself() -> None:
    spent = settle(Spent(), Reserve(5.0, cost_usd=2.0, tokens=50), Usage(tokens=30))
    assert (spent.cost_usd, spent.tokens, spent.estimated, spent.most_tokens) == (2.0, 30, True, 30)


figures = st.floats(0, 1e6) | st.none()
usages = st.builds(
    Usage, cost_usd=figures, tokens=st.integers(0, 10**9) | st.none(), partial=st.booleans(), estimated=st.booleans()
)
reserves = st.builds(Reserve, time_s=st.floats(0, 1e5), cost_usd=figures, tokens=st.integers(0, 10**9) | st.none())


@given(st.lists(st.tuples(reserves, usages | st.none()), max_size=20))
def test_settling_only_ever_adds(attempts: list[tuple[Reserve, Usage | None]]) -> None:
    spent = Spent()
    for reserved, usage in attempts:
        after = settle(spent, reserved, usage)
        assert after.attempts == spent.attempts + 1
        assert after.cost_usd >= spent.cost_usd
        assert after.tokens >= spent.tokens
        assert after.cost_known >= spent.cost_known
        assert after.partial >= spent.partial
        if after.cheapest_usd is not None and after.dearest_usd is not None:
            assert after.cheapest_usd <= after.dearest_usd
        spent = after


@pytest.mark.parametrize(
    ("allowance", "spent", "usage", "words"),
    [
        (replace(WIDE, attempt_cost_usd=2.0), Spent(), Usage(cost_usd=2.0), "2.00 USD reached the 2.00 USD of one"),
        (PRICED, Spent(cost_usd=9.0), Usage(cost_usd=1.0), "10.00 USD reached the run's 10.00 USD"),
        (COUNTED, Spent(tokens=900), Usage(tokens=100), "1000 tokens reached the run's 1000"),
    ],
)
def test_g7_a_running_attempt_is_told_apart_when_it_reaches_a_budget(
    allowance: Allowance, spent: Spent, usage: Usage, words: str
) -> None:
    """The cap of one attempt, the run's cost and the run's tokens all end an attempt at work."""
    assert (overrun(allowance, spent, usage) or "").startswith(words)


@pytest.mark.parametrize(
    ("allowance", "usage"),
    [
        (WIDE, Usage(cost_usd=1e6, tokens=10**9)),
        (replace(PRICED, attempt_cost_usd=2.0), Usage(cost_usd=1.99)),
        (replace(PRICED, tokens=10), Usage()),
        (COUNTED, Usage(tokens=999)),
    ],
)
def test_a_running_attempt_within_every_budget_goes_on(allowance: Allowance, usage: Usage) -> None:
    assert overrun(allowance, Spent(), usage) is None
