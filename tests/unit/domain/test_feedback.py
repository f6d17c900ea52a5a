"""What is fed back: failures first, everything bounded, nothing hidden, nobody's opinion."""

import pytest
from msgspec.structs import fields

from loopd.domain import feedback
from loopd.domain.contract import Criterion
from loopd.domain.feedback import Briefing, Failure, Failures, Left, Output, Row, Tried
from loopd.domain.text import Ends
from loopd.domain.verdict import Finding, Metric, Status, Verdict


def criterion(name, **more):
    """A criterion as a contract gives it."""
    return Criterion.model_validate({"name": name, "run": "check {out}", **more})


def verdict(name, status=Status.FAIL, **more):
    """What a verifier said."""
    return Verdict(name, status, **more)


def failed(name, *tests):
    """A failing verdict with one finding a test."""
    return verdict(name, findings=tuple(Finding(f"{test} is wrong", rule=test) for test in tests))


def by_name(*verdicts):
    """As the engine holds them."""
    return {each.criterion: each for each in verdicts}


def test_j1_the_table_shows_now_before_best_and_required():
    """A metric stands beside its bound, the bound as a number."""
    speed = criterion("speed", require={"median_s": "<= 0.5 * baseline"})
    now, before, best = (
        by_name(verdict("speed", metrics={"median_s": Metric(value, "s"), "noise": Metric(1)}))
        for value in (1.5, 1.75, 1.25)
    )
    baseline = by_name(verdict("speed", Status.PASS, metrics={"median_s": Metric(2.0, "s")}))
    assert feedback.rows([speed, criterion("tests")], now, before, best, baseline) == (
        Row(
            "speed", "check {out}", "median_s <= 0.5 * baseline (= 1)",
            "fail, median_s 1.5 s", "fail, median_s 1.75 s", "fail, median_s 1.25 s",
        ),
        Row("tests", "check {out}", "pass", "not checked yet", "-", "-"),
    )  # fmt: skip


def test_a_declared_baseline_metric_outranks_a_measured_one():
    """What the contract declares is what is compared."""
    speed = criterion("speed", require={"median_s": "< baseline"}, baseline_metrics={"median_s": 3.0})
    (row,) = feedback.rows([speed], {}, {}, {}, {})
    assert row.required == "median_s < baseline (= 3)"


def test_an_error_says_why_without_secrets_or_escapes():
    """The reason of an open criterion is told."""
    now = by_name(verdict("a", Status.ERROR, reason="\x1b[1mtimed out\nkey ghp_0123456789abcdefghijklmn"))
    assert feedback.rows([criterion("a")], now, {}, {}, {})[0].now == "error: timed out key [redacted]"


def test_h5_hidden_criteria_leave_no_trace():
    """Not a row, not a failure, not an output, not a count."""
    criteria = [criterion("tests"), criterion("canary-4711", visibility="hidden")]
    verdicts = by_name(
        verdict("tests", Status.PASS), failed("canary-4711", "canary-4711::x"),
    )  # fmt: skip
    told = (
        feedback.rows(criteria, verdicts, verdicts, verdicts, verdicts),
        feedback.failures(criteria, verdicts),
        feedback.failing(criteria, verdicts),
        feedback.tried(3, ["a.py"], criteria, verdicts),
    )
    assert "4711" not in repr(told)
    assert told[3].result == "1 of 1 criteria held"


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        (Status.PASS, "pass"),
        (Status.FAIL, "fail"),
        (Status.ERROR, "no verdict"),
        (Status.TAMPER, "no verdict"),
    ],
)
def test_verdict_only_criteria_tell_their_verdict_and_nothing_else(status, shown):
    """No command, no metric, no reason, no finding."""
    quiet = criterion("quiet", visibility="verdict", require={"secret_metric": "> 7"})
    secret = Finding("secret", rule="secret")
    verdicts = by_name(
        verdict("quiet", status, reason="secret", metrics={"secret_metric": Metric(1)}, findings=(secret,))
    )
    assert feedback.rows([quiet], verdicts, {}, {}, {}) == (Row("quiet", "", "pass", shown, "-", "-"),)
    assert feedback.failures([quiet], verdicts) == Failures()
    assert "secret" not in feedback.tried(1, [], [quiet], verdicts).result


def test_failures_are_told_once_and_at_most_twenty():
    """The rest is a number; no criterion crowds out another."""
    many = failed("many", *(f"test_{number}" for number in range(50)))
    few = failed("few", "test_0", "only_here")
    found = feedback.failures([criterion("many"), criterion("few")], by_name(many, few))
    assert len(found.shown) == 20
    assert found.left_out == 51 - 20
    assert Failure("few", "only_here", "only_here is wrong") in found.shown
    assert [failure.criterion for failure in found.shown] == ["many"] * 19 + ["few"]


def test_a_failure_names_its_place_and_is_bounded_and_safe():
    """Test id, file and line; a long message keeps its ends."""
    finding = Finding("\x1b[31m" + "x" * 5_000 + "\nassert 1 == 2", rule="t::a", file="t.py", line=7)
    (failure,) = feedback.failures([criterion("t")], by_name(verdict("t", findings=(finding,)))).shown
    assert failure.where == "t::a (t.py:7)"
    assert len(failure.message.encode()) <= 400
    assert failure.message.endswith("assert 1 == 2")
    assert "bytes left out" in failure.message
    assert "\x1b" not in failure.message


def test_a_failure_without_findings_is_its_reason_or_summary():
    """A plain command says at least how it left."""
    verdicts = by_name(verdict("a", summary="exit 1"), verdict("b", Status.ERROR, reason="killed by SIGSEGV"))
    found = feedback.failures([criterion("a"), criterion("b")], verdicts)
    assert [failure.message for failure in found.shown] == ["exit 1", "killed by SIGSEGV"]


def test_warnings_and_passing_criteria_are_no_failures():
    """Only what keeps a criterion from holding."""
    note = Finding("style", level="warning")
    assert feedback.failures([criterion("a")], by_name(verdict("a", Status.PASS, findings=(note,)))).shown == ()
    skipped = by_name(verdict("a", Status.SKIP))
    assert feedback.failing([criterion("a")], skipped) == ()


def test_excerpts_share_about_8_kb_and_short_ones_leave_room():
    """A flood of one check does not cost the other its lines."""
    outputs = [
        Output("flood", "stdout", Ends(b"x\n" * 100_000, b"end of flood\n", 5_000_000)),
        Output("flood", "stderr", Ends(b"  \n")),
        Output("short", "stdout", Ends(b"1 failed\n")),
    ]
    flood, short = feedback.excerpts(outputs)
    assert (short.criterion, short.stream, short.text) == ("short", "stdout", "1 failed\n")
    assert flood.text.endswith("end of flood\n")
    assert 7_500 < len(flood.text.encode()) + len(short.text.encode()) <= 8_000


def test_excerpts_are_redacted():
    """A value of the environment never reaches a prompt."""
    (shown,) = feedback.excerpts([Output("a", "stdout", Ends(b"pw=hunter2222\n"))], secrets=["hunter2222"])
    assert shown.text == "pw=[redacted]\n"


def test_what_was_tried_names_paths_and_failing_tests():
    """loopd's own words, three tests at most."""
    verdicts = by_name(verdict("a", Status.PASS), failed("b", "t1", "t2", "t3", "t4"))
    tried = feedback.tried(4, ["x.py"], [criterion("a"), criterion("b")], verdicts)
    assert tried == Tried(4, ("x.py",), "1 of 2 criteria held; failing: t1, t2, t3 and 1 more")


def test_j4_a_briefing_gets_shorter_in_steps_that_keep_the_failures_longest():
    """Excerpts go first; the goal, the rules, the table and the first failures never."""
    briefing = Briefing(
        1, "goal", "/w", Left(1, 1.0, 1.0), constraints=("rule",), changed=("a",), lessons=("l",),
        failures=Failures(tuple(Failure("t", str(n), "m") for n in range(5)), 1),
        excerpts=(feedback.Excerpt("t", "stdout", "x"),), tried=(Tried(1, (), ""),) * 9,
    )  # fmt: skip
    whole, without_excerpts, least = feedback.reduced(briefing)
    assert whole is briefing
    assert (without_excerpts.excerpts, len(without_excerpts.tried)) == ((), 3)
    assert (len(least.failures.shown), least.failures.left_out, least.tried) == (3, 3, ())
    assert (least.constraints, least.objective) == (("rule",), "goal")


def test_h2_a_briefing_has_no_room_for_an_agents_opinion():
    """Every field is named here with its source; a new one has to answer for itself."""
    assert {field.name for field in fields(Briefing)} == {
        "attempt", "workspace", "left", "outcome", "ended", "rephrase",  # loopd's own
        "objective", "references", "constraints", "allowed", "addable", "protected", "max_files",  # contract
        "criteria", "failures", "excerpts", "rejected",  # verdicts
        "changed", "tried", "restored",  # trees
        "notes", "lessons",  # the owner
    }  # fmt: skip
