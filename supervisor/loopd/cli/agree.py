"""From a command line to an agreement: the contract it names or means, and the settings that hold."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopd.adapters.agreement import Agreement, Terms
from loopd.adapters.contract_file import Loaded, load_contract
from loopd.domain.budget import Allowance
from loopd.domain.contract import Goal
from loopd.domain.decision import Policy, Rung
from loopd.domain.errors import UsageError
from loopd.engine.run import Timers


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line says about settings."""

    attempts: int | None = None
    time: str | None = None
    cost: str | None = None
    agent: str | None = None
    clone: bool = False
    with_changes: bool = False

    def overrides(self) -> dict[str, Any]:
        """The same as keys of a contract."""
        budget = {"budget.attempts": self.attempts, "budget.time": self.time, "budget.cost": self.cost}
        said: dict[str, Any] = {key: value for key, value in budget.items() if value is not None}
        if self.agent:
            said["agent"] = self.agent
        if self.clone:
            said["isolation"] = "clone"
        return said


def agree(
    contract: str, flags: Flags, *, checks: Sequence[str] = (), prompt: Path | None = None, command: Sequence[str] = ()
) -> Agreement:
    """The contract and the settings that hold for it. Raises `ContractError` or `UsageError`; starts nothing."""
    if checks or prompt or command:
        raise UsageError("not yet")
    loaded = load_contract(Path(contract), overrides=flags.overrides())
    return Agreement(loaded.goal, loaded.text, terms_of(loaded, flags))


def within_ceiling(allowance: Allowance) -> None:
    """Raise `UsageError` when an allowance exceeds the user's own ceiling."""


def terms_of(loaded: Loaded, flags: Flags) -> Terms:
    """The terms of a loaded contract."""
    goal = loaded.goal
    return Terms(
        contract=loaded.path,
        digest=loaded.digest,
        root=loaded.root,
        allowance=allowance_of(goal),
        policy=policy_of(goal),
        timers=Timers(),
        search_path=os.environ.get("PATH", os.defpath),
        containment=os.environ.get("LOOPD_CONTAINMENT", "auto"),
        with_changes=flags.with_changes,
        protected=protected_files(loaded),
        references=tuple(file.label for file in loaded.files if file.kind == "reference"),
        files={f"{file.kind} {file.label}": file.sha256 for file in loaded.files},
    )


def allowance_of(goal: Goal) -> Allowance:
    """The budget of the contract."""
    budget = goal.budget
    return Allowance(
        attempts=budget.attempts,
        time_s=budget.time_s,
        cost_usd=budget.cost_usd,
        tokens=budget.tokens,
        attempt_time_s=budget.attempt.time_s,
        attempt_idle_s=budget.attempt.idle_s,
        attempt_cost_usd=budget.attempt.cost_usd,
    )


def policy_of(goal: Goal) -> Policy:
    """The contract's rules of going on."""
    return Policy(ladder=tuple(Rung(rung.name) for rung in goal.ladder if rung.name), tamper=goal.tamper)


def protected_files(loaded: Loaded) -> tuple[str, ...]:
    """Files below the workspace that the contract needs unchanged: itself, what it names, the agent's script."""
    paths = [loaded.path, *(file.file for file in loaded.files if file.kind in ("verifier", "objective", "reference"))]
    executor = loaded.goal.executor.agent
    if executor and executor.scripted:
        paths.append(loaded.root / executor.scripted)
    inside = (path for path in paths if path.is_relative_to(loaded.root))
    return tuple(dict.fromkeys(path.relative_to(loaded.root).as_posix() for path in inside))
