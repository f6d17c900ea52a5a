"""Which program stands behind an agent's name. Others add theirs by the entry point group `loopd.agents`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from loopd.adapters.agents.command import CommandAgent
from loopd.domain.errors import ContractError, Problem
from loopd.domain.roles import Role
from loopd.ports.agent import GROUP, Agent

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def agent_for(role: Role, folder: Path, pinned_script: Path | None = None) -> Agent:
    """The agent of a role. `folder` is the contract's: scripts and programs with a slash are found from there.

    `pinned_script` is the run's own copy of a scripted agent's file, read instead of it.

    Raises `ContractError` for a name that nothing provides and for a script that is wrong, `BlockedError` when an
    installed agent cannot be loaded.
    """
    choice = role.agent
    if choice is None:
        raise ContractError((Problem("no agent is named; write agent: {command: [PROGRAM, ARG]}"),))
    if choice.scripted is not None:
        from loopd.adapters.agents.scripted import ScriptedAgent

        return ScriptedAgent(folder / choice.scripted, pinned_script)
    if choice.command is not None:
        return CommandAgent(choice, folder, role.args)
    return _installed(str(choice.name), role, folder)


def _installed(name: str, role: Role, folder: Path) -> Agent:
    from importlib.metadata import entry_points

    installed = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in installed:
        known = f"installed are {', '.join(sorted(installed))}" if installed else "none is installed"
        raise ContractError(
            (Problem(f"agent {name!r} is not available; {known}. Any program works: agent: {{command: [{name}]}}"),)
        )
    return _load(installed[name])(role, folder)


def _load(entry: "EntryPoint") -> Callable[[Role, Path], Agent]:
    factory: Callable[[Role, Path], Agent] = entry.load()
    return factory
