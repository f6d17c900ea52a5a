"""Whether a contract agrees with itself: names, what its parts say of each other, senseless combinations."""

import re
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter

from loopd.domain.contract import Criterion, Goal
from loopd.domain.written import Loc

Fault = tuple[Loc, str]

PLACEHOLDERS = ("{out}", "{sealed}", "{baseline}", "{tree}")
_PLACEHOLDER = re.compile(r"\{[A-Za-z_]+\}")
_INTERPRETERS = frozenset({"sh", "bash", "env", "python", "python3", "node", "npx", "uv", "uvx", "poetry", "run"})


def named(goal: Goal) -> Goal:
    """The goal with a name for every criterion; a generated one depends on the commands and their order."""
    taken = {criterion.name for criterion in goal.criteria if criterion.name}
    criteria = []
    for criterion in goal.criteria:
        name = criterion.name or _free(_name_from(criterion), taken)
        taken.add(name)
        criteria.append(criterion if criterion.name else criterion.model_copy(update={"name": name}))
    return goal.model_copy(update={"criteria": tuple(criteria)})


def _name_from(criterion: Criterion) -> str:
    """`pytest -q tests/unit` → `pytest-unit`; `python -m mypy src` → `mypy-src`."""
    words = [word for word in criterion.run or (criterion.use or "",) if not word.startswith("-") and "{" not in word]
    short = [word.rstrip("/").rsplit("/", 1)[-1] for word in words]
    telling = [word for word in short if word not in _INTERPRETERS] or short
    slug = re.sub(r"[^a-z0-9]+", "-", " ".join(telling[:2]).lower()).strip("-")
    return slug[:40].rstrip("-") or "criterion"


def _free(name: str, taken: set[str]) -> str:
    count = 2
    free = name
    while free in taken:
        free, count = f"{name}-{count}", count + 1
    return free


def inconsistencies(goal: Goal) -> Iterator[Fault]:
    """Every fault that shows without looking at the disk: where it stands, and what would be right."""
    yield from _names_given_twice(goal)
    yield from _unknown_names(goal)
    yield from _cycles(goal)
    for index, criterion in enumerate(goal.criteria):
        for loc, message in _criterion_faults(criterion):
            yield ("criteria", index, *loc), message
    yield from _combinations(goal)


def _names_given_twice(goal: Goal) -> Iterator[Fault]:
    names = {"criteria": [item.name for item in goal.criteria], "stages": [item.name for item in goal.stages]}
    for key, given in names.items():
        first: dict[str, int] = {}
        for index, name in enumerate(given):
            if name and first.setdefault(name, index) != index:
                yield (
                    (key, index, "name"),
                    f"{key} [{first[name]}] and [{index}] share this name; give each its own",
                )


def _unknown_names(goal: Goal) -> Iterator[Fault]:
    """Criteria that are spoken of and do not exist. Generated names may be spoken of too."""
    known = list(dict.fromkeys(criterion.name for criterion in named(goal).criteria))
    spoken: list[tuple[Loc, str]] = [
        (("criteria", index, "needs", place), need)
        for index, criterion in enumerate(goal.criteria)
        for place, need in enumerate(criterion.needs)
    ]
    for index, stage in enumerate(goal.stages):
        spoken += [(("stages", index, "criteria", place), name) for place, name in enumerate(stage.criteria)]
    spoken += [
        (("constraints", index, "check"), rule.check) for index, rule in enumerate(goal.constraints) if rule.check
    ]
    if goal.progress:
        spoken.append((("progress", "metric"), goal.progress.metric.split(".")[0]))
    for loc, name in spoken:
        if name not in known:
            yield (
                loc,
                f"no criterion has this name{did_you_mean(name, known) or '; there are ' + ', '.join(known)}",
            )


def _cycles(goal: Goal) -> Iterator[Fault]:
    criteria = named(goal).criteria
    try:
        TopologicalSorter({criterion.name: criterion.needs for criterion in criteria}).prepare()
    except CycleError as error:
        circle = error.args[1]
        index = next(index for index, criterion in enumerate(criteria) if criterion.name in circle)
        yield ("criteria", index, "needs"), f"criteria need each other in a circle: {' → '.join(circle)}"


def _criterion_faults(criterion: Criterion) -> Iterator[Fault]:
    yield from _placeholder_faults(("run",), criterion.run or ())
    if criterion.report:
        yield from _placeholder_faults(("report",), (criterion.report.file,))
    if any("{sealed}" in word for word in criterion.run or ()) and not criterion.sealed:
        yield ("run",), "{sealed} stands for the folder named by `sealed`, which is missing"
    if criterion.with_ and criterion.run and criterion.protocol == "none":
        yield (
            ("with",),
            "a plain command reads no parameters; add `protocol: loopd`, or put them into the command",
        )
    if criterion.rule == "majority" and criterion.runs < 3:
        yield ("rule",), "a majority needs at least 3 runs; write runs: 3"
    if criterion.max_checks and criterion.visibility != "hidden":
        yield ("max_checks",), "only hidden criteria are counted; add `visibility: hidden`, or leave it out"
    if criterion.role and criterion.run:
        yield ("role",), "a command has no role; a role belongs to `use: judge`"


def _placeholder_faults(loc: Loc, words: Iterable[str]) -> Iterator[Fault]:
    for word in words:
        for found in _PLACEHOLDER.findall(word):
            if found not in PLACEHOLDERS:
                known = did_you_mean(found, PLACEHOLDERS) or f"; there are {', '.join(PLACEHOLDERS)}"
                literal = f"{{ {found[1:-1]} }}"
                yield loc, f"{found} is no placeholder{known}; write {literal} if it is meant as it stands"


def _combinations(goal: Goal) -> Iterator[Fault]:
    if goal.keep == "better" and goal.isolation == "inplace":
        yield ("keep",), "attempts can be undone in a tree of loopd's own only; write isolation: clone"
    if goal.environment.services and goal.environment.network == "none":
        yield ("environment", "services"), "verifiers reach services through the network; write network: host"
    names = [rung.name for rung in goal.ladder]
    if "stop" in names[:-1]:
        yield (
            ("ladder", names.index("stop") + 1),
            "nothing is tried after stop; put stop last, or leave it out",
        )
    if all(criterion.baseline == "pass" for criterion in goal.criteria):
        yield (
            ("criteria",),
            "every criterion promises to pass already: nothing tells done from now; one must fail at first",
        )


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that `word` is a near miss of, or ""."""
    from difflib import get_close_matches  # for mistakes only

    return next(iter(get_close_matches(word, list(known), n=1, cutoff=0.6)), "")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for a near miss, else nothing."""
    near = nearest(word, known)
    return f"; did you mean {near}?" if near else ""
