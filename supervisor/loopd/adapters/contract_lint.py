"""What `loopd check` warns of in a contract that holds: only what is cheap to see and certain."""

import re
import shlex
from collections.abc import Iterator

from loopd.adapters.contract_file import Loaded
from loopd.adapters.contract_rules import matches, named_files
from loopd.domain.contract import Criterion, Goal
from loopd.domain.errors import Problem
from loopd.domain.quantities import format_duration
from loopd.domain.scope import matches as fits
from loopd.domain.written import Loc

Warned = tuple[Loc, str]
_SHELLS = frozenset({"sh", "bash", "dash", "zsh"})
_ALWAYS = re.compile(r"(\|\|\s*(true|:|exit 0)|;\s*(true|:|exit 0))\s*;?\s*$")


def warnings(loaded: Loaded) -> tuple[Problem, ...]:
    """Each thing that is allowed and probably not meant, in the order of the file."""
    found = [*_of_criteria(loaded), *_of_scope(loaded), *_of_budget(loaded.goal), *_of_boundary(loaded.goal)]
    problems = [loaded.places.at_key(loc, message) for loc, message in found]
    return tuple(sorted(problems, key=lambda problem: (problem.line, problem.column)))


def _of_criteria(loaded: Loaded) -> Iterator[Warned]:
    seen: dict[tuple[str, ...], str] = {}
    for index, criterion in enumerate(loaded.goal.criteria):
        for key, message in (*_of_report(criterion), *_of_command(criterion, loaded)):
            yield ("criteria", index, key), f"{criterion.name}: {message}"
        if criterion.run and criterion.run in seen:
            yield ("criteria", index, "run"), f"{criterion.name}: this is the command of {seen[criterion.run]} again"
        seen.setdefault(criterion.run or (), criterion.name)


def _of_report(criterion: Criterion) -> Iterator[tuple[str, str]]:
    if criterion.report and criterion.run:
        file = criterion.report.file
        name = file.rsplit("/", 1)[-1]
        if not any("{out}" in word or name in word for word in criterion.run):
            yield "report", f"no command writes the report {file}: neither {{out}} nor {name} is in `run`"


def _of_command(criterion: Criterion, loaded: Loaded) -> Iterator[tuple[str, str]]:
    words = criterion.run or ()
    if words[:1] in (("true",), (":",)) or _passes_always(words):
        yield "run", "the command passes whatever the tree holds"
    for word in words[1:]:
        if "*" in word and words[0].rsplit("/", 1)[-1] not in _SHELLS and matches(loaded.root, word):
            yield (
                "run",
                f"no shell puts file names in the place of {word}; write [sh, -c, {shlex.quote('…')}] or name them",
            )


def _passes_always(words: tuple[str, ...]) -> bool:
    shell = words[:1] != () and words[0].rsplit("/", 1)[-1] in _SHELLS
    return shell and len(words) > 2 and words[1].endswith("c") and bool(_ALWAYS.search(words[2]))


def _of_budget(goal: Goal) -> Iterator[Warned]:
    budget, attempt = goal.budget, goal.budget.attempt
    if budget.cost_usd is None and budget.tokens is None:
        limits = f"{budget.attempts} attempts and {format_duration(budget.time_s)}"
        yield (
            ("budget",),
            f"cost and tokens are unlimited; only {limits} bound this run. budget: {{cost: 20 USD}} limits it",
        )
    if "time_s" in attempt.model_fields_set and attempt.time_s > budget.time_s:
        yield ("budget", "attempt", "time"), "one attempt may take longer than the whole run"
    if budget.cost_usd is not None and (attempt.cost_usd or 0) > budget.cost_usd:
        yield ("budget", "attempt", "cost"), "one attempt may cost more than the whole run"
    if attempt.idle_s is None:
        yield ("budget", "attempt", "idle"), f"a silent agent is ended after {format_duration(attempt.time_s)} only"


def _of_scope(loaded: Loaded) -> Iterator[Warned]:
    """What a criterion runs stays as it is, whatever the scope says."""
    allowed = loaded.goal.scope.allow or ()
    for index, criterion in enumerate(loaded.goal.criteria):
        for name in named_files(criterion, loaded.root) if allowed else ():
            if fits(name, allowed):
                message = (
                    f"{criterion.name}: {name} stays protected although the scope allows it, since the check runs it"
                )
                yield ("criteria", index, "run"), message


def _of_boundary(goal: Goal) -> Iterator[Warned]:
    if goal.verification == "workspace":
        yield ("verification",), "weak boundary: verifiers run in the tree that the agent writes"
    if goal.scope.allow == ():
        yield ("scope", "allow"), "nothing may change, so no attempt can have an effect"
