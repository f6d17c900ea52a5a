"""Reports that a check writes, read as what they are: text from code that is not trusted.

A report that is missing, too long, malformed or incomplete is an error, never a pass. Here is what all share;
loopd's own JSON is in `answer`, JUnit XML in `junit`.
"""

from pathlib import Path

from loopd.adapters.plain_file import PlainFileError, read_plain

SIZE_LIMIT_BYTES = 64 * 1024 * 1024
ID_LIMIT = 500
MESSAGE_BYTES = 2_000


class ReportError(Exception):
    """A report that is missing, too big, malformed or incomplete; the message says which."""


def read_report(path: Path) -> bytes:
    """The bytes of a report. Raises `ReportError`; a link, a pipe or a device is refused, never followed."""
    try:
        return read_plain(path, SIZE_LIMIT_BYTES)
    except PlainFileError as error:
        raise ReportError(f"the report {error}") from None
