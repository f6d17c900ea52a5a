"""The one way from captured bytes to text that a person, a page or an agent may see.

Bytes are stored raw; everything shown goes through here: decoded incrementally, without escapes, controls and
invisible direction marks, secrets redacted, lines bounded, the middle left out with a note. Linear time.
"""

import codecs
import re
from collections.abc import Callable, Iterable

from msgspec import Struct

LINE_LIMIT = 2_000  # characters of one line in a view
SHORTEST_SECRET = 6  # a shorter value ("1", "true") would blank out half of every log
REDACTED = "[redacted]"

# C0 and C1 controls but tab and newline; direction marks; invisible tag characters; lone surrogates.
_SPECIAL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_STRING_START = frozenset("\x90\x98\x9d\x9e\x9f")  # DCS, SOS, OSC, PM, APC as single characters
_ESCAPED_STRING_START = frozenset("PX]^_")  # the same after ESC
_STRING_END = re.compile("[\n\r\x07\x18\x1a\x1b\x9c]")
_PARAMETERS = re.compile("[\x20-\x3f]*")
_INTERMEDIATES = re.compile("[\x20-\x2f]*")


class _Stripper:
    """A terminal's parser that keeps the text and drops the rest; each step moves on or returns to plain."""

    def __init__(self) -> None:
        self._step: Callable[[str, int, list[str]], int] = self._plain

    def feed(self, text: str) -> str:
        out: list[str] = []
        at = 0
        while at < len(text):
            at = self._step(text, at, out)
        return "".join(out)

    def end(self) -> str:
        return "\n" if self._step == self._after_return else ""

    def _plain(self, text: str, at: int, out: list[str]) -> int:
        special = _SPECIAL.search(text, at)
        if special is None:
            out.append(text[at:])
            return len(text)
        out.append(text[at : special.start()])
        self._meet(special.group(), out)
        return special.end()

    def _meet(self, char: str, out: list[str]) -> None:
        if char == "\x1b":
            self._step = self._escape
        elif char == "\r":
            self._step = self._after_return
        elif char == "\x9b":
            self._step = self._control_sequence
        elif char in _STRING_START:
            self._step = self._string
        elif char in "\u2028\u2029":
            out.append("\n")
        elif "\ud800" <= char <= "\udfff":
            out.append("\ufffd")

    def _after_return(self, text: str, at: int, out: list[str]) -> int:
        # A lone return becomes a newline: overwriting, as a terminal does, would let output hide itself.
        if text[at] == "\r":
            return at + 1
        self._step = self._plain
        out.append("\n")
        return at + 1 if text[at] == "\n" else at

    def _escape(self, text: str, at: int, _out: list[str]) -> int:
        char = text[at]
        if char == "[":
            self._step = self._control_sequence
        elif char in _ESCAPED_STRING_START:
            self._step = self._string
        elif "\x20" <= char <= "\x2f":
            self._step = self._designation
        else:
            self._step = self._plain
            return at + 1 if "\x30" <= char <= "\x7e" else at
        return at + 1

    def _designation(self, text: str, at: int, _out: list[str]) -> int:
        return self._finish(text, _end_of(_INTERMEDIATES, text, at), "\x30")

    def _control_sequence(self, text: str, at: int, _out: list[str]) -> int:
        return self._finish(text, _end_of(_PARAMETERS, text, at), "\x40")

    def _finish(self, text: str, at: int, lowest_final: str) -> int:
        if at == len(text):
            return at
        self._step = self._plain
        return at + 1 if lowest_final <= text[at] <= "\x7e" else at

    def _string(self, text: str, at: int, _out: list[str]) -> int:
        # A string that is never closed ends with its line, so that it cannot swallow the rest of a log.
        end = _STRING_END.search(text, at)
        if end is None:
            return len(text)
        self._step = self._string_escape if end.group() == "\x1b" else self._plain
        return end.start() if end.group() in "\n\r" else end.end()

    def _string_escape(self, text: str, at: int, out: list[str]) -> int:
        if text[at] != "\\":
            return self._escape(text, at, out)
        self._step = self._plain
        return at + 1


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


class _Bounder:
    """Cuts lines after `limit` characters (0: never) and says how many bytes are missing."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._column = 0
        self._cut_bytes = 0

    def feed(self, text: str) -> str:
        if not self._limit:
            return text
        first, *others = text.split("\n")
        out = [self._take(first)]
        for part in others:
            out += (self.end(), "\n", self._take(part))
        return "".join(out)

    def _take(self, part: str) -> str:
        room = self._limit - self._column
        kept = part[:room]
        self._column += len(kept)
        if len(part) > room:
            self._cut_bytes += len(part[room:].encode())
        return kept

    def end(self) -> str:
        note = f" [… {self._cut_bytes:,} bytes left out]" if self._cut_bytes else ""
        self._column = self._cut_bytes = 0
        return note


class SafeView:
    """Incremental form of `safe_text`: the result does not depend on where the bytes were split."""

    def __init__(self, line_limit: int = LINE_LIMIT) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stripper = _Stripper()
        self._bounder = _Bounder(line_limit)

    def feed(self, data: bytes) -> str:
        """The text that `data` adds; an unfinished character or escape is held back."""
        return self._bounder.feed(self._stripper.feed(self._decoder.decode(data)))

    def end(self) -> str:
        """What was held back; the view is over after this."""
        rest = self._stripper.feed(self._decoder.decode(b"", final=True)) + self._stripper.end()
        return self._bounder.feed(rest) + self._bounder.end()


def safe_text(data: bytes | str, line_limit: int = LINE_LIMIT) -> str:
    """Printable text of captured output: nothing in it can act on a terminal. `line_limit` 0 cuts no line."""
    if isinstance(data, str):
        if data.isascii() and data.isprintable() and (not line_limit or len(data) <= line_limit):
            return data  # nearly every name and path: nothing to strip, nothing to cut
        stripper, bounder = _Stripper(), _Bounder(line_limit)
        return bounder.feed(stripper.feed(data) + stripper.end()) + bounder.end()
    view = SafeView(line_limit)
    return view.feed(data) + view.end()


def safe_line(data: bytes | str, limit: int = 200) -> str:
    """One line of at most `limit` characters, white space collapsed; for table cells, names and commands."""
    line = " ".join(safe_text(data, line_limit=0).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


# Every pattern starts at a fixed word that cannot lie inside a longer one, or has a bounded length: whatever
# the input holds, it is not walked again and again.
_TOKENS = re.compile(
    r"""(?<![A-Za-z0-9_-])(?:
        sk-(?=[A-Za-z_-]{0,80}[0-9])[A-Za-z0-9_-]{16,}
      | gh[opsru]_[A-Za-z0-9]{20,} | github_pat_[A-Za-z0-9_]{20,} | glpat-[A-Za-z0-9_-]{20,}
      | (?:AKIA|ASIA)[A-Z0-9]{16} | AIza[A-Za-z0-9_-]{35}
      | xox[abeprs]-[A-Za-z0-9-]{10,} | hf_[A-Za-z0-9]{20,} | npm_[A-Za-z0-9]{36} | pypi-[A-Za-z0-9_-]{40,}
      | eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}
    )""",
    re.VERBOSE,
)
_BEARER = re.compile(r"(?<![A-Za-z0-9])(bearer[ \t]{1,4})[A-Za-z0-9._~+/=-]{16,}", re.IGNORECASE)
_AUTHORIZATION = re.compile(
    r"(authorization[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?[A-Za-z]{1,20}[ \t]{1,4})[^\s\"']{8,}", re.I
)
_IN_URL = re.compile(r"(://[^/\s:@]{1,100}:)[^/\s@]{1,200}(?=@)")
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
)


# One look that spares nearly every line the six below: each of them needs one of these.
_SUSPICIOUS = re.compile(
    r"sk-|gh[opsru]_|github_pat_|glpat-|AKIA|ASIA|AIza|xox[abeprs]-|hf_|npm_|pypi-|eyJ|://|PRIVATE KEY"
    r"|(?i:bearer|authorization)"
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` without the given values and well-known token shapes; values under 6 characters are left."""
    values = {form for secret in secrets for form in (secret, secret.strip(), safe_text(secret, line_limit=0))}
    known = sorted((value for value in values if len(value) >= SHORTEST_SECRET), key=len, reverse=True)
    if known:
        text = re.sub("|".join(map(re.escape, known)), REDACTED, text)
    if not _SUSPICIOUS.search(text):
        return text
    text = _PRIVATE_KEY.sub(REDACTED, text)
    for kept_before in (_BEARER, _AUTHORIZATION, _IN_URL):
        text = kept_before.sub(rf"\g<1>{REDACTED}", text)
    return _TOKENS.sub(REDACTED, text)


def head_and_tail(text: str, limit: int) -> str:
    """At most `limit` UTF-8 bytes of `text`: a third from the start, the rest from the end, and a note."""
    data = text.encode()
    return text if len(data) <= limit else _joined(data, data, len(data), limit)


class Ends(Struct, frozen=True):
    """Raw captured output, or its two ends when it is long."""

    head: bytes
    tail: bytes = b""
    left_out: int = 0  # bytes between head and tail; 0: `head` is everything


def excerpt(ends: Ends, limit: int, secrets: Iterable[str] = (), line_limit: int = LINE_LIMIT) -> str:
    """The safe view of captured output in `limit` bytes. Redacts before it cuts: half a token is a leak."""
    secrets = tuple(secrets)
    head = _bounded(redact(safe_text(ends.head, line_limit=0), secrets), line_limit)
    if not ends.left_out:
        return head_and_tail(head, limit)
    tail = _bounded(redact(safe_text(ends.tail, line_limit=0), secrets), line_limit)
    first, last = head.encode(), tail.encode()
    return _joined(first, last, len(first) + len(last) + ends.left_out, limit)


def _bounded(text: str, line_limit: int) -> str:
    bounder = _Bounder(line_limit)
    return bounder.feed(text) + bounder.end()


def _joined(head: bytes, tail: bytes, total: int, limit: int) -> str:
    room = max(limit - len(_note(total)), 0)
    from_tail = min(len(tail), room - min(len(head), room // 3))
    first = head[: room - from_tail].decode(errors="ignore")
    last = tail[len(tail) - from_tail :].decode(errors="ignore")
    return first + _note(total - len(first.encode()) - len(last.encode())).decode() + last


def _note(left_out: int) -> bytes:
    return f"\n[… {left_out:,} bytes left out …]\n".encode()
