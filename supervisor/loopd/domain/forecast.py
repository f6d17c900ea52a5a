"""One line of forecast, from what preparing and the baseline have measured."""

from loopd.domain.quantities import format_size


def forecast(*, check_s: float, setup_s: float, attempts: int, disk_bytes: int, setup_cached: bool = False) -> str:
    """How long checking will take, and how much disk the trees use.

    `check_s` is one verification without the setup. "one verification ≈ 6 min (setup 3 min, once) · 30 attempts ≈ 3 h
    of checking · disk 4.1 GB".
    """
    setup = ""
    if setup_s >= 1:
        setup = f" (setup {_roughly(setup_s)}, {'cached' if setup_cached else 'once'})"
    plural = "attempt" if attempts == 1 else "attempts"
    return (
        f"one verification ≈ {_roughly(check_s)}{setup} · "
        f"{attempts} {plural} ≈ {_roughly(check_s * attempts)} of checking · disk {format_size(disk_bytes)}"
    )


def _roughly(seconds: float) -> str:
    """Two digits at most: `45 s`, `6 min`, `1.5 h`."""
    if seconds < 1:
        return "1 s"
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            amount = seconds / size
            return (
                f"{amount:.0f} {unit}" if amount >= 10 or abs(amount - round(amount)) < 0.05 else f"{amount:.1f} {unit}"
            )
    return f"{seconds:.0f} s"
