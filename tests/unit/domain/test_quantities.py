"""Durations, money, tokens, sizes: strict on the way in, readable on the way out."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopd.domain.quantities import (
    QuantityError,
    format_duration,
    format_money,
    format_size,
    format_tokens,
    kind_of,
    parse_duration,
    parse_money,
    parse_size,
    parse_tokens,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45s", 45),
        ("10m", 600),
        ("8h", 28800),
        ("1h30m", 5400),
        ("1h30m15s", 5415),
        ("2d", 172800),
        ("1d12h", 129600),
        ("0.5s", 0.5),
        ("1.5h", 5400),
    ],
)
def test_a_duration_with_units_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (30, "the unit is missing; write 30s, 30m or 30h"),
        (2.5, "the unit is missing; write 2.5s, 2.5m or 2.5h"),
        ("0755", "the unit is missing; write 755s, 755m or 755h"),
        ("0", "the unit is missing; write 0s"),
        ("-5", "the unit is missing"),
        ("1:30", "write 1h30m for hours and minutes, 1m30s for minutes and seconds"),
        ("1:30:05", "write 1h30m5s"),
        (True, "got a boolean"),
        (None, "got nothing"),
        (["10m"], "got a list"),
        (math.inf, "a finite number is needed"),
        (math.nan, "a finite number is needed"),
        ("", "a duration with its unit is needed"),
        ("10 m", "a duration with its unit is needed"),
        ("10min", "a duration with its unit is needed"),
        ("30m1h", "a duration with its unit is needed"),
        ("-10m", "a duration with its unit is needed"),
        ("١٠m", "a duration with its unit is needed"),
        ("10m\n", "a duration with its unit is needed"),
        ("0s", "above zero"),
        ("9999d", "at most 366 days"),
        ("9" * 400 + "s", "at most 366 days"),
    ],
)
def test_trial_07_a_duration_that_is_not_one_says_what_would_be_right(value: object, message: str) -> None:
    """A number without a unit, a clock time or a boolean is never a duration."""
    with pytest.raises(QuantityError, match=message):
        parse_duration(value)


@pytest.mark.parametrize(("text", "usd"), [("20 USD", 20.0), ("0.50 USD", 0.5), ("1.234 USD", 1.234)])
def test_an_amount_with_its_currency_is_read(text: str, usd: float) -> None:
    assert parse_money(text) == usd


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (20, "the currency is missing; write 20 USD"),
        (0.5, "the currency is missing; write 0.5 USD"),
        ("20", "the currency is missing"),
        ("20 EUR", "in US dollars"),
        ("$20", "in US dollars"),
        ("20USD", "in US dollars"),
        ("0 USD", "above zero"),
        ("9" * 400 + " USD", "finite amount"),
        ("no", "in US dollars"),
        (False, "got a boolean"),
        (math.nan, "a finite number is needed"),
        (math.inf, "a finite number is needed"),
    ],
)
def test_conf_3_an_amount_that_is_not_one_says_what_would_be_right(value: object, message: str) -> None:
    """Not a number and infinity switch no cap off."""
    with pytest.raises(QuantityError, match=message):
        parse_money(value)


@pytest.mark.parametrize(
    ("value", "count"), [("20M", 20_000_000), ("500k", 500_000), (1_200_000, 1_200_000), ("1.5M", 1_500_000), ("7", 7)]
)
def test_a_number_of_tokens_is_read(value: object, count: int) -> None:
    assert parse_tokens(value) == count


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (True, "got a boolean"),
        (0, "at least 1"),
        (-3, "at least 1"),
        ("0.5", "at least 1"),
        ("1.0005k", "whole number"),
        ("20m", "such as 1200000, 500k or 20M"),
        ("20 M", "such as 1200000, 500k or 20M"),
        (1.5, "whole number"),
        (10**16, "whole number"),
        (math.inf, "finite"),
    ],
)
def test_conf_2_a_number_of_tokens_that_is_not_one_says_what_would_be_right(value: object, message: str) -> None:
    """A boolean is no number."""
    with pytest.raises(QuantityError, match=message):
        parse_tokens(value)


@pytest.mark.parametrize(
    ("text", "count"), [("500 MB", 500_000_000), ("2GiB", 2**31), ("1 kB", 1000), ("1.5 KiB", 1536), ("10 B", 10)]
)
def test_a_size_is_read(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("value", ["500", 500, "500 mb", True, "9999999999 TB"])
def test_a_size_without_a_unit_or_beyond_all_disks_is_refused(value: object) -> None:
    with pytest.raises(QuantityError):
        parse_size(value)


@pytest.mark.parametrize(
    ("seconds", "text"), [(5400, "1h30m"), (45.0, "45s"), (0.5, "0.5s"), (0, "0s"), (3600, "1h"), (90061, "25h1m1s")]
)
def test_a_duration_is_shown_in_its_shortest_form(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(1, 366 * 86400))
def test_a_duration_that_is_shown_reads_back(seconds: int) -> None:
    assert parse_duration(format_duration(float(seconds))) == seconds


@given(st.integers(1, 10**9), st.integers(0, 6))
def test_an_amount_that_is_shown_reads_back(digits: int, places: int) -> None:
    amount = digits / 10**places
    assert parse_money(format_money(amount)) == pytest.approx(amount, rel=1e-12)


@given(st.integers(1, 10**14))
def test_tokens_that_are_shown_read_back(count: int) -> None:
    assert parse_tokens(format_tokens(count)) == count


@pytest.mark.parametrize(
    ("amount", "text"), [(20.0, "20 USD"), (0.5, "0.50 USD"), (0.0004, "0.0004 USD"), (1.25, "1.25 USD")]
)
def test_an_amount_is_shown_with_as_many_digits_as_it_needs(amount: float, text: str) -> None:
    assert format_money(amount) == text


@pytest.mark.parametrize(("count", "text"), [(20_000_000, "20M"), (1_500, "1500"), (500_000, "500k"), (0, "0")])
def test_tokens_are_shown_exactly(count: int, text: str) -> None:
    assert format_tokens(count) == text


@pytest.mark.parametrize(("count", "text"), [(4.1e9, "4.1 GB"), (512, "512 B"), (2_000, "2.0 kB"), (3e12, "3.0 TB")])
def test_a_size_is_shown_for_people(count: float, text: str) -> None:
    assert format_size(count) == text


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, "a boolean"),
        (3, "a number"),
        (math.nan, "a number that is not finite"),
        ({}, "a mapping"),
        (b"", "something else"),
    ],
)
def test_what_yaml_made_of_a_value_is_said_in_words(value: object, words: str) -> None:
    assert kind_of(value) == words
