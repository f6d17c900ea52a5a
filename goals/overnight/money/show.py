"""Cents to text."""


def show(cents, currency="EUR"):
    """1230 as `12.30 EUR`."""
    return f"{cents // 100}.{cents % 100:02} {currency}"
