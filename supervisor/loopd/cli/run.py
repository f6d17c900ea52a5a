"""`run` and `resume`: their words, and what they ask for. Carried out by `work`, in a process without typer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from loopd.adapters.agreement import Agreement
from loopd.cli.agree import agree, meant
from loopd.cli.flags import Flags
from loopd.cli.orders import GoOn, Start
from loopd.domain.errors import UsageError

AttemptsOption = Annotated[int | None, typer.Option("--attempts", min=1, help="At most this many attempts.")]
TimeOption = Annotated[str | None, typer.Option("--time", help="At most this long, such as 8h.")]
CostOption = Annotated[str | None, typer.Option("--cost", help="At most this much, such as '20 USD'.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print every event as one line of JSON.")]


def run(
    contract: Annotated[
        str | None, typer.Argument(help="A goal contract; with --check, the objective in words.")
    ] = None,
    agent_command: Annotated[list[str] | None, typer.Argument(help="After --: the agent's command.")] = None,
    check: Annotated[list[str] | None, typer.Option("--check", help="A command that must pass. Repeatable.")] = None,
    prompt: Annotated[Path | None, typer.Option("-p", "--prompt", help="A file that holds the objective.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="The agent, by name.")] = None,
    attempts: AttemptsOption = None,
    time: TimeOption = None,
    cost: CostOption = None,
    clone: Annotated[bool, typer.Option("--clone", help="Work in a clone; your files stay as they are.")] = False,
    with_changes: Annotated[bool, typer.Option("--with-changes", help="Take uncommitted files into it.")] = False,
    new: Annotated[bool, typer.Option("--new", help="Start anew, whatever was interrupted before.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen, and start nothing.")] = False,
    as_json: JsonOption = False,
) -> Start:
    """Pursue a goal until every criterion holds or the budget is spent."""
    flags = Flags(attempts=attempts, time=time, cost=cost, agent=agent, clone=clone, with_changes=with_changes)
    agreed = _agreed(contract, flags, check or (), prompt, agent_command or [])
    return Start(agreed, flags, new=new, dry_run=dry_run, as_json=as_json)


def _agreed(
    contract: str | None, flags: Flags, checks: Sequence[str], prompt: Path | None, command: list[str]
) -> Agreement:
    """What the command line names or means. The first word after `--` is the command's when no objective is needed."""
    if checks or prompt or command:
        objective = contract
        if prompt and contract is not None:
            objective, command = None, [contract, *command]
        path = meant(objective, checks, prompt, flags.agent, command)
        return agree(path, replace(flags, agent=None))  # the agent is in the contract now
    if contract is None:
        raise UsageError("run: name a contract, or say the objective in words with --check COMMAND")
    return agree(Path(contract), flags)


def resume(
    name: Annotated[str, typer.Argument(metavar="RUN", help="Id, unique prefix, goal name, or last.")] = "last",
    as_json: JsonOption = False,
) -> GoOn:
    """Go on with an interrupted or reopened run."""
    return GoOn(name, as_json=as_json)
