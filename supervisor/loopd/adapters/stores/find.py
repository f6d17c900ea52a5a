"""Which run a person means by a name."""

from collections.abc import Iterable, Sequence
from itertools import islice

from loopd.domain.errors import UsageError
from loopd.ports.store import RunEntry


def find_run(runs: Sequence[RunEntry], name: str) -> RunEntry:
    """`last` (the most recently changed run), an id, a goal (its newest run) or a unique prefix of an id, in turn.

    `runs` come the most recently changed first. Raises `UsageError` naming near misses.
    """
    if name == "last" and runs:
        return runs[0]
    if same := [entry for entry in runs if entry.run == name]:
        return same[0]
    if same := [entry for entry in runs if entry.goal == name]:
        return max(same, key=lambda entry: entry.started_at)
    fitting = [entry for entry in runs if name and entry.run.startswith(name)]
    if len(fitting) == 1:
        return fitting[0]
    raise UsageError(_refusal(runs, name, fitting))


def _refusal(runs: Sequence[RunEntry], name: str, fitting: Sequence[RunEntry]) -> str:
    if fitting:
        return f"{name!r} fits more than one run: {_list(entry.run for entry in fitting)}"
    if not runs:
        return f"there is no run {name!r}: there are no runs yet; start one with `loopd run`"
    from difflib import get_close_matches  # not worth its import on the way to a success

    names = dict.fromkeys(name for entry in runs for name in (entry.run, entry.goal))
    near = get_close_matches(name, names, n=3)
    hint = f"did you mean {_list(near)}?" if near else f"the newest are {_list(entry.run for entry in runs)}"
    return f"there is no run {name!r}; {hint}"


def _list(names: Iterable[str]) -> str:
    shown = list(islice(names, 6))
    return ", ".join(shown[:5]) + (", …" if len(shown) > 5 else "")
