"""The safe view: what captured bytes may become before anyone sees them."""

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopd.domain.text import (
    Ends,
    SafeView,
    excerpt,
    head_and_tail,
    redact,
    safe_line,
    safe_text,
)

SMILE_E_CJK = "\U0001f600é中"


def in_chunks(data: bytes, sizes: list[int], line_limit: int = 0) -> str:
    """The view of `data` cut into pieces of the given sizes, the rest as the last piece."""
    view, out, at = SafeView(line_limit), [], 0
    for size in sizes:
        out.append(view.feed(data[at : at + size]))
        at += size
    return "".join(out) + view.feed(data[at:]) + view.end()


hostile_bytes = st.lists(
    st.one_of(
        st.sampled_from(
            [
                b"\x1b", b"[", b"31m", b"]0;", b"\x07", b"\x1b\\", b"\r", b"\n", b"\r\n", b"\x9b",
                b"\xc2\x9b", b"\xc2\x9d", b"P", b"(B", b"\xf0\x9f", b"\x98\x80", b"\xff", b"\t", b"plain",
            ]
        ),
        st.binary(max_size=4),
    ),
    max_size=30,
).map(b"".join)  # fmt: skip


@given(hostile_bytes, st.lists(st.integers(0, 5), max_size=40), st.sampled_from([0, 3, 20]))
def test_pipe_2_where_the_bytes_are_cut_does_not_change_the_view(data, sizes, line_limit):
    """Split characters, escapes and line ends are put together again, whatever the chunks."""
    assert in_chunks(data, sizes, line_limit) == safe_text(data, line_limit)


def test_pipe_2_characters_that_arrive_byte_by_byte_stay_whole():
    """No replacement sign where bytes were only late."""
    assert in_chunks(SMILE_E_CJK.encode(), [1] * 20) == SMILE_E_CJK


@given(hostile_bytes)
def test_pipe_5_nothing_in_a_view_can_act_on_a_terminal(data):
    """No control character but tab and newline, no direction mark, no lone surrogate is left."""
    for char in safe_text(data):
        assert char in "\t\n" or unicodedata.category(char) not in ("Cc", "Cs"), repr(char)
        assert unicodedata.bidirectional(char) not in (
            "LRO",
            "RLO",
            "LRE",
            "RLE",
            "LRI",
            "RLI",
            "FSI",
            "PDI",
            "PDF",
        )


@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Cf"), exclude_characters="\u2028\u2029"), max_size=300))
def test_plain_text_is_not_changed(text):
    """The view of printable text is that text."""
    assert safe_text(text.encode()) == text
    assert safe_text(text) == text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        pytest.param(b"\x1b[31mred\x1b[0m", "red", id="colour"),
        pytest.param(b"\x1b[?1049h\x1b[2J\x1b[Hx", "x", id="alternate screen"),
        pytest.param(b"\x1b[?2004hx\x1b[200~", "x", id="bracketed paste"),
        pytest.param(b"\x1b]52;c;ZXZpbA==\x07x", "x", id="clipboard, BEL"),
        pytest.param(b"\x1b]8;;http://e.com\x1b\\link\x1b]8;;\x1b\\", "link", id="hyperlink, ST"),
        pytest.param(b"\x1bP1$r\x1b\\x", "x", id="DCS"),
        pytest.param(b"\xc2\x9b31mx", "x", id="one-character CSI"),
        pytest.param(b"\xc2\x9d0;t\xc2\x9cx", "x", id="one-character OSC"),
        pytest.param(b"\x1b(Bx\x1b7\x1bcx", "xx", id="charset, save, reset"),
        pytest.param(b"\x1b]0;never closed\nnext line", "\nnext line", id="an open string ends with its line"),
        pytest.param(b"\x1b]0;a\x1b[31mx", "x", id="an escape ends a string"),
        pytest.param(b"\x1b[31\nx", "\nx", id="an open sequence ends with its line"),
        pytest.param(b"a\r\nb\r\r\nc", "a\nb\nc", id="line ends"),
        pytest.param(b"error: 3 failed\rall good", "error: 3 failed\nall good", id="a return hides nothing"),
        pytest.param(b"x\r", "x\n", id="return at the end"),
        pytest.param(b"a\x00b\x08c\x7fd", "abcd", id="controls"),
        pytest.param("a\u202eb\u2066c\u200fd\U000e0041".encode(), "abcd", id="direction marks and tags"),
        pytest.param(b"\xc0\xff not utf-8", "\ufffd\ufffd not utf-8", id="invalid bytes"),
        pytest.param(b"\xf0\x9f", "\ufffd", id="cut off at the end"),
        pytest.param(b"\xef\xbb\xbf{}", "{}", id="byte order mark"),
        pytest.param("a\u2028b".encode(), "a\nb", id="line separator"),
    ],
)
def test_pipe_5_escapes_are_dropped_and_text_is_kept(raw, shown):
    """Escapes of every family go, the words around them stay."""
    assert safe_text(raw) == shown


def test_lone_surrogates_of_file_names_become_replacement_signs():
    """A name that is not UTF-8 can be written to a UTF-8 file."""
    assert safe_text("a\udcffb") == "a\ufffdb"


def test_pipe_1_a_huge_line_is_cut_with_the_number_of_bytes_left_out():
    """One line of 3 MB is 2,000 characters and a note."""
    shown = safe_text(b"A" * 3_000_000 + b"\nnext")
    assert shown == "A" * 2_000 + " [… 2,998,000 bytes left out]\nnext"


def test_safe_line_is_one_bounded_line():
    """Table cells and names hold no newline and do not grow."""
    assert safe_line(b"a\n\x1b[1mb\t c") == "a b c"
    assert safe_line("x" * 300, 10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    "raw",
    [b"\x1b[" * 400_000, b"\x1b]" * 400_000, b"\x1b[" + b"1;" * 400_000, b"\r" * 800_000, b"\x1b" * 800_000],
)
def test_hostile_input_takes_linear_time(raw):
    """Doubling the input must not quadruple the time; 800 kB stay far under ten seconds on a busy machine."""
    started = time.process_time()
    safe_text(raw)
    assert time.process_time() - started < 10


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcdefghij1234567890XYZ",
        "sk-ant-api03-AbCdEf0123456789-_xyz",
        "ghp_0123456789abcdefghijklmnopqrstuvwxyz",
        "github_pat_0123456789abcdefghij_0123",
        "AKIAIOSFODNN7EXAMPLE",
        "glpat-abcdefghij0123456789",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4",
        "hf_abcdefghijklmnopqrstuvwx",
    ],
)
def test_known_token_shapes_are_redacted(secret):
    """A token is recognised without being told."""
    assert redact(f"key={secret} and '{secret}'") == "key=[redacted] and '[redacted]'"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abcdefghijklmnop1234", "Authorization: Bearer [redacted]"),
        ('{"Authorization": "Basic dXNlcjpwYXNz"}', '{"Authorization": "Basic [redacted]"}'),
        ("git clone https://me:hunter2@host/x", "git clone https://me:[redacted]@host/x"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nx", "[redacted]\nx"),
    ],
)
def test_secrets_known_by_their_place_are_redacted(text, shown):
    """The word that names the secret stays."""
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "the task-something-quite-long-here failed",
        "sk-learn-contrib-package",
        "bearer of bad news",
        "http://a:80/b",
    ],
)
def test_ordinary_words_are_not_redacted(text):
    """A false alarm would hide evidence."""
    assert redact(text) == text


def test_given_values_are_redacted_longest_first_and_short_ones_left():
    """A value that contains another leaves no remainder; "1" blanks nothing."""
    assert redact("hunter22hunter22x", ["hunter22", "hunter22x", "1", ""]) == "[redacted][redacted]"
    assert redact("exit 1", ["1"]) == "exit 1"


def test_redaction_takes_linear_time():
    """Long runs that almost match do not backtrack."""
    started = time.process_time()
    for text in (
        "eyJ" * 200_000,
        "sk-" * 200_000,
        "eyJaaaaaaaaaaaa." * 40_000,
        "://a:" * 100_000,
        "-----BEGIN " * 50_000,
    ):
        redact(text)
    assert time.process_time() - started < 10


@given(st.text(max_size=500), st.integers(60, 400))
def test_head_and_tail_fits_its_limit(text, limit):
    """The note is part of the limit; a short text is not touched."""
    text = safe_text(text)
    cut = head_and_tail(text, limit)
    assert len(cut.encode()) <= max(limit, len("[…  bytes left out …]".encode()) + 6)
    assert cut == text or "bytes left out" in cut


def left_out(shown: str) -> int:
    """The number in the note between head and tail."""
    return int(shown.split("\n[… ")[1].split(" bytes")[0].replace(",", ""))


def test_prom_1_the_note_says_how_many_bytes_are_left_out():
    """Head, count and tail; nothing is dropped silently."""
    cut = head_and_tail("#" * 5_000 + "=" * 5_000, 1_000)
    assert cut.startswith("###")
    assert cut.endswith("===")
    assert left_out(cut) + cut.count("#") + cut.count("=") == 10_000
    assert 980 <= len(cut.encode()) <= 1_000


def test_an_excerpt_redacts_before_it_cuts_and_counts_what_was_never_read():
    """Half a secret is a leak too; bytes between the two ends are part of the count."""
    head = b"#" * 310 + b"topsecretvalue\n" + b"line\n" * 1_000
    shown = excerpt(Ends(head, b"=" * 1_000, 1_000_000), 1_000, ["topsecretvalue"])
    assert "topsec" not in shown
    assert 1_000_000 < left_out(shown) < 1_006_400
    assert len(shown.encode()) <= 1_000


def test_an_excerpt_of_little_output_is_the_output():
    """Nothing is cut that fits."""
    assert excerpt(Ends(b"1 failed\n"), 1_000) == "1 failed\n"
