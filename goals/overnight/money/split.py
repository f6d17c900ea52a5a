"""Dividing without losing a cent."""


def split(total, parts):
    """`total` cents in `parts` parts that differ by at most one cent and add up to it."""
    share, rest = divmod(total, parts)
    return [share + 1] * rest + [share] * (parts - rest)
