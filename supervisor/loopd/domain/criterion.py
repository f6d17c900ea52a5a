"""One measurable condition of a goal: a verifier, plus what its result must be."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from loopd.domain.requirement import REQUIREMENT_PATTERN, Requirement, parse_requirement
from loopd.domain.written import Command, Duration, Many, Name, Text, Written, refusal, short

Layer = Literal["fast", "tests", "slow", "held-out", "review"]
ReportFormat = Literal["junit", "tap", "sarif", "loopd"]


def _requirement(value: object) -> Requirement:
    if not isinstance(value, str):
        raise refusal('a comparison as text is needed, such as ">= 90" or "<= 0.9 * baseline"')
    try:
        return parse_requirement(value)
    except ValueError as error:
        raise refusal(str(error)) from None


Required = Annotated[
    Requirement,
    BeforeValidator(_requirement),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "pattern": REQUIREMENT_PATTERN}),
]


class ReportFile(Written):
    """A file the command writes and loopd reads; its format follows its ending."""

    file: Text = Field(description="Where the command writes it, usually below {out}.")
    may_go: Many[Text] = Field((), description="Tests of the baseline that may disappear, as globs.")

    @property
    def format(self) -> ReportFormat:
        """JUnit for .xml, TAP for .tap, SARIF for .sarif, loopd's own for .json."""
        endings: dict[str, ReportFormat] = {
            ".tap": "tap",
            ".sarif": "sarif",
            ".sarif.json": "sarif",
            ".json": "loopd",
        }
        return next((kind for end, kind in endings.items() if self.file.endswith(end)), "junit")


class Criterion(Written):
    """A condition that a verifier decides. Exactly one of `run` and `use`."""

    name: Name = Field("", description="Names it everywhere; default: made from the command.", validate_default=False)
    run: Command | None = Field(
        None, description="A command: 0 passes, any other exit fails. Text is split without a shell."
    )
    use: Name | None = Field(None, description="A verifier of the catalogue.")
    with_: dict[str, Any] = Field({}, alias="with", description="Parameters of the verifier.")
    require: dict[Name, Required] = Field({}, description="What its metrics must be.")
    report: Annotated[ReportFile, short("file", ReportFile)] | None = Field(
        None, description="A report the command writes."
    )
    baseline: Literal["fail", "pass", "any"] | None = Field(
        None,
        description="A promise about the tree before attempt 1; default: none, but one criterion must fail.",
    )
    timeout_s: Duration = Field(600.0, alias="timeout", description="Longest time of one check; default 10m.")
    runs: int = Field(1, ge=1, le=100, description="How often it runs in one check; default 1.")
    rule: Literal["all", "majority"] = Field("all", description="How many of the runs must pass.")
    protocol: Literal["none", "loopd"] = Field("none", description="loopd: the command speaks the verifier protocol.")
    layer: Layer = Field("tests", description="When it runs: a layer waits until those before it hold.")
    lock: Name | None = Field(None, description="A lock of this machine, held while it runs.")
    confirm: Literal["again", "once"] = Field("again", description="once: its first pass counts as the final one.")
    baseline_metrics: dict[Name, float] = Field({}, description="Declared instead of measured, shown as such.")
    sealed: Text | None = Field(None, description="A folder outside the workspace, copied out of the agent's reach.")
    visibility: Literal["open", "verdict", "hidden"] = Field("open", description="What the agent is told of it.")
    max_checks: int | None = Field(None, ge=1, description="How often a hidden criterion may be judged; default 3.")
    role: Literal["planner", "executor", "evaluator", "visual"] | None = Field(
        None, description="Who judges, for a judge."
    )
    needs: Many[Name] = Field((), description="Criteria that must hold before this one runs.")

    @model_validator(mode="after")
    def _one_verifier(self) -> "Criterion":
        if (self.run is None) == (self.use is None):
            raise refusal("a criterion needs a verifier: either run (a command) or use (one of the catalogue)")
        return self
