"""The goal contract: what a person and loopd agree on before the first attempt.

Read `Goal` from top to bottom: it is the whole agreement. `adapters.contract_file` makes it from a file.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from loopd.domain.criterion import Criterion
from loopd.domain.digests import sha256_hex
from loopd.domain.environment import Environment, Sandbox, SandboxChoice
from loopd.domain.roles import Agent, Role, Roles, Rung, RungChoice
from loopd.domain.terms import AttemptTerms, BudgetTerms
from loopd.domain.written import Command, Many, Name, Slug, Text, Written, refusal, short

__all__ = [
    "AttemptTerms",
    "BudgetTerms",
    "Criterion",
    "Environment",
    "Goal",
    "Objective",
    "Role",
    "Scope",
    "Stage",
    "digest",
]


class Objective(Written):
    """The desired end state, what and not how. From a file, `text` holds its content after loading."""

    text: Text | None = Field(None, description="The end state in words.")
    file: Text | None = Field(None, description="A file that holds the words; pinned.")

    @model_validator(mode="after")
    def _said(self) -> "Objective":
        if self.text is None and self.file is None:
            raise refusal("a text or {file: …} is needed")
        return self


class Scope(Written):
    """What may change. What is left out here has the documented default; an empty list means: nothing."""

    allow: Many[Text] | None = Field(None, description="What may change; default: everything not protected.")
    add: Many[Text] | None = Field(
        None, description="Where files may be added, baseline ones kept; default: baseline tests."
    )
    protect: Many[Text] = Field(
        (), description="What may not change, besides contract, checks, CI and test configuration."
    )
    max_files: int | None = Field(None, ge=1, description="Most files that may change.")


class ConstraintChoice(Written):
    """A rule the agent is told, with the criterion that checks it where there is one."""

    text: Text = Field(description="The rule in words.")
    check: Name | None = Field(None, description="The criterion that checks it.")


class Watched(Written):
    """A curve drawn live from a file the agent writes: shown, never believed."""

    file: Text = Field(description="A CSV file in the workspace.")
    column: Text = Field(description="Its column.")


METRIC = r"^[\w-]+\.[\w-]+$"


class Progress(Written):
    """What "best" and the curve mean."""

    metric: Annotated[str, Field(pattern=METRIC)] = Field(description="criterion.metric")
    better: Literal["higher", "lower"] = Field("higher", description="Which direction is better.")


class Stage(Written):
    """A part of the way, small and cheap first; it starts only when the one before is met."""

    name: Name = Field(description="Names the stage.")
    criteria: Many[Name] = Field((), description="The criteria that count in it; default: all.")
    with_: dict[str, Any] = Field({}, alias="with", description="Parameters laid over those of its criteria.")
    budget: BudgetTerms | None = Field(None, description="Its share of the budget.")


class DeliverChoice(Written):
    """What becomes of the proven tree. Exactly one."""

    to: Literal["tree", "branch"] | None = Field(
        None, description="The workspace itself, or one commit on a new branch."
    )
    pr: Literal["draft", "ready"] | None = Field(None, description="A pull request, opened once after met.")
    run: Command | None = Field(None, description="A command that delivers.")

    @model_validator(mode="after")
    def _one(self) -> "DeliverChoice":
        if sum(way is not None for way in (self.to, self.pr, self.run)) != 1:
            raise refusal("exactly one is needed: tree, branch, {pr: draft}, {pr: ready} or {run: COMMAND}")
        return self


class NotifyChoice(Written):
    """Who is told, and of what."""

    to: Text = Field(description="desktop, or an address; env:NAME takes it from the environment.")
    on: Many[Literal["met", "exhausted", "stuck", "halted", "blocked", "waiting", "attention"]] = Field(
        (), description="Of which states; default: all that end a run."
    )


Constraint = Annotated[ConstraintChoice, short("text", ConstraintChoice)]
Deliver = Annotated[DeliverChoice, short("to", DeliverChoice, Literal["tree", "branch"])]
Notify = Annotated[NotifyChoice, short("to", NotifyChoice)]
_LADDER = tuple(RungChoice(name=name) for name in ("rephrase", "fresh", "stop"))


class Goal(Written):
    """The agreement. Mandatory: `goal`, `objective`, and one criterion that tells done from now."""

    goal: Slug = Field(description="Names the run: a-z, 0-9 and hyphens.")
    objective: Annotated[Objective, short("text", Objective)] = Field(
        description="The desired end state, what and not how."
    )
    references: Many[Text] = Field((), description="Files and globs: pinned, read-only, named to executor and judges.")

    workspace: Text | None = Field(
        None, description="Default: the git repository, or the folder, the contract lies in."
    )
    isolation: Literal["inplace", "clone", "snapshot"] = Field("inplace", description="Whose tree the agent works in.")
    verification: Literal["clean", "workspace"] = Field("clean", description="workspace: the declared weak form.")
    sandbox: Sandbox = Field(SandboxChoice(), description="How programs are shut in.")
    agent: Agent | None = Field(None, description="Short for roles.executor.agent.")

    environment: Environment = Field(Environment(), description="What a tree needs besides its files.")
    setup: Many[Command] = Field((), description="Commands that prepare a tree; they never write outside it.")
    setup_when: Many[Text] = Field((), description="Files and globs after whose change setup runs again.")

    scope: Scope = Field(Scope(), description="What may change.")
    constraints: Many[Constraint] = Field((), description="Rules the agent is told.")
    tamper: int = Field(2, ge=0, description="How many tampering attempts are allowed before halted; default 2.")

    criteria: Many[Criterion] = Field(min_length=1, description="What must hold in the end; at least one.")
    evidence: Many[Text] = Field((), description="Artifacts that must exist, fresh and not empty.")
    watch: dict[Name, Watched] = Field({}, description="Curves drawn live, marked as the agent's own.")
    progress: Progress | None = Field(None, description='What "best" means; default: criteria met.')
    keep: Literal["all", "better"] = Field("all", description="better: an attempt that is not better is undone.")
    until: Literal["met", "budget"] = Field("met", description="budget: go on improving while budget lasts.")
    stages: Many[Stage] = Field((), description="Parts of the way, small and cheap first.")

    budget: BudgetTerms = Field(BudgetTerms(), description="What may be spent at most.")
    roles: Roles = Field(Roles(), description="Who does what.")
    context: Literal["fresh", "continue", "continue-until-stuck"] = Field(
        "fresh", description="What an agent remembers."
    )
    ladder: Many[Rung] = Field(
        _LADDER, min_length=1, description="What is tried when stuck; default rephrase, fresh, stop."
    )
    templates: Text | None = Field(None, description="A folder that replaces instruction templates.")
    share: Literal["none", "evidence"] = Field("none", description="evidence: a filtered copy of the run's evidence.")
    deliver: Deliver | None = Field(None, description="Default: tree in place, branch for clone and snapshot.")
    notify: Many[Notify] = Field((), description="Who is told, and of what.")

    @model_validator(mode="after")
    def _one_executor(self) -> "Goal":
        if self.agent and self.roles.executor.agent:
            raise refusal("agent is short for roles.executor.agent; write one of them")
        return self

    @property
    def executor(self) -> Role:
        """The executor's role, wherever its agent was written."""
        role = self.roles.executor
        return role.model_copy(update={"agent": self.agent}) if self.agent else role

    @property
    def delivery(self) -> DeliverChoice:
        """What becomes of the proven tree, the default filled in."""
        return self.deliver or DeliverChoice(to="tree" if self.isolation == "inplace" else "branch")


def digest(goal: Goal, files: Mapping[str, str]) -> str:
    """SHA-256 over what the contract means and over every pinned file; hex.

    `files` maps a label that does not depend on the machine ("reference SPEC.md") to the SHA-256 of the
    content. Order of keys, comments and values equal to their default make no difference. Whoever changes a
    default or a meaning raises the number of the format: an old digest must never stand for a new meaning.
    """
    meaning = goal.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    canonical = json.dumps(
        ["loopd.contract/1", meaning, dict(files)], sort_keys=True, ensure_ascii=True, allow_nan=False
    )
    return sha256_hex(canonical.encode())
