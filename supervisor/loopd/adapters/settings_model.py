"""What may be set outside of contracts: in `loopd.toml`, the user's file, the environment, by flags."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from loopd.domain.quantities import format_duration, format_money, format_tokens
from loopd.domain.roles import Agent, AgentChoice
from loopd.domain.written import Duration, DurationOrOff, Money, Size, Text, Tokens, Written

PROJECT_FILE = "loopd.toml"
PREFIX = "LOOPD_"
# Variables of loopd's own that are no settings of a run.
OWN_VARIABLES = frozenset(
    f"{PREFIX}{name}" for name in ("STATE", "MARKER", "CONTEXT", "USAGE_FILE", "CHAOS", "NO_SKIP")
)
FLAGS: Mapping[str, str] = {
    "agent": "--agent",
    "isolation": "--clone",
    "budget.attempts": "--attempts",
    "budget.time": "--time",
    "budget.cost": "--cost",
}


class AttemptSettings(Written):
    """Limits of each attempt."""

    time_s: Duration = Field(2700.0, alias="time", description="Longest time of one attempt.")
    idle_s: DurationOrOff = Field(1200.0, alias="idle", description="Ended after this long without a sign of life.")
    cost_usd: Money | None = Field(None, alias="cost", description="Most that one attempt may cost.")


class BudgetSettings(Written):
    """The budget of contracts that do not name one."""

    attempts: int = Field(20, ge=1, description="How many attempts.")
    time_s: Duration = Field(14400.0, alias="time", description="Of the run.")
    cost_usd: Money | None = Field(None, alias="cost", description="Most that a run may cost.")
    tokens: Tokens | None = Field(None, description="Most tokens of a run.")
    attempt: AttemptSettings = Field(AttemptSettings(), description="Limits of each attempt.")


class GraceSettings(Written):
    """How patiently an attempt is ended."""

    interrupt_s: Duration = Field(5.0, alias="interrupt", description="From the first signal to the second.")
    terminate_s: Duration = Field(5.0, alias="terminate", description="From the second signal to the kill.")
    final_s: Duration = Field(10.0, alias="final", description="From an agent's final event to the first signal.")


class BackOffSettings(Written):
    """Pauses after attempts without effect: doubled each time."""

    base_s: Duration = Field(30.0, alias="base", description="The first pause.")
    cap_s: Duration = Field(600.0, alias="cap", description="The longest pause.")


class DiskSettings(Written):
    """What loopd leaves free, and how much output it keeps."""

    log_cap_bytes: Size = Field(256 * 2**20, alias="log_cap", description="Output kept of one attempt.")
    free_bytes: Size = Field(500 * 10**6, alias="free", description="Below this much free space a run stops.")


class Settings(BaseModel):
    """What may be set outside of contracts. The names are those of the contract where it has them."""

    # Not strict itself, its parts are: texts of flags and variables are parsed by them.
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        defer_build=True,  # one of the two models is used by most commands
    )

    agent: Agent | None = Field(None, description="Who works when no one else is named.")
    isolation: Literal["inplace", "clone"] = Field("inplace", description="Whose tree the agent works in.")
    budget: BudgetSettings = Field(BudgetSettings(), description="What a run may spend at most.")
    templates: Text | None = Field(
        None,
        description="A folder with instruction templates; relative to the contract, the project, or the user's file.",
    )
    containment: Literal["auto", "cgroup", "pid-namespace", "subreaper"] = Field(
        "auto", description="How the processes of an attempt are held together."
    )
    grace: GraceSettings = Field(GraceSettings(), description="How patiently an attempt is ended.")
    back_off: BackOffSettings = Field(BackOffSettings(), description="Pauses after attempts without effect.")
    disk: DiskSettings = Field(DiskSettings(), description="What loopd leaves free and keeps.")


class Ceiling(Written):
    """What no run of this user may exceed, whoever asks for it."""

    cost_usd: Money | None = Field(None, alias="cost", description="Of one run.")
    time_s: Duration | None = Field(None, alias="time", description="Of one run.")


class UserSettings(Settings):
    """The user's own file: settings for all projects, and the ceiling."""

    ceiling: Ceiling = Field(Ceiling(), description="What no run may exceed.")


def variable(name: str) -> str:
    """The environment variable of a full name: LOOPD_BUDGET__ATTEMPTS of budget.attempts."""
    return f"{PREFIX}{name.replace('.', '__').upper()}"


def setting_names(model: BaseModel) -> dict[str, Any]:
    """Full name and value of every leaf of a model of settings."""
    return dict(_names(model))


def _names(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for attribute, info in type(model).model_fields.items():
        value, name = getattr(model, attribute), f"{prefix}{info.alias or attribute}"
        if isinstance(value, BaseModel) and not isinstance(value, AgentChoice):
            yield from _names(value, f"{name}.")
        else:
            yield name, value


def said(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves that were given, not filled in."""
    for attribute in model.model_fields_set:
        info = type(model).model_fields[attribute]
        value, name = getattr(model, attribute), f"{prefix}{info.alias or attribute}"
        if isinstance(value, BaseModel) and not isinstance(value, AgentChoice):
            yield from said(value, f"{name}.")
        else:
            yield name, value


def shown(name: str, value: Any) -> str:
    """A value in the words of a contract."""
    match value:
        case None:
            words = {"agent": "none", "templates": "loopd's own"}
            return words.get(name, "off" if name.endswith(".idle") else "unlimited")
        case AgentChoice():
            return value.name or value.scripted or " ".join(value.command or ())
        case float() if name.endswith(".cost"):
            return format_money(value)
        case float():
            return format_duration(value)
        case int() if name.endswith(".tokens"):
            return format_tokens(value)
        case int() if name.startswith("disk."):
            return f"{value // 2**20} MiB" if value % 2**20 == 0 else f"{value // 10**6} MB"
        case tuple():
            return ", ".join(str(part) for part in value)
    return str(value)
