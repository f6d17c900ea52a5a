"""The text of `loopd show`. Whatever a program printed goes through the safe view on its way into the template."""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from loopd.adapters.state import RunFolder
from loopd.cli.account import tampered
from loopd.cli.telling import exit_text, named, number_of, usage_text, verdict_line
from loopd.cli.words import attempts_text, cost_text, local, span, time_text, tokens_text
from loopd.domain.text import redact, safe_line

_TEMPLATES = Path(__file__).parents[1] / "templates"
_LIMIT = 400
_FINDINGS = 10


def shown(
    status: Mapping[str, Any], told: Mapping[str, Any], *, attempt: int | None = None, tamper: bool = False
) -> str:
    """A run as text; only one attempt, or only those that touched what they must not, when asked."""
    attempts = [one for one in told["attempts"] if attempt in (None, one["attempt"])]
    if tamper:
        attempts = [one for one in attempts if tampered(one)]
    only = tamper or attempt is not None
    budget = status["budget"]
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        autoescape=False,  # a terminal, not a page: `finalize` makes values safe
        finalize=_safe,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("show.txt.j2").render(
        status=status,
        told=told,
        only=only,
        tamper=tamper,
        budget=" · ".join((attempts_text(budget), time_text(budget), cost_text(budget), tokens_text(budget))),
        settings=[(one["name"], one["value"], one["source"]) for one in told["settings"]],
        baseline=[("criterion", "verdict", "why"), *map(_baseline, told["baseline"])],
        attempts=[_HEADER, *(_row(one, told["criteria"], open_=_open(status)) for one in attempts)] if attempts else [],
        detailed=[_detailed(one, status) for one in attempts if only or _remarkable(one)],
        decisions=[_decision(one) for one in told["decisions"] if attempt in (None, one["attempt"])],
        owner=[f"{_clock(one['at'])} {one['kind'].partition('.')[2]}: {_owner(one)}" for one in told["owner"]],
        endings=[_ending(one) for one in told["endings"]],
        fetch_back=fetch_back(status, told),
        table=_table,
    )


def fetch_back(status: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    """One shell command that makes the tree from before attempt 1 anew in the folder where it is typed.

    Empty where there is no store to take it from: the weak form keeps contents in a file of its own.
    """
    store = RunFolder(Path(status["folder"])).trees / "store.git"
    if not told["tree"].get("baseline") or not store.is_dir():
        return ""
    target = f"{status['run']}-before"
    restore = ["restore", f"--source={told['tree']['baseline']}", "--worktree", "--", ":/"]
    words = ["git", f"--git-dir={store}", f"--work-tree={target}", "-c", "core.hooksPath=/dev/null", *restore]
    return _Made(f"mkdir {shlex.quote(target)} && {shlex.join(words)}")


class _Made(str):
    """Text that is safe already."""

    __slots__ = ()


_HEADER = ("#", "outcome", "took", "usage", "changed", "criteria that hold")


def _open(status: Mapping[str, Any]) -> str:
    """What to call an attempt without an outcome."""
    return "at work" if status["alive"] else "left open"


def _row(one: Mapping[str, Any], criteria: Sequence[str], *, open_: str) -> tuple[str, ...]:
    verdicts = {**one["verdicts"], **one["fresh"]}
    holding = [name for name in criteria if name in verdicts and verdicts[name]["status"] == "pass"]
    held = f"{len(holding)} of {len(criteria)}" + (f": {', '.join(holding)}" if holding else "")
    outcome = "voided" if one["voided"] else (one["outcome"] or open_).replace("_", " ")
    took = span(one["exit"].get("duration_s", 0)) if one["exit"] else "-"
    files = number_of(len(one["changed"]), "file")
    return str(one["attempt"]), outcome, took, usage_text(one["usage"]) or "unknown", files, held


def _remarkable(one: Mapping[str, Any]) -> bool:
    """Worth more than its row: something was put back, ended or refused, or the reason is not plain."""
    return bool(tampered(one) or one["reason"] or one["ended"] or one["refused"] or one["adopted"])


def _detailed(one: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    return {"attempt": one["attempt"], "lines": [line for line in _lines(one, status) if line]}


def _lines(one: Mapping[str, Any], status: Mapping[str, Any]) -> list[str]:
    number, folder = one["attempt"], status["folder"]
    left = f", {exit_text(one['exit'])}" if one["exit"] else ""
    lines = [
        f"outcome: {one['outcome'] or _open(status)}{left}{', ' + one['reason'] if one['reason'] else ''}",
        f"held by: {one['containment']}{', adopted' if one['adopted'] else ''}" if one["containment"] else "",
        f"changed: {', '.join(one['changed'])}" if one["changed"] else "",
        f"tampering: {one['tampered']}" if one["tampered"] else "",
        f"put back: {', '.join(one['restored'])}; the changed versions: {folder}/attempts/{number:04}/restored"
        if one["restored"]
        else "",
        f"no part of the proof: {named(one['unproven'])}" if one["unproven"] else "",
        f"not carried: {named(one['refused'])}" if one["refused"] else "",
        f"background work ended: {named(one['ended'])}" if one["ended"] else "",
    ]
    for kind in ("verdicts", "fresh"):
        for verdict in one[kind].values():
            lines += _verdict(verdict, folder, " on a fresh tree" if kind == "fresh" else "")
    return [
        *lines,
        f"instruction: {folder}/{one['instruction']}",
        f"output: loopd logs {status['run']} --attempt {number}",
    ]


def _verdict(verdict: Mapping[str, Any], folder: str, note: str) -> list[str]:
    where = f"; evidence: {folder}/{verdict['output']}" if verdict.get("output") else ""
    lines = [verdict_line(verdict, note).text + where]
    findings = [one for one in verdict.get("findings", ()) if one["level"] == "error"]
    for finding in findings[:_FINDINGS]:
        place = f"{finding['file']}:{finding['line']} " if finding.get("file") else ""
        lines.append(f"  {place}{finding.get('rule', '')} {finding['message']}")
    more = len(findings) - _FINDINGS
    return [*lines, f"  and {more} more findings"] if more > 0 else lines


def _baseline(verdict: Mapping[str, Any]) -> tuple[str, str, str]:
    return verdict["criterion"], verdict["status"], verdict.get("reason") or verdict.get("summary", "")


def _decision(one: Mapping[str, Any]) -> str:
    rung = f" ({one['rung']})" if one.get("rung") else ""
    after = f"after attempt {one['attempt']}" if one["attempt"] else "before the first attempt"
    return f"{_clock(one['at'])} {after}: {one['decision']}{rung}: {one['reason']}"


def _owner(one: Mapping[str, Any]) -> str:
    if one["kind"] == "owner.steered":
        return str(one["text"])
    if one["kind"] == "owner.edited":
        return named(one.get("paths", ()))
    return ", ".join(f"{key} +{value}" for key, value in one.get("by", {}).items()) or "done"


def _ending(one: Mapping[str, Any]) -> str:
    state = one.get("state") or "interrupted"
    remedy = f"; {one['remedy']}" if one.get("remedy") else ""
    return f"{_clock(one['at'])} {state}: {one.get('reason', '')}{remedy}"


def _clock(at: str) -> str:
    return f"{local(at):%Y-%m-%d %H:%M:%S}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their longest cell; the last one is not padded."""
    cells = [[_line(cell, 80) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)
    return _Made("\n".join(lines))


def _safe(value: object) -> object:
    return value if isinstance(value, _Made) else _line(str(value), _LIMIT)


def _line(text: str, limit: int) -> str:
    indent = text[: len(text) - len(text.lstrip(" "))]
    return indent + redact(safe_line(os.fsdecode(text), limit))
