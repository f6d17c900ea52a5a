"""The terms of the budget: what a run and each of its attempts may spend at most."""

from pydantic import Field

from loopd.domain.written import Duration, DurationOrOff, Money, Tokens, Written


class AttemptTerms(Written):
    """What one attempt may spend at most."""

    time_s: Duration = Field(2700.0, alias="time", description="Longest time of one attempt; default 45m.")
    idle_s: DurationOrOff = Field(
        1200.0, alias="idle", description="Ended after this long without output, CPU or change; default 20m."
    )
    cost_usd: Money | None = Field(
        None, alias="cost", description="Most that one attempt may cost; default: no own limit."
    )
    turns: int | None = Field(None, ge=1, description="The agent's own limit of turns, where it has one.")


class BudgetTerms(Written):
    """What a run may spend at most. Attempts and time are always finite."""

    attempts: int = Field(20, ge=1, description="How many attempts; default 20.")
    time_s: Duration = Field(
        14400.0, alias="time", description="Of the run, waits for limits and locks excluded; default 4h."
    )
    cost_usd: Money | None = Field(
        None, alias="cost", description="Most that the run may cost; default: unlimited, said aloud."
    )
    tokens: Tokens | None = Field(None, description="Most tokens of the run; default: unlimited, said aloud.")
    attempt: AttemptTerms = Field(AttemptTerms(), description="Limits of each attempt.")
    waiting_s: Duration = Field(
        43200.0, alias="waiting", description="Longest total wait for provider limits; default 12h."
    )
