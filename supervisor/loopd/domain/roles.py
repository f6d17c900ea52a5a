"""Who works on a goal: agents, the roles they play, and what is tried when one is stuck."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from loopd.domain.written import Command, Many, Name, Pattern, Text, Written, refusal, short


class UsageSource(Written):
    """Where the usage of a command agent is found: in a file it writes, or in its output."""

    file: Text | None = Field(None, description="A JSON file the agent writes, relative to its folder.")
    pattern: Pattern | None = Field(None, description="A regular expression with the groups cost or tokens.")

    @model_validator(mode="after")
    def _one(self) -> "UsageSource":
        if (self.file is None) == (self.pattern is None):
            raise refusal("either file or pattern is needed, and not both")
        return self


class AgentChoice(Written):
    """A program that edits a tree when told to: a known one, any command, or a script of edits for tests."""

    name: Name | None = Field(None, description="A known agent: `agent: claude` is short for it.")
    command: Command | None = Field(None, description="Any program that reads an instruction and edits the tree.")
    scripted: Text | None = Field(None, description="A file of scripted attempts; needs no model.")
    prompt: Literal["stdin", "file", "argument"] = Field("stdin", description="How a command is given its instruction.")
    usage: UsageSource | None = Field(None, description="Where a command reports what it cost.")
    final: Pattern | None = Field(None, description="A line of output after which a command has finished.")

    @model_validator(mode="after")
    def _one(self) -> "AgentChoice":
        if sum(choice is not None for choice in (self.name, self.command, self.scripted)) != 1:
            raise refusal("exactly one is needed: the name of an agent, command, or scripted")
        if self.command is None and self.model_fields_set & {"prompt", "usage", "final"}:
            raise refusal("prompt, usage and final belong to an agent given by command")
        return self


Agent = Annotated[AgentChoice, short("name", AgentChoice)]


class Role(Written):
    """A job bound to an agent."""

    agent: Agent | None = Field(None, description="Who does the job.")
    model: Text | None = Field(None, description="The model, in the agent's own words.")
    args: Many[str] = Field((), description="More arguments for the agent.")
    env: Many[Name] = Field((), description="Environment variables handed through to the agent, by name.")
    fallback: Agent | None = Field(None, description="Who takes over when the agent cannot run.")


class Roles(Written):
    """The four jobs around a goal."""

    executor: Role = Field(Role(), description="Edits the tree.")
    planner: Role = Field(Role(), description="Writes the plan.")
    evaluator: Role = Field(Role(), description="Judges what no program can.")
    visual: Role = Field(Role(), description="Compares pictures.")


KnownRung = Literal["rephrase", "fresh", "advise", "restore-best", "stop"]


class RungChoice(Written):
    """One step of the ladder: what is tried when attempts bring nothing better."""

    name: KnownRung | None = Field(None, description="A known step.")
    executor: Role | None = Field(None, description="Another executor takes over.")

    @model_validator(mode="after")
    def _one(self) -> "RungChoice":
        if (self.name is None) == (self.executor is None):
            raise refusal("a rung is rephrase, fresh, advise, restore-best, stop, or {executor: …}")
        return self


Rung = Annotated[RungChoice, short("name", RungChoice, KnownRung)]
