"""What a run may spend: reserved before a launch, settled after it."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from loopd.domain.attempt import Usage

FIRST_RESERVE_SHARE = 0.1  # of the cost or token budget, while no attempt has told what one costs
PRICED_ENOUGH = 2  # attempts that told their cost, before the cheapest of them says what a launch costs at least


class Allowance(Struct, frozen=True):
    """What the owner allows, extensions included. None is unlimited, and only cost and tokens may be."""

    attempts: int
    time_s: float
    cost_usd: float | None = None
    tokens: int | None = None
    attempt_time_s: float = 2700.0
    attempt_idle_s: float | None = 1200.0
    attempt_cost_usd: float | None = None


class Reserve(Struct, frozen=True):
    """What one attempt may use up; stands as its price when it reports nothing."""

    time_s: float
    cost_usd: float | None = None
    tokens: int | None = None


class Spent(Struct, frozen=True):
    """What a run has used up. Reserves of an attempt at work are not in it."""

    attempts: int = 0
    time_s: float = 0.0
    cost_usd: float = 0.0
    tokens: int = 0
    cost_known: bool = False  # some attempt told its cost, or was settled at a reserve
    tokens_known: bool = False
    partial: bool = False
    estimated: bool = False
    priced: int = 0  # attempts that told their cost and were not cut short
    cheapest_usd: float | None = None  # the cheapest of those, and the dearest that told its cost at all
    dearest_usd: float | None = None
    most_tokens: int | None = None


class Limit(Struct, frozen=True):
    """The budget that forbids another launch, in words."""

    budget: str  # "attempts" | "time" | "cost" | "tokens"
    text: str


def reserve(allowance: Allowance, spent: Spent) -> Reserve | Limit:
    """What the next attempt may use, or the limit that forbids it."""
    if limit := exhausted_by(allowance, spent):
        return limit
    return Reserve(
        time_s=min(allowance.attempt_time_s, allowance.time_s - spent.time_s),
        cost_usd=_share(allowance.cost_usd, spent.cost_usd, allowance.attempt_cost_usd or spent.dearest_usd or None),
        tokens=_token_share(allowance.tokens, spent),
    )


def exhausted_by(allowance: Allowance, spent: Spent) -> Limit | None:
    """The first budget that is used up; one that buys not even the cheapest of several attempts is used up."""
    if spent.attempts >= allowance.attempts:
        return Limit("attempts", f"{spent.attempts} of {allowance.attempts} attempts are used")
    if spent.time_s >= allowance.time_s:
        return Limit("time", f"{spent.time_s:.0f} of {allowance.time_s:.0f} s are used")
    if allowance.cost_usd is not None:
        left = allowance.cost_usd - spent.cost_usd
        cheapest = spent.cheapest_usd if spent.cheapest_usd and spent.priced >= PRICED_ENOUGH else 0.0
        if left <= 1e-9 or left + 1e-9 < cheapest:
            return Limit("cost", _cost_text(left, allowance.cost_usd, spent))
    if allowance.tokens is not None and spent.tokens >= allowance.tokens:
        return Limit("tokens", f"{spent.tokens} of {allowance.tokens} tokens are used")
    return None


def settle(spent: Spent, reserved: Reserve, usage: Usage | None, *, attempts: int = 1) -> Spent:
    """Book one ended attempt: what it told, else the reserve, marked. Time is booked apart, as it passes."""
    usage = usage or Usage()
    cost = usage.cost_usd if usage.cost_usd is not None else reserved.cost_usd
    tokens = usage.tokens if usage.tokens is not None else reserved.tokens
    told, whole = usage.cost_usd, None if usage.partial else usage.cost_usd
    guessed = (usage.cost_usd is None and cost is not None) or (usage.tokens is None and tokens is not None)
    return replace(
        spent,
        attempts=spent.attempts + attempts,
        cost_usd=spent.cost_usd + (cost or 0.0),
        tokens=spent.tokens + (tokens or 0),
        cost_known=spent.cost_known or cost is not None,
        tokens_known=spent.tokens_known or tokens is not None,
        partial=spent.partial or usage.partial,
        estimated=spent.estimated or usage.estimated or guessed,
        priced=spent.priced + (whole is not None),
        cheapest_usd=_extreme(min, spent.cheapest_usd, whole),
        dearest_usd=_extreme(max, spent.dearest_usd, told),
        most_tokens=max(spent.most_tokens or 0, usage.tokens or 0) or None,
    )


def overrun(allowance: Allowance, spent: Spent, usage: Usage) -> str | None:
    """In words, the cost or token budget that a running attempt has reached; None while it is within all."""
    cost, tokens = usage.cost_usd, usage.tokens
    if cost is not None and allowance.attempt_cost_usd is not None and cost >= allowance.attempt_cost_usd:
        return f"{cost:.2f} USD reached the {allowance.attempt_cost_usd:.2f} USD of one attempt"
    if cost is not None and allowance.cost_usd is not None and spent.cost_usd + cost >= allowance.cost_usd:
        return f"{spent.cost_usd + cost:.2f} USD reached the run's {allowance.cost_usd:.2f} USD"
    if tokens is not None and allowance.tokens is not None and spent.tokens + tokens >= allowance.tokens:
        return f"{spent.tokens + tokens} tokens reached the run's {allowance.tokens}"
    return None


def _cost_text(left: float, budget: float, spent: Spent) -> str:
    if left <= 1e-9:
        return f"{spent.cost_usd:.2f} of {budget:.2f} USD are used"
    return f"{left:.2f} USD are left, less than the cheapest attempt so far ({spent.cheapest_usd:.2f} USD)"


def _share(budget: float | None, spent: float, wanted: float | None) -> float | None:
    if budget is None:
        return wanted
    return min(budget - spent, wanted if wanted is not None else budget * FIRST_RESERVE_SHARE)


def _token_share(budget: int | None, spent: Spent) -> int | None:
    if budget is None:
        return None
    return min(budget - spent.tokens, spent.most_tokens or max(1, int(budget * FIRST_RESERVE_SHARE)))


def _extreme(choose: Callable[[float, float], float], known: float | None, told: float | None) -> float | None:
    if told is None:
        return known
    return told if known is None else choose(known, told)
