"""From a command line to an agreement: the contract it names or means, and the settings that hold."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from loopd.adapters.agreement import SCRIPT, TEMPLATES, Agreement, Setting, Terms
from loopd.adapters.contract_file import Loaded, load_contract
from loopd.adapters.settings import Effective, render_effective, resolve, user_ceiling
from loopd.cli.flags import Flags
from loopd.cli.orders import Start
from loopd.domain.budget import Allowance
from loopd.domain.contract import Goal
from loopd.domain.decision import Policy, Rung
from loopd.domain.errors import UsageError
from loopd.domain.quantities import format_duration, format_money
from loopd.engine.run import Timers
from loopd.ports.processes import Grace


def agree(contract: Path, flags: Flags) -> Agreement:
    """The contract and the settings that hold for it. Raises `ContractError`; starts nothing."""
    loaded = load_contract(contract)
    effective = resolve(loaded, flags=flags.texts(), environ=os.environ)
    terms = terms_of(loaded, effective, with_changes=flags.with_changes)
    return Agreement(effective.goal, loaded.text, terms, copies_of(effective.goal, loaded.folder, effective.templates))


def start_of(contract: str) -> Start:
    """What `loopd run CONTRACT` asks for."""
    return Start(agree(Path(contract), Flags()), Flags())


def copies_of(goal: Goal, folder: Path, templates: Path | None) -> dict[str, str]:
    """What is pinned besides the contract: a scripted agent's file and the owner's templates, found from `folder`."""
    agent, copies = goal.executor.agent, {}
    if agent and agent.scripted:
        copies[SCRIPT] = _text(folder / agent.scripted)
    if templates is not None:
        if not templates.is_dir():
            raise UsageError(f"there is no folder {templates} with instruction templates")
        from loopd.adapters.prompts import Prompts

        copies |= {f"{TEMPLATES}/{path.name}": _text(path) for path in sorted(templates.glob("*.j2"))}
        Prompts([templates]).check()
    return copies


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def meant(
    objective: str | None, checks: Sequence[str], prompt: Path | None, agent: str | None, command: Sequence[str]
) -> Path:
    """Write the contract that a command line without one means, and show it; its path. Raises `UsageError`."""
    from loopd.adapters.contract_writer import Wish, write_contract

    wish = Wish(Path.cwd(), checks, objective, prompt, agent, command)
    path, text = write_contract(wish)
    print(f"# {path}\n{text}", file=sys.stderr)
    return path


def within_ceiling(allowance: Allowance) -> None:
    """Raise `UsageError` when an allowance exceeds the ceiling of the user's own file."""
    ceiling = user_ceiling(os.environ)
    if ceiling.time_s is not None and allowance.time_s > ceiling.time_s:
        raise UsageError(
            f"{format_duration(allowance.time_s)} is above the ceiling of {format_duration(ceiling.time_s)} "
            f"in your own settings file"
        )
    if ceiling.cost_usd is not None and (allowance.cost_usd or 0.0) > ceiling.cost_usd:
        raise UsageError(
            f"{format_money(allowance.cost_usd or 0.0)} is above the ceiling of {format_money(ceiling.cost_usd)} "
            f"in your own settings file"
        )


def terms_of(loaded: Loaded, effective: Effective, *, with_changes: bool = False) -> Terms:
    """The terms under which a run of this contract begins."""
    goal = effective.goal
    return Terms(
        contract=loaded.path,
        digest=loaded.digest,
        root=loaded.root,
        allowance=allowance_of(goal),
        policy=policy_of(goal, effective),
        timers=timers_of(effective),
        search_path=os.environ.get("PATH", os.defpath),
        containment=effective.containment,
        with_changes=with_changes,
        protected=protected_files(loaded),
        references=tuple(file.label for file in loaded.files if file.kind == "reference"),
        settings=tuple(Setting(*row) for row in render_effective(effective)),
        files={f"{file.kind} {file.label}": file.sha256 for file in loaded.files},
    )


def allowance_of(goal: Goal) -> Allowance:
    """The budget that holds."""
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


def policy_of(goal: Goal, effective: Effective) -> Policy:
    """The rules of going on."""
    return Policy(
        ladder=tuple(Rung(rung.name) for rung in goal.ladder if rung.name),
        tamper=goal.tamper,
        back_off_s=effective.back_off_s,
        back_off_cap_s=effective.back_off_cap_s,
    )


def timers_of(effective: Effective) -> Timers:
    """The times the engine waits for, and the caps that go with them."""
    return Timers(
        final_grace_s=effective.final_grace_s,
        grace=Grace(interrupt_s=effective.interrupt_s, terminate_s=effective.terminate_s),
        log_cap_bytes=effective.log_cap_bytes,
        free_space_bytes=effective.free_space_bytes,
    )


def protected_files(loaded: Loaded) -> tuple[str, ...]:
    """Files below the workspace that the contract needs unchanged: itself, what it names, the agent's script."""
    paths = [loaded.path, *(file.file for file in loaded.files if file.kind in ("verifier", "objective", "reference"))]
    executor = loaded.goal.executor.agent
    if executor and executor.scripted:
        paths.append((loaded.folder / executor.scripted).resolve())
    inside = (path for path in paths if path.is_relative_to(loaded.root))
    return tuple(dict.fromkeys(path.relative_to(loaded.root).as_posix() for path in inside))
