"""Every failure a person may meet: what happened, where, what to do, and an exit status.

Failures of an agent or of a check are results, not exceptions; see `attempt` and `verdict`.
"""

from msgspec import Struct


class LoopdError(Exception):
    """Base of all; `exit_status` is the one of the table in `run`."""

    exit_status = 70


class UsageError(LoopdError):
    """The command line asks for something that cannot be done."""

    exit_status = 2


class Problem(Struct, frozen=True):
    """One fault of a contract: where it stands, what was found, what would be right."""

    message: str
    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        """`file:line:column: message`, the form editors can jump to."""
        return f"{self.file}:{self.line}:{self.column}: {self.message}" if self.line else self.message


class ContractError(LoopdError):
    """A contract that cannot be accepted; holds every problem, not only the first."""

    exit_status = 2

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class RefusedError(LoopdError):
    """The contract is well formed, but nothing in it tells done from now."""

    exit_status = 2


class BlockedError(LoopdError):
    """The machine lacks something (agent, program, setup, a working verifier); carries the remedy."""

    exit_status = 5

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message}\n{remedy}" if remedy else message)
        self.message = message
        self.remedy = remedy


class BusyError(LoopdError):
    """Another run holds this workspace; the message says who."""

    exit_status = 6


class StateError(LoopdError):
    """loopd's own state cannot be read or written."""

    exit_status = 70
