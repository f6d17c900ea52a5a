"""What a tree needs besides its files, and how far programs are shut in."""

from typing import Annotated, Literal

from pydantic import Field

from loopd.domain.written import Command, Many, Text, Written, short

VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"


class Services(Written):
    """Programs that run beside the verifiers, such as a database."""

    up: Command = Field(description="Starts them; returns when they are ready.")
    down: Command = Field(description="Ends them.")


class Environment(Written):
    """Holds for every tree loopd makes."""

    carry: Many[Text] = Field(
        (), description="Ignored paths copied once, before attempt 1; never from the agent later."
    )
    mount: Many[Text] = Field((), description="Paths seen read-only at the same place, never copied.")
    env: dict[Annotated[str, Field(pattern=VARIABLE)], str] = Field(
        {}, description="Variables of setup and verifiers: a text, inherit, or free-port."
    )
    services: Services | None = Field(None, description="Started before verifiers run; needs network: host.")
    network: Literal["none", "host"] = Field("none", description="For verifiers; setup always has the network.")


Means = Literal["auto", "none", "bubblewrap"]


class SandboxChoice(Written):
    """How programs are shut in; `auto` uses bubblewrap where it works."""

    mode: Means = Field("auto", description="The means.")
    write: Many[Text] = Field((), description="More paths that stay writable for the agent.")


Sandbox = Annotated[SandboxChoice, short("mode", SandboxChoice, Means)]
