"""Digests: the same whatever computes them."""

import hashlib

import pytest

from loopd.domain.digests import LARGE_BYTES, sha256_hex


@pytest.mark.parametrize("size", [0, 1, 55, 56, 64, 1000, LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1, 1_000_000])
def test_a_digest_is_that_of_openssl_for_every_size(size: int) -> None:
    """Short data by the interpreter's own code, large data by the other."""
    data = bytes(range(256)) * (size // 256 + 1)
    assert sha256_hex(data[:size]) == hashlib.sha256(data[:size]).hexdigest()
