"""The settings a run would work with, each with its source, and what they mean for time and money."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from loopd.cli.words import span
from loopd.domain.contract import Goal
from loopd.domain.quantities import format_duration, format_money, format_tokens
from loopd.domain.roles import AgentChoice
from loopd.domain.written import Written


@dataclass(frozen=True, slots=True)
class Setting:
    """One effective value: its key in the contract, how it would be written there, and where it comes from."""

    name: str
    value: str
    source: str  # "flag" | "contract" | "default"


def settings(goal: Goal, overridden: Collection[str] = ()) -> tuple[Setting, ...]:
    """Every setting that a person should see before the first attempt."""
    budget, attempt = goal.budget, goal.budget.attempt
    cost = format_money(budget.cost_usd) if budget.cost_usd is not None else "not limited"
    tokens = format_tokens(budget.tokens) if budget.tokens is not None else "not limited"
    idle = format_duration(attempt.idle_s) if attempt.idle_s is not None else "off"
    values: tuple[tuple[str, str, Written, str], ...] = (
        ("agent", agent_text(goal.executor.agent), goal, "agent"),
        ("isolation", goal.isolation, goal, "isolation"),
        ("verification", goal.verification, goal, "verification"),
        ("sandbox", goal.sandbox.mode, goal, "sandbox"),
        ("environment.network", goal.environment.network, goal.environment, "network"),
        ("deliver", str(goal.delivery.to or "command"), goal, "deliver"),
        ("budget.attempts", str(budget.attempts), budget, "attempts"),
        ("budget.time", format_duration(budget.time_s), budget, "time_s"),
        ("budget.cost", cost, budget, "cost_usd"),
        ("budget.tokens", tokens, budget, "tokens"),
        ("budget.attempt.time", format_duration(attempt.time_s), attempt, "time_s"),
        ("budget.attempt.idle", idle, attempt, "idle_s"),
        ("tamper", str(goal.tamper), goal, "tamper"),
        ("ladder", ", ".join(rung.name or "executor" for rung in goal.ladder), goal, "ladder"),
    )
    return tuple(Setting(name, value, _source(name, part, field, overridden)) for name, value, part, field in values)


def agent_text(agent: AgentChoice | None) -> str:
    """An agent in a word or two."""
    if agent is None:
        return "none named"
    if agent.command is not None:
        return " ".join(agent.command)
    return f"scripted by {agent.scripted}" if agent.scripted is not None else str(agent.name)


def forecast(goal: Goal) -> Iterator[str]:
    """What the contract implies, in lines."""
    checks = sum(criterion.runs for criterion in goal.criteria)
    longest = sum(criterion.runs * criterion.timeout_s for criterion in goal.criteria)
    yield f"one verification: {checks} checks, at most {span(longest)} by their timeouts; twice when all of them hold"
    longest_run = goal.budget.attempts * (goal.budget.attempt.time_s + longest)
    bound = "" if longest_run > goal.budget.time_s else ", so time is no bound"
    yield f"at most {goal.budget.attempts} attempts within {span(goal.budget.time_s)}{bound}"
    if goal.budget.cost_usd is None and goal.budget.tokens is None:
        yield "cost and tokens are not limited; write budget: {cost: 10 USD} to limit them"


def warnings(goal: Goal) -> Iterator[str]:
    """What is allowed and probably not meant."""
    if goal.verification == "workspace":
        yield "verification: workspace is the weak boundary: checks run in the tree that the agent can write"
    if all(criterion.baseline == "any" for criterion in goal.criteria):
        yield "every criterion says baseline: any: when all hold already, the run is met with no attempt"
    if goal.budget.attempt.time_s > goal.budget.time_s:
        yield "budget.attempt.time is longer than budget.time: the first attempt may use up the run"
    if goal.executor.agent is None:
        yield "no agent is named; loopd run needs one: agent: {command: [PROGRAM, ARG]}"
    longest = max(goal.criteria, key=lambda criterion: criterion.timeout_s)
    if longest.timeout_s > goal.budget.time_s:
        yield f"the check {longest.name} may take longer than the whole run ({format_duration(longest.timeout_s)})"


def _source(name: str, part: Written, field: str, overridden: Collection[str]) -> str:
    if name in overridden:
        return "flag"
    return "contract" if field in part.model_fields_set or _in_role(name, part) else "default"


def _in_role(name: str, part: Written) -> bool:
    return name == "agent" and isinstance(part, Goal) and part.roles.executor.agent is not None
