"""SHA-256 in hex, by the interpreter's own code for what is short.

`hashlib` takes OpenSSL along: 3.6 MB and the time of half a bare start of the interpreter, to be six times as fast with
large data. Nearly all that loopd digests is a line or a small file.
"""

import sys
from typing import BinaryIO

if sys.version_info >= (3, 12):
    from _sha2 import sha256
else:
    from _sha256 import sha256  # type: ignore[import-not-found]  # typeshed has none

LARGE_BYTES = 64 * 1024


def sha256_hex(data: bytes) -> str:
    """The digest of `data`, 64 characters."""
    if len(data) < LARGE_BYTES:
        digest: str = sha256(data).hexdigest()
        return digest
    import hashlib

    return hashlib.sha256(data).hexdigest()


def sha256_of(file: BinaryIO) -> str:
    """The digest of a file from its beginning, 64 characters. Large ones are never held whole; short reads are fine."""
    head = b""
    while len(head) < LARGE_BYTES:
        more = file.read(LARGE_BYTES - len(head))
        if not more:
            return sha256_hex(head)
        head += more
    import hashlib

    digest = hashlib.sha256(head)
    while more := file.read(LARGE_BYTES):
        digest.update(more)
    return digest.hexdigest()
