"""Numbers and instants in words."""

from datetime import UTC, datetime

import pytest

from loopd.cli.words import ago, clean, cost_text, count, span, tokens_text, until, usd

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (2460, "41 min"),
        (7200, "2 h"),
        (7500, "2 h 05 min"),
        (172800, "2 d"),
        (273600, "3 d 4 h"),
    ],
)
def test_a_length_of_time_is_said_in_the_units_a_person_would_take(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_an_instant_is_said_as_a_distance_from_now() -> None:
    assert ago("2026-01-02T11:57:00.000Z", NOW) == "3 min ago"
    assert ago("2026-01-02T11:59:58.000Z", NOW) == "just now"
    assert "(in 12 min)" in until("2026-01-02T12:12:00+00:00", NOW)
    assert "(now)" in until("2026-01-02T11:00:00+00:00", NOW)


def budget(used: float | None, allowed: float | None, **marks: bool) -> dict[str, object]:
    return {"cost_usd": {"used": used, "allowed": allowed, **marks}, "tokens": {"used": used, "allowed": allowed}}


@pytest.mark.parametrize(
    ("told", "cost"),
    [
        (budget(2.1, 20.0), "cost 2.10 of 20.00 USD"),
        (budget(None, 20.0), "cost unknown of 20.00 USD"),
        (budget(None, None, estimated=True), "cost unknown, no limit"),
        (budget(0.004, None, partial=True), "cost 0.0040 USD, no limit (partial)"),
        (budget(2.0, 20.0, partial=True, estimated=True), "cost 2.00 of 20.00 USD (partial, estimated)"),
    ],
)
def test_a_cost_that_is_unknown_partial_or_estimated_is_said_to_be_so(told: dict[str, object], cost: str) -> None:
    assert cost_text(told) == cost


def test_tokens_that_nobody_told_are_unknown_and_never_zero() -> None:
    assert tokens_text(budget(None, None)) == "tokens unknown, no limit"
    assert tokens_text(budget(1_234_567, 20e6)) == "tokens 1.2M of 20.0M"
    assert (count(950), count(12_000), usd(0)) == ("950", "12k", "0.00")


@pytest.mark.parametrize("text", ["a\x1b[31mb", "a\x1b]52;c;AAAA\x07b", "a\u202eb", "a\nb", "a\udcffb"])
def test_a_cleaned_line_holds_nothing_that_acts_on_a_terminal(text: str) -> None:
    cleaned = clean(text)
    assert cleaned.isprintable()
    cleaned.encode("utf-8")
