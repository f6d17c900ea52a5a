"""A summary of the first events of a ledger, tied to the very line it ends with."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct

from loopd.adapters.atomic import write_whole
from loopd.adapters.chain import FORMAT, Mark, canonical, follow
from loopd.domain.digests import sha256_hex


class Summary(Struct, frozen=True):
    """`state` as it was after the event before `mark`; `before` is the mark in front of that event's line."""

    before: Mark
    mark: Mark
    state: Mapping[str, Any]

    def fits(self, file: BinaryIO) -> bool:
        """Whether this ledger holds the same line at the same place: one seek, however long it is."""
        file.seek(self.before.offset)
        return follow(file.read(self.mark.offset - self.before.offset), self.before) == self.mark


def write_summary(path: Path, summary: Summary) -> None:
    """Replace the summary at `path`, durably. Raises `OSError`."""
    fields = {
        "format": FORMAT,
        "seq": summary.mark.seq,
        "hash": summary.mark.hash,
        "offset": summary.mark.offset,
        "line_offset": summary.before.offset,
        "previous_hash": summary.before.hash,
        "state": summary.state,
    }
    fields["digest"] = sha256_hex(canonical(fields))
    write_whole(path, json.dumps(fields, separators=(",", ":"), allow_nan=False).encode() + b"\n")


def read_summary(path: Path) -> Summary | None:
    """The summary at `path`; None when it is missing, damaged or of another version."""
    try:
        fields = json.loads(path.read_bytes())
        digest = fields.pop("digest")
        if fields["format"] != FORMAT or digest != sha256_hex(canonical(fields)):
            return None
        seq = fields["seq"]
        before = Mark(seq - 1, fields["line_offset"], fields["previous_hash"])
        return Summary(before, Mark(seq, fields["offset"], fields["hash"]), fields["state"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
