"""Whether an attempt got nearer: by verdicts and trees, never by what an agent printed."""

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from loopd.domain.digests import sha256_hex
from loopd.domain.verdict import Status, Verdict

_VOLATILE = re.compile(r"0x[0-9a-f]+|\d+")  # addresses, durations, line numbers: noise in a failure's text


class Score(Struct, frozen=True, order=True):
    """How near a tree is. Compared by criteria met; between equals, fewer failing tests are better."""

    met: int = 0
    spared: int = 0  # failing tests, negated, so that more is better


def score(verdicts: Iterable[Verdict]) -> Score:
    """The score of one set of verdicts; criteria that were not reached count as not met."""
    verdicts = tuple(verdicts)
    met = sum(verdict.status is Status.PASS for verdict in verdicts)
    return Score(met, -sum(len(verdict.failed_tests) for verdict in verdicts))


def fingerprint(verdicts: Mapping[str, Verdict]) -> str:
    """A short digest that is equal for the same failure: its criteria, failing tests and wording without numbers."""
    lines = [
        f"{name} {verdict.status} {verdict.exit} {' '.join(verdict.failed_tests)} {_VOLATILE.sub('#', verdict.summary)}"
        for name, verdict in sorted(verdicts.items())
        if verdict.status is not Status.PASS
    ]
    return sha256_hex("\n".join(lines).encode("utf-8", "surrogatepass"))[:16]
