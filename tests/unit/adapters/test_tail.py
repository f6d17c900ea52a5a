"""Tailing an output file: exact lines, bounded memory, nothing lost at the end."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopd.adapters.tail import LINE_BYTES, Tail, exceeds, keep_head_and_tail, read_ends
from loopd.domain.text import excerpt, safe_text


def all_lines(tail):
    """Everything there is now, then the end."""
    lines = []
    while new := tail.read():
        lines += new
    return [*lines, tail.finish()]


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_pipe_2_lines_are_the_same_however_the_file_grows(tmp_path_factory, pieces):
    """Reading between any two writes gives the lines of the whole."""
    path = tmp_path_factory.mktemp("tail") / "stdout.log"
    tail, lines = Tail(path), []
    with path.open("wb", buffering=0) as file:
        for piece in pieces:
            file.write(piece)
            lines += tail.read()
    assert [*lines, *all_lines(tail)] == b"".join(pieces).split(b"\n")


def test_a_file_that_does_not_exist_yet_has_no_lines(tmp_path):
    """The reader may be first."""
    path = tmp_path / "late.log"
    with Tail(path) as tail:
        assert tail.read() == []
        path.write_bytes(b"a\nb")
        assert tail.read() == [b"a"]
        assert tail.finish() == b"b"


def test_pipe_1_a_long_line_is_cut_and_counted_and_the_next_is_whole(tmp_path):
    """3 MB in one line neither raises nor swallows what follows."""
    path = tmp_path / "stdout.log"
    path.write_bytes(b"A" * 3_000_000 + b"\nnext\n" + b"B" * 2_000_000)
    with Tail(path) as tail:
        lines = all_lines(tail)
    assert [len(line) for line in lines] == [LINE_BYTES, 4, LINE_BYTES]
    assert tail.cut_lines == 2
    assert tail.cut_bytes == 5_000_000 - 2 * LINE_BYTES
    assert tail.offset == path.stat().st_size


def test_pipe_1_a_line_of_64_mb_costs_less_than_16_mb(tmp_path):
    """Measured in a process of its own: peak memory before and after."""
    path = tmp_path / "stdout.log"
    with path.open("wb") as file:
        for _ in range(64):
            file.write(b"A" * 1024 * 1024)
        file.write(b"\nend\n")
    program = (
        "import resource, sys; from pathlib import Path; from loopd.adapters.tail import Tail\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak(); tail = Tail(Path(sys.argv[1])); count = 0\n"
        "while lines := tail.read(): count += len(lines)\n"
        "print(count, peak() - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    count, growth_kb = map(int, done.stdout.split())
    assert count == 2
    assert growth_kb < 16 * 1024


def test_a_chunk_of_many_lines_is_handed_out_in_parts(tmp_path):
    """A gigabyte that waits (an adopted attempt) is not one list."""
    path = tmp_path / "stdout.log"
    path.write_bytes(b"0123456\n" * 200_000)
    with Tail(path) as tail:
        first = tail.read()
        assert 0 < len(first) < 40_000
        assert len(first) + len(all_lines(tail)) == 200_001


def test_a_log_over_its_cap_keeps_head_and_tail_and_says_so(tmp_path):
    """Complete up to the cap, then both ends and the number of bytes between; twice changes nothing."""
    path = tmp_path / "stdout.log"
    path.write_bytes(b"#" * 6_000 + b"=" * 6_000)
    assert exceeds(path, 10_000)
    left_out = keep_head_and_tail(path, 10_000)
    kept = path.read_bytes()
    assert len(kept) <= 10_000
    assert kept.startswith(b"####")
    assert kept.endswith(b"====")
    assert kept.count(b"#") + kept.count(b"=") + left_out == 12_000
    assert b"%d bytes left out" % left_out in kept
    assert keep_head_and_tail(path, 10_000) == 0
    assert path.read_bytes() == kept
    assert os.listdir(tmp_path) == ["stdout.log"]


@pytest.mark.parametrize("size", [0, 9_999, 10_000])
def test_a_log_within_its_cap_is_not_touched(tmp_path, size):
    """Raw and complete up to the cap."""
    path = tmp_path / "stdout.log"
    path.write_bytes(b"x" * size)
    assert not exceeds(path, 10_000)
    assert keep_head_and_tail(path, 10_000) == 0
    assert path.read_bytes() == b"x" * size


def test_a_missing_log_does_not_exceed_its_cap(tmp_path):
    """Nothing was written yet."""
    assert not exceeds(tmp_path / "none", 1)
    assert read_ends(tmp_path / "none").head == b""


def test_prom_1_the_excerpt_of_3_mb_has_head_and_tail_and_the_count(tmp_path):
    """Only the two ends are read."""
    path = tmp_path / "stdout.log"
    path.write_bytes(b"first line\n" + b"noise\n" * 500_000 + b"3 failed\n")
    ends = read_ends(path)
    assert len(ends.head) + len(ends.tail) + ends.left_out == path.stat().st_size
    shown = excerpt(ends, 4_000)
    assert shown.startswith("first line\n")
    assert shown.endswith("3 failed\n")
    assert "bytes left out" in shown
    assert len(shown.encode()) <= 4_000


TRIAL = r"""
import os, sys, time
def w(b): os.write(1, b)
w(b'{"type":"user","content":"' + b"A" * 3_000_000 + b'"}\n')
for byte in "\U0001f600\u00e9\u4e2d".encode():
    w(bytes([byte])); time.sleep(0.005)
w(b"\n\xc0\xff not utf-8\r\x1b[2J\x1b[31mred\n")
os.write(2, b"E" * 400_000)
w(b"last line, no newline")
"""


def test_pipe_4_an_agent_that_floods_both_streams_is_read_whole(tmp_path):
    """Trial 04: a huge line, late characters, invalid bytes, escapes, a full stderr, no last newline."""
    out, err = tmp_path / "stdout.log", tmp_path / "stderr.log"
    with out.open("wb") as stdout, err.open("wb") as stderr, Tail(out) as tail:
        process = subprocess.Popen([sys.executable, "-c", TRIAL], stdout=stdout, stderr=stderr)
        lines = []
        while process.poll() is None:
            lines += tail.read()
        lines += all_lines(tail)
    assert process.returncode == 0
    assert err.stat().st_size == 400_000
    view = [safe_text(line, line_limit=80) for line in lines]
    assert view[1:] == ["\U0001f600é中", "\ufffd\ufffd not utf-8\nred", "last line, no newline"]
    assert "bytes left out" in view[0]
