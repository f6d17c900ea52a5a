"""One verdict from several runs of the same check on the same tree."""

from collections.abc import Sequence
from statistics import median

from msgspec.structs import replace

from loopd.domain.verdict import Metric, Status, Verdict

FLAKY = "flaky"


def combine(verdicts: Sequence[Verdict], rule: str) -> Verdict:
    """The verdict of all runs, by rule: "all" must pass, or a "majority" of them.

    Anything but pass and fail (an error, tampering, a skip) is the answer as it stands: it is no vote. Runs
    that disagree are flagged "flaky". Metrics are medians; findings and output are those of the deciding run.
    """
    no_vote = next((v for v in verdicts if v.status not in (Status.PASS, Status.FAIL)), None)
    if no_vote is not None:
        return replace(no_vote, duration_s=_duration_s(verdicts))
    passed = [verdict for verdict in verdicts if verdict.status is Status.PASS]
    failed = [verdict for verdict in verdicts if verdict.status is Status.FAIL]
    holds = not failed or (rule == "majority" and len(passed) > len(failed))
    deciding = (passed if holds else failed)[0]
    if passed and failed:
        deciding = replace(
            deciding,
            summary=f"{len(passed)} of {len(verdicts)} runs passed",
            flags=(*deciding.flags, FLAKY),
        )
    return replace(deciding, duration_s=_duration_s(verdicts), metrics=_medians(verdicts))


def _duration_s(verdicts: Sequence[Verdict]) -> float:
    return sum(verdict.duration_s for verdict in verdicts)


def _medians(verdicts: Sequence[Verdict]) -> dict[str, Metric]:

    names = [name for name in verdicts[0].metrics if all(name in v.metrics for v in verdicts)]
    return {
        name: replace(verdicts[0].metrics[name], value=median(v.metrics[name].value for v in verdicts))
        for name in names
    }
