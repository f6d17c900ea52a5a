"""Contracts as files, for the tests that read them."""

from pathlib import Path
from typing import Any

import pytest

from loopd.adapters.contract_file import Loaded, load_contract
from loopd.domain.errors import ContractError

REPOSITORY = Path(__file__).parents[1]
SMALL = """\
goal: small
objective: The end.
agent: {command: [sh, agent.sh]}
criteria:
  - run: pytest -q
"""
# The budget lines of trial 07: how one is written, and what its message must say. `turns` stands for `attempts`.
TRIAL_07 = [
    ("attempts: true", "budget.attempts is `true`: a whole number is needed, got a boolean"),
    ("attempts: false", "budget.attempts is `false`: a whole number is needed, got a boolean"),
    ("attempts: 0", "budget.attempts is `0`: at least 1"),
    ("attempts: -1", "budget.attempts is `-1`: at least 1"),
    ("attempts: 2.5", "budget.attempts is `2.5`: a whole number is needed"),
    ('attempts: "5"', 'budget.attempts is `"5"`: a whole number is needed, got text'),
    ("attempts: none", "budget.attempts is `none`: a whole number is needed, got text"),
    ("attempts: .inf", "budget.attempts is `.inf`: a finite number"),
    ("cost: .nan", "budget.cost is `.nan`: a finite number"),
    ("cost: .inf", "budget.cost is `.inf`: a finite number"),
    ("cost: no", "budget.cost is `no`: an amount in US dollars is needed, such as 20 USD or 0.50 USD; got a boolean"),
    ("time: 1:30", "budget.time is `1:30`: a duration with its unit is needed; write 1h30m"),
    ("time: 30", "budget.time is `30`: the unit is missing; write 30s, 30m or 30h"),
    ("time: 0755", "budget.time is `0755`: the unit is missing; write 755s"),
    ("tunrs: 3", "unknown key budget.tunrs; did you mean turns? write attempts: N"),
    ("attemps: 3", "unknown key budget.attemps; did you mean attempts?"),
    ("turns: 3", "unknown key budget.turns; write attempts: N for the run, or attempt: {turns: N}"),
]


def write(folder: Path, text: str | bytes, name: str = "goal.yaml") -> Path:
    """A contract in a repository of its own."""
    (folder / ".git").mkdir(exist_ok=True)
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def load(folder: Path, text: str | bytes, **more: Any) -> Loaded:
    """What comes of a text."""
    return load_contract(write(folder, text), home=Path("/nonexistent"), **more)


def problems(folder: Path, text: str | bytes, **more: Any) -> list[str]:
    """All problems, as shown, without the folder's name."""
    with pytest.raises(ContractError) as caught:
        load(folder, text, **more)
    assert caught.value.exit_status == 2
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]
