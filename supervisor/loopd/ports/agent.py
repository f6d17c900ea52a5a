"""An agent: a program that edits a tree when told to. An adapter knows its command line and its output."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from loopd.domain.attempt import Usage

GROUP = "loopd.agents"  # of entry points; each is a callable (role, folder) -> Agent


class Order(Struct, frozen=True):
    """What the engine asks for: one attempt."""

    attempt: int
    instruction: Path  # UTF-8 file, saved with the attempt
    workspace: Path  # the working directory
    folder: Path  # private to the attempt, outside the workspace
    search_path: str  # the PATH fixed at the start of the run


class Launch(Struct, frozen=True):
    """How the program is started."""

    argv: tuple[str, ...]
    stdin: Path | None = None  # None: empty
    env: Mapping[str, str] = field(default_factory=dict)  # in addition to the cleaned environment


class Usages(Struct, frozen=True):
    """Usage seen so far in an attempt."""

    usage: Usage


class Final(Struct, frozen=True):
    """The agent said that it is done with its work; starts the grace clock, proves nothing."""

    text: str = ""


class Text(Struct, frozen=True):
    """Something to show a person."""

    text: str


AgentEvent = Usages | Final | Text


class Reader(Protocol):
    """The parser of one attempt's output, fed from byte 0 (also when an attempt is adopted)."""

    @property
    def listens(self) -> bool:
        """Whether lines can mean anything to it; a reader that does not listen is spared them."""
        ...

    def feed(self, line: bytes) -> Iterable[AgentEvent]:
        """Events of one line (no newline, at most 1 MiB; longer lines arrive cut). Never raises on content."""
        ...

    def usage(self) -> Usage | None:
        """The total of this attempt after its end (files named in the contract are read now); None if none was told."""
        ...


class Agent(Protocol):
    """One way to start one program."""

    @property
    def name(self) -> str:
        """As written in the contract and shown everywhere."""
        ...

    @property
    def first_signal(self) -> str:
        """The signal after which it still reports its usage; usually SIGINT."""
        ...

    def probe(self, search_path: str) -> str:
        """One line that names the program found. Raises `BlockedError` with the PATH searched when it is not there."""
        ...

    def launch(self, order: Order) -> Launch:
        """The command for this attempt. May write into `order.folder` only. Raises `BlockedError` if it cannot work."""
        ...

    def reader(self, order: Order) -> Reader:
        """A new parser for the output of this attempt."""
        ...
