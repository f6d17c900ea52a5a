"""What a command line asks of the process that carries it out."""

from msgspec import Struct

from loopd.adapters.agreement import Agreement
from loopd.cli.flags import Flags


class Start(Struct, frozen=True):
    """`loopd run`: what was agreed."""

    agreed: Agreement
    flags: Flags
    new: bool = False
    dry_run: bool = False
    as_json: bool = False


class GoOn(Struct, frozen=True):
    """`loopd resume`: which run, as it was named."""

    run: str
    as_json: bool = False
