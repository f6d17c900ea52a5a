"""What the next attempt is told: evidence from verdicts and facts of loopd's own, never an agent's opinion.

Text that was captured comes out of here safe, redacted and bounded. Hidden criteria leave no trace; those
that give their verdict only are a row of the table and nothing else.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from msgspec import Struct
from msgspec.structs import replace

from loopd.domain.attempt import Outcome
from loopd.domain.contract import Criterion
from loopd.domain.requirement import Requirement
from loopd.domain.text import Ends, excerpt, head_and_tail, redact, safe_line, safe_text
from loopd.domain.verdict import Finding, Metric, Status, Verdict

FAILURES_AT_MOST = 20
FAILURE_BYTES = 400
EXCERPTS_BYTES = 8_000
NO_VALUE = "-"

Verdicts = Mapping[str, Verdict]  # by name of the criterion


class Row(Struct, frozen=True):
    """One criterion as the agent sees it."""

    name: str
    command: str  # "" when the agent is not told
    required: str
    now: str
    before: str
    best: str


class Failure(Struct, frozen=True):
    """One thing that is wrong, as a verifier located it."""

    criterion: str
    where: str  # a test id, a place in a file, or ""
    message: str


class Failures(Struct, frozen=True):
    """The first failures and the number of further ones."""

    shown: tuple[Failure, ...] = ()
    left_out: int = 0


class Output(Struct, frozen=True):
    """Captured output of one stream of a check, raw."""

    criterion: str
    stream: str  # "stdout" | "stderr"
    ends: Ends


class Excerpt(Struct, frozen=True):
    """The same as text that may be shown."""

    criterion: str
    stream: str
    text: str


class Tried(Struct, frozen=True):
    """An earlier attempt in loopd's own words."""

    attempt: int
    changed: tuple[str, ...]
    result: str


class Left(Struct, frozen=True):
    """What may still be spent, the coming attempt included; None is no limit."""

    attempts: int
    time_s: float
    attempt_time_s: float
    attempt_idle_s: float | None = None
    cost_usd: float | None = None
    tokens: int | None = None


class Briefing(Struct, frozen=True):
    """Everything an instruction is rendered from."""

    attempt: int
    objective: str  # byte for byte as in the contract
    workspace: str
    left: Left
    criteria: tuple[Row, ...] = ()
    references: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()  # empty: everything that is not protected
    addable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    max_files: int | None = None
    outcome: Outcome | None = None  # of the last attempt; None before the first
    failures: Failures = Failures()
    excerpts: tuple[Excerpt, ...] = ()
    changed: tuple[str, ...] = ()  # by the last attempt
    tried: tuple[Tried, ...] = ()  # the attempts before the last one, oldest first
    restored: tuple[str, ...] = ()  # said once
    rejected: tuple[str, ...] = ()  # why a change was rejected as tampering, as rules
    ended: tuple[str, ...] = ()  # commands found alive after the last attempt
    notes: tuple[str, ...] = ()  # from the owner
    lessons: tuple[str, ...] = ()
    rephrase: bool = False


def rows(
    criteria: Iterable[Criterion], now: Verdicts, before: Verdicts, best: Verdicts, baseline: Verdicts
) -> tuple[Row, ...]:
    """The table of criteria; hidden ones are not in it."""
    return tuple(
        Row(
            name=criterion.name,
            command=_command(criterion),
            required=_required(criterion, baseline.get(criterion.name)),
            now=_cell(criterion, now.get(criterion.name), "not checked yet"),
            before=_cell(criterion, before.get(criterion.name)),
            best=_cell(criterion, best.get(criterion.name)),
        )
        for criterion in criteria
        if criterion.visibility != "hidden"
    )


def _command(criterion: Criterion) -> str:
    if criterion.visibility != "open":
        return ""
    return safe_line(" ".join(criterion.run or ()), 300)


def _required(criterion: Criterion, baseline: Verdict | None) -> str:
    if criterion.visibility != "open" or not criterion.require:
        return "pass"
    known = {name: metric.value for name, metric in baseline.metrics.items()} if baseline else {}
    known |= criterion.baseline_metrics
    return ", ".join(_bound(name, need, known.get(name)) for name, need in criterion.require.items())


def _bound(name: str, requirement: Requirement, baseline: float | None) -> str:
    bound = requirement.bound(baseline)
    value = f" (= {bound:.6g})" if requirement.factor and bound is not None else ""
    return f"{name} {requirement}{value}"


def _cell(criterion: Criterion, verdict: Verdict | None, absent: str = NO_VALUE) -> str:
    if verdict is None:
        return absent
    if criterion.visibility != "open":
        told = verdict.status in (Status.PASS, Status.FAIL)
        return str(verdict.status) if told else "no verdict"
    reason = f": {safe_line(redact(verdict.reason), 120)}" if verdict.reason else ""
    shown = [f"{n} {_figure(m)}" for n, m in verdict.metrics.items() if n in criterion.require]
    return ", ".join([f"{verdict.status}{reason}", *shown])


def _figure(metric: Metric) -> str:
    return f"{metric.value:.6g} {safe_line(metric.unit, 20)}".strip()


def failing(criteria: Iterable[Criterion], verdicts: Verdicts) -> tuple[str, ...]:
    """Names of the criteria whose failures and output may be shown, in the contract's order."""
    unmet = (Status.FAIL, Status.ERROR, Status.TAMPER)
    return tuple(
        criterion.name
        for criterion in criteria
        if criterion.visibility == "open" and criterion.name in verdicts and verdicts[criterion.name].status in unmet
    )


def failures(criteria: Iterable[Criterion], verdicts: Verdicts, secrets: Sequence[str] = ()) -> Failures:
    """What is wrong, each thing once, at most 20; no criterion crowds out another."""
    names = failing(criteria, verdicts)
    seen: set[tuple[str, str]] = set()
    by_criterion = [list(_unseen(_failures(verdicts[name], secrets), seen)) for name in names]
    in_turns = [each for turn in zip_longest(*by_criterion) for each in turn if each]
    shown = sorted(in_turns[:FAILURES_AT_MOST], key=lambda failure: names.index(failure.criterion))
    return Failures(tuple(shown), len(in_turns) - len(shown))


def _unseen(found: Iterable[Failure], seen: set[tuple[str, str]]) -> Iterator[Failure]:
    for failure in found:
        if (failure.where, failure.message) not in seen:
            seen.add((failure.where, failure.message))
            yield failure


def _failures(verdict: Verdict, secrets: Sequence[str]) -> Iterator[Failure]:
    findings = [finding for finding in verdict.findings if finding.level == "error"]
    for finding in findings:
        yield Failure(verdict.criterion, _where(finding), _message(finding.message, secrets))
    if not findings:
        yield Failure(verdict.criterion, "", _message(verdict.reason or verdict.summary, secrets))


def _where(finding: Finding) -> str:
    place = f"{finding.file}:{finding.line}" if finding.file and finding.line else finding.file
    return safe_line(" ".join(part for part in (finding.rule, place and f"({place})") if part), 300)


def _message(text: str, secrets: Sequence[str]) -> str:
    return head_and_tail(redact(safe_text(text), secrets).strip(), FAILURE_BYTES)


def excerpts(
    outputs: Sequence[Output], secrets: Sequence[str] = (), limit_bytes: int = EXCERPTS_BYTES
) -> tuple[Excerpt, ...]:
    """Head and tail of each output, in `limit_bytes` together; the long ones share what short ones leave."""
    heard = [output for output in outputs if output.ends.head.strip()]
    texts: dict[int, str] = {}
    for done, index in enumerate(sorted(range(len(heard)), key=lambda i: _size(heard[i].ends))):
        share = limit_bytes // (len(heard) - done)
        texts[index] = excerpt(heard[index].ends, share, secrets)
        limit_bytes = max(limit_bytes - len(texts[index].encode()), 0)
    return tuple(Excerpt(o.criterion, o.stream, texts[index]) for index, o in enumerate(heard))


def _size(ends: Ends) -> int:
    return len(ends.head) + len(ends.tail) + ends.left_out


def tried(attempt: int, changed: Sequence[str], criteria: Iterable[Criterion], verdicts: Verdicts) -> Tried:
    """An attempt as a line of what was tried: what it changed, and what the checks said."""
    visible = [criterion for criterion in criteria if criterion.visibility != "hidden"]
    held = [c.name for c in visible if c.name in verdicts and verdicts[c.name].status is Status.PASS]
    wrong = [safe_line(test, 120) for name in failing(visible, verdicts) for test in verdicts[name].failed_tests]
    return Tried(attempt, tuple(changed), f"{len(held)} of {len(visible)} criteria held{_naming(wrong)}")


def _naming(wrong: Sequence[str]) -> str:
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    return f"; failing: {', '.join(wrong[:3])}{more}" if wrong else ""


def reduced(briefing: Briefing) -> Iterator[Briefing]:
    """The briefing, then shorter forms of it, for an instruction that would outgrow its cap."""
    yield briefing
    briefing = replace(briefing, excerpts=(), tried=briefing.tried[-3:])
    yield briefing
    found = briefing.failures
    fewer = Failures(found.shown[:3], found.left_out + len(found.shown[3:]))
    yield replace(briefing, failures=fewer, tried=(), changed=(), lessons=())
