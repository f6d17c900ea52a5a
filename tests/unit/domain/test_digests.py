"""Digests: the same whatever computes them."""

import hashlib
import io

import pytest

from loopd.domain.digests import LARGE_BYTES, sha256_hex, sha256_of


@pytest.mark.parametrize("size", [0, 1, 55, 56, 64, 1000, LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1, 1_000_000])
def test_a_digest_is_that_of_openssl_for_every_size(size: int) -> None:
    """Short data by the interpreter's own code, large data by the other."""
    data = bytes(range(256)) * (size // 256 + 1)
    expected = hashlib.sha256(data[:size]).hexdigest()
    assert sha256_hex(data[:size]) == expected
    assert sha256_of(io.BytesIO(data[:size])) == expected


class Drips(io.BytesIO):
    """Gives a few bytes at a time, as an unbuffered file may."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size or 0, 7_000))


def test_a_file_that_is_read_in_drips_has_the_same_digest() -> None:
    data = bytes(range(256)) * 1000
    for size in (10_000, LARGE_BYTES - 1, LARGE_BYTES, len(data)):
        assert sha256_of(Drips(data[:size])) == hashlib.sha256(data[:size]).hexdigest()
