"""The results as a table, as Markdown and as JSON, with the machine they come from."""

import json
import os
import platform
import sqlite3
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from bars import BARS
from bench import Bench, Figure, Samples

QUIET = (0.8, 1.25)  # the ratio of a thing to itself, on a machine that can be measured on


def is_noisy(noise: Sequence[float]) -> bool:
    """Whether the A/A check says that ratios mean little now."""
    return bool(noise) and not QUIET[0] <= median(noise) <= QUIET[1]


def grade(figure: Figure, noisy: bool) -> str:
    """One word: stretch, held, MISSED, noisy, or why there is nothing to grade."""
    if figure.skipped:
        return "skipped"
    if not figure.values:
        return "FAILED"
    word = BARS[figure.bar].grade(figure.value)
    return "noisy" if word == "MISSED" and noisy and BARS[figure.bar].ratio else word


def rows(figures: Sequence[Figure], noisy: bool) -> list[tuple[str, ...]]:
    """What is printed and what is written: the same words."""
    table: list[tuple[str, ...]] = []
    for figure in figures:
        bar = BARS[figure.bar]
        sign = "≤" if bar.lower else "≥"
        found = f"{_short(figure.value)} {bar.unit}" if figure.values else "–"
        spread = f"{_short(min(figure.values))} – {_short(max(figure.values))}" if len(figure.values) > 1 else ""
        limits = f"{sign} {_short(bar.bar)}", f"{sign} {_short(bar.stretch)}"
        note = figure.skipped or figure.note
        table.append((figure.bar, bar.title, found, spread, *limits, grade(figure, noisy), note))
    return table


HEADINGS = ("goal", "what", "median", "rounds from – to", "bar", "stretch", "result", "note")


def as_text(table: Sequence[Sequence[str]]) -> str:
    """For a terminal: without the title's column, which is long."""
    narrow = [[row[0], *row[2:]] for row in (HEADINGS, *table)]
    widths = [max(len(row[place]) for row in narrow) for place in range(len(narrow[0]) - 1)]
    lines = (
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in narrow
    )
    return "\n".join(line.rstrip() for line in lines)


def as_markdown(table: Sequence[Sequence[str]], facts: Mapping[str, Any], errors: Mapping[str, str]) -> str:
    """The page that is kept."""
    lines = ["# Results", "", "Written by `make bench`; ratios of one run on one machine, never across days.", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", f"| {' | '.join(HEADINGS)} |", f"| {' | '.join('---' for _ in HEADINGS)} |"]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in table]
    lines += [f"\n`{trial}` failed: {error.splitlines()[0]}" for trial, error in errors.items()]
    return "\n".join(lines) + "\n"


def write(
    folder: Path,
    figures: Sequence[Figure],
    facts: Mapping[str, Any],
    samples: Samples,
    errors: Mapping[str, str],
    noisy: bool,
) -> None:
    """`RESULTS.md` for people, `results.json` with every number of every round."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "RESULTS.md").write_text(as_markdown(rows(figures, noisy), facts, errors))
    kept = [
        {
            "bar": figure.bar,
            "result": grade(figure, noisy),
            "values": figure.values,
            "note": figure.note,
            "skipped": figure.skipped,
        }
        for figure in figures
    ]
    content = {"facts": facts, "figures": kept, "errors": errors, "samples": samples}
    (folder / "results.json").write_text(json.dumps(content, indent=1) + "\n")


def machine(bench: Bench, rounds: int, noise: Sequence[float], load_before: float) -> dict[str, Any]:
    """Where and when; without it a figure means nothing."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "loopd": _first_line([*bench.loopd, "--version"]),
        "python": _first_line([bench.python, "--version"]),
        "sqlite": sqlite3.sqlite_version,
        "git": _first_line(["git", "--version"]),
        "kernel": platform.release(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load before and after": f"{load_before:.2f}, {os.getloadavg()[0]:.2f}",
        "meter": bench.meter.kind,
        "rounds": rounds,
        "size": "full" if bench.sizes.is_full else "smoke",
        "bash against itself": f"{_short(median(noise))}{' NOISY' if is_noisy(noise) else ''}"
        if noise
        else "not measured",
    }


def _first_line(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except OSError as error:
        return f"not there ({error.strerror})"
    return ((done.stdout or done.stderr).strip().splitlines() or ["silent"])[0]


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _short(value: float) -> str:
    return f"{value:.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.2f}"
