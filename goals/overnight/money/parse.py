"""Text to cents."""


def parse_amount(text):
    """`12.30 EUR` as 1230 and EUR. Raises ValueError for anything else."""
    number, currency = text.split(" ")
    whole, _, cents = number.partition(".")
    if len(cents) != 2:
        raise ValueError(f"two digits are needed after the point: {text}")
    return int(whole + cents), currency
