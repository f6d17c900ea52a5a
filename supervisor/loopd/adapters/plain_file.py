"""Reading a small file that untrusted code wrote: no link, no pipe, no device, and never more than a limit."""

import os
import stat
from pathlib import Path


class PlainFileError(Exception):
    """The file is missing, no plain file, unreadable or too long; the message is the end of a sentence."""


def read_plain(path: Path, limit_bytes: int) -> bytes:
    """The content of a regular file. Raises `PlainFileError`; does not block on a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise PlainFileError("is missing") from None
    except (OSError, ValueError) as error:
        raise PlainFileError(f"cannot be read: {getattr(error, 'strerror', error)}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise PlainFileError("is not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(limit_bytes + 1)
    finally:
        os.close(descriptor)
    if len(data) > limit_bytes:
        raise PlainFileError(f"is longer than {limit_bytes:,} bytes")
    return data
