"""Pinned copies: whatever changes one is noticed, and the right content comes back."""

import hashlib
import os
import time
from pathlib import Path

from loopd.adapters.pins import PinnedFiles

CONTENT = b"goal: right\n"


def pinned(tmp_path: Path) -> tuple[PinnedFiles, Path]:
    """One pinned file that was looked at when its times could tell a change already."""
    path = tmp_path / "contract.yaml"
    path.write_bytes(CONTENT)
    pins = PinnedFiles(tmp_path, {path.name: hashlib.sha256(CONTENT).hexdigest()})
    born_ns = path.stat().st_ctime_ns
    while time.time_ns() - born_ns < 50_000_000:
        assert pins.changed() == ()
    assert pins.changed() == ()
    return pins, path


def test_a_change_with_the_size_and_the_time_of_before_is_noticed_and_put_right(tmp_path: Path) -> None:
    """Whoever changes a file can set its time back, but not the moment of that."""
    pins, path = pinned(tmp_path)
    before = path.stat()
    path.write_bytes(b"goal: wrong\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert pins.changed() == (path.name,)
    pins.repair()
    assert path.read_bytes() == CONTENT
    assert pins.changed() == ()


def test_a_file_that_is_gone_or_a_link_is_noticed(tmp_path: Path) -> None:
    """A link to the right content is no copy: its target is out of reach."""
    pins, path = pinned(tmp_path)
    path.rename(tmp_path / "elsewhere")
    assert pins.changed() == (path.name,)
    path.symlink_to(tmp_path / "elsewhere")
    assert pins.changed() == (path.name,)
    pins.repair()
    assert not path.is_symlink()
    assert pins.changed() == ()
