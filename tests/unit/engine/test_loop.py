"""The whole loop, against fakes, in milliseconds: what ends it, what does not, and what the next attempt is told."""

from pathlib import Path

import pytest

from engine_agents import Does, Script, works
from engine_fakes import World
from engine_trees import Seen, new, parts
from loopd.domain.attempt import Outcome
from loopd.domain.decision import Policy, Rung
from loopd.domain.run import State
from loopd.domain.verdict import Finding, Status, Verdict
from loopd.ports.requests import RequestKind

DONE = works({"a.py": "new"})


# --- done is decided by verdicts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["**LOOP_COMPLETE**", "1 LOOP_COMPLETE", "| LOOP_COMPLETE |", "nothing of the kind"])
def test_comp_1_the_first_attempt_that_meets_the_goal_ends_it_whatever_it_says(tmp_path: Path, word: str) -> None:
    """A marker is neither needed nor read: the verifier passes, so the run is met after one attempt."""
    world = World(tmp_path, works({"a.py": "new"}, word), checks={"new": new})
    ending = world.supervise()
    assert (ending.state, ending.exit_status, len(world.launches)) == (State.MET, 0, 1)


def test_comp_2_a_promise_without_work_is_a_failed_attempt_and_the_work_is_what_counts(tmp_path: Path) -> None:
    """`DONE` alone changes nothing; the attempt that makes the file is the one that is met."""
    world = World(tmp_path, works({}, "DONE"), DONE, checks={"new": new})
    assert world.supervise().state is State.MET
    assert [event["met"] for event in world.events("attempt.assessed")] == [False, True]


def test_comp_3_an_echoed_prompt_proves_nothing(tmp_path: Path) -> None:
    """An agent that prints its instruction, promise included, uses up all its attempts."""
    world = World(tmp_path, works({"log": "x"}, "when finished say LOOP_COMPLETE"), checks={"new": new}, attempts=3)
    ending = world.supervise()
    assert (ending.state, ending.exit_status, len(world.launches)) == (State.EXHAUSTED, 1, 3)
    assert ending.reason.startswith("3 of 3 attempts are used")


def test_comp_4_five_criteria_one_more_each_attempt_take_exactly_five(tmp_path: Path) -> None:
    """However often the agent says that all is done; each report lists what still fails."""
    scripts = [works({f"part{n}": "x"}, "all done") for n in range(1, 6)]
    world = World(tmp_path, *scripts, checks=parts(5))
    assert world.supervise().state is State.MET
    assert len(world.launches) == 5
    failing = [event["failing"] for event in world.events("attempt.assessed")]
    assert failing == [["p2", "p3", "p4", "p5"], ["p3", "p4", "p5"], ["p4", "p5"], ["p5"], []]


def test_comp_4_a_criterion_that_fell_back_is_reported(tmp_path: Path) -> None:
    """What held before and fails now is among the failing ones again."""
    world = World(tmp_path, works({"part1": "x"}), works({"part1": None, "part2": "x"}), checks=parts(3), attempts=2)
    world.supervise()
    assert [event["failing"] for event in world.events("attempt.assessed")] == [["p2", "p3"], ["p1", "p3"]]


def test_comp_5_an_agent_that_only_promises_is_never_met_and_ends_stuck_after_five_attempts(tmp_path: Path) -> None:
    """Ten milliseconds, the promise, exit 0, for ever: five attempts without effect are the end."""
    world = World(tmp_path, works({}, "LOOP_COMPLETE", lasts_s=0.01), checks={"new": new})
    ending = world.supervise()
    assert (ending.state, ending.exit_status, len(world.launches)) == (State.STUCK, 3, 5)
    assert ending.reason.startswith("5 attempts in a row changed nothing")


def test_comp_6_equal_output_is_no_stall_while_verdicts_get_better(tmp_path: Path) -> None:
    """Six attempts that print the same line and mend one check each are six steps forward."""
    scripts = [works({f"part{n}": "x"}, "working on it") for n in range(1, 7)]
    world = World(tmp_path, *scripts, checks=parts(6))
    assert world.supervise().state is State.MET
    assert len(world.launches) == 6
    assert {event["decision"] for event in world.events("decision")} == {"continue", "met"}


@pytest.mark.parametrize("status", [1, 137])
def test_h2_an_agent_that_fails_and_whose_tree_holds_is_met(tmp_path: Path, status: int) -> None:
    """The exit status of an agent says nothing about the goal."""
    world = World(tmp_path, works({"a.py": "new"}, "I could not do it", exit=status), checks={"new": new})
    assert world.supervise().state is State.MET
    assert world.events("attempt.ended")[0]["outcome"] == Outcome.CRASHED


def test_j3_three_early_exits_are_normal_and_the_fourth_attempt_works(tmp_path: Path) -> None:
    """An agent that gives up at once is called again while the budget lasts."""
    gives_up = works({}, "I am not confident", exit=1, lasts_s=0.1)
    world = World(tmp_path, gives_up, gives_up, gives_up, DONE, checks={"new": new})
    assert world.supervise().state is State.MET
    assert len(world.launches) == 4


def test_met_on_the_last_allowed_attempt_is_met(tmp_path: Path) -> None:
    world = World(tmp_path, works({"b": "x"}), DONE, checks={"new": new}, attempts=2)
    assert world.supervise().state is State.MET


def test_what_was_proven_is_delivered_before_the_run_is_over(tmp_path: Path) -> None:
    world = World(tmp_path, DONE, checks={"new": new})
    world.supervise()
    assert world.kinds()[-3:] == ["decision", "delivered", "run.ended"]
    assert world.record.delivered == "the workspace /workspace is the proven tree"


def test_a_branch_gets_the_proven_tree_with_its_verdicts(tmp_path: Path) -> None:
    world = World(tmp_path, works({"a.py": "new", "ci.yml": "mine"}), checks={"new": new}, goal={"deliver": "branch"})
    world.supervise()
    tree, message = world.workspace.branches["loopd/demo-k3f9"]
    assert world.workspace.trees[tree] == {"a.py": "new", "ci.yml": "owner's", "contract.yaml": "goal: demo"}
    assert message.splitlines() == [
        "demo: a.py is new",
        "",
        "Criteria:",
        "- new: pass",
        "",
        "Loopd-Run: demo-k3f9",
        f"Loopd-Tree: {tree}",
        "Loopd-Contract: d1",
    ]


def test_a_failed_delivery_leaves_the_run_met_and_is_said(tmp_path: Path) -> None:
    world = World(tmp_path, DONE, checks={"new": new}, goal={"deliver": "branch"})
    world.workspace.branches["loopd/demo-k3f9"] = ("other", "theirs")
    assert world.supervise().state is State.MET
    assert world.record.attention[-1].startswith("delivery failed: branch loopd/demo-k3f9 exists")
    assert world.record.attention[-1].endswith("loopd deliver demo-k3f9 repeats it")


# --- instructions are made of verdicts -------------------------------------------------------------------------------


def test_j1_each_attempt_ends_with_a_verdict_set_and_the_next_instruction_is_built_from_what_fails(
    tmp_path: Path,
) -> None:
    """Wake, inspect, verify, compare, instruct: evidence, never the agent's opinion."""

    def tests(seen: Seen) -> Verdict:
        if new(seen):
            return Verdict("tests", Status.PASS)
        return Verdict("tests", Status.FAIL, findings=(Finding(f"a.py is {seen.files['a.py']}", rule="t::a"),))

    world = World(tmp_path, works({"a.py": "half"}, "it works now"), DONE, checks={"tests": tests})
    world.supervise()
    first, second = world.instructions.briefings
    assert [failure.message for failure in first.failures.shown] == ["a.py is old"]
    assert [failure.message for failure in second.failures.shown] == ["a.py is half"]
    assert (second.changed, second.outcome) == (("a.py",), Outcome.FINISHED)
    assert "it works now" not in repr(second)


def test_the_next_attempt_is_told_what_the_last_one_changed_and_nothing_older(tmp_path: Path) -> None:
    world = World(tmp_path, works({"b": "1"}), works({"c": "1"}), works({"b": None}), DONE, checks={"new": new})
    world.supervise()
    assert [briefing.changed for briefing in world.instructions.briefings] == [(), ("b",), ("c",), ("b",)]


def test_the_owners_note_is_told_once(tmp_path: Path) -> None:
    world = World(tmp_path, works({"b": "1"}), works({"b": "2"}), DONE, checks={"new": new})
    world.ledger.append("owner.steered", {"text": "look at a.py"})
    world.supervise()
    assert [briefing.notes for briefing in world.instructions.briefings] == [("look at a.py",), (), ()]


def test_background_work_that_was_ended_is_named_to_the_next_attempt(tmp_path: Path) -> None:
    leaves = works({"b": "1"}, strays=("python train.py",))
    world = World(tmp_path, leaves, DONE, checks={"new": new})
    world.supervise()
    assert world.instructions.briefings[1].ended == ("python train.py",)


# --- stuck, and out of it --------------------------------------------------------------------------------------------


def test_no_effect_backs_off_on_time_that_is_not_charged(tmp_path: Path) -> None:
    """Waiting for better times uses no time budget; the waits grow, and are shown."""
    world = World(tmp_path, works({}, lasts_s=1.0), checks={"new": new})
    world.supervise()
    record = world.record
    assert [event.get("wait_until", "") != "" for event in world.events("decision")] == [
        False,
        False,
        True,
        True,
        False,
    ]
    assert record.waited_s == pytest.approx(30.0 + 60.0)
    assert record.spent.time_s < 10.0


def test_no_effect_three_times_is_told_in_another_way(tmp_path: Path) -> None:
    world = World(tmp_path, works({}), works({}), works({}), DONE, checks={"new": new})
    assert world.supervise().state is State.MET
    assert [briefing.rephrase for briefing in world.instructions.briefings] == [False, False, False, True]


def test_three_attempts_without_a_better_verdict_climb_the_ladder_and_its_end_is_stuck(tmp_path: Path) -> None:
    scripts = [works({"b": str(n)}) for n in range(10)]
    world = World(tmp_path, *scripts, checks={"new": new})
    ending = world.supervise()
    assert (ending.state, len(world.launches)) == (State.STUCK, 6)
    assert ending.reason.startswith("3 attempts brought no better verdict, and the ladder is used up")
    assert [briefing.rephrase for briefing in world.instructions.briefings] == [False] * 3 + [True, False, False]


def test_a_fresh_start_is_tried_where_agents_keep_their_context(tmp_path: Path) -> None:
    scripts = [works({"b": str(n)}) for n in range(10)]
    world = World(tmp_path, *scripts, checks={"new": new}, policy=Policy(keeps_context=True))
    assert world.supervise().state is State.STUCK
    rungs = [event["rung"] for event in world.events("decision") if event["decision"] == "escalate"]
    assert (rungs, len(world.launches)) == ([Rung.REPHRASE, Rung.FRESH], 9)


def test_ux_4_a_new_start_after_stuck_is_a_new_decision(tmp_path: Path) -> None:
    """The owner reopens without any flag: the counters begin anew, history and numbers go on."""
    world = World(tmp_path, *[works({})] * 5, DONE, checks={"new": new})
    assert world.supervise().state is State.STUCK
    world.reopen()
    assert world.supervise().state is State.MET
    assert [event["attempt"] for event in world.events("attempt.reserved")] == [1, 2, 3, 4, 5, 6]


def test_the_best_attempt_is_named_when_the_budget_is_spent(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        works({"part1": "x"}),
        works({"part2": "x"}),
        works({"part1": None}),
        checks=parts(3),
        attempts=3,
    )
    ending = world.supervise()
    assert ending.reason == "3 of 3 attempts are used; the best attempt is 2: 2 of 3 criteria hold"
    assert world.record.best is not None
    assert world.record.best.number == 2


def test_an_exhausted_run_that_is_extended_and_reopened_goes_on_with_its_history(tmp_path: Path) -> None:
    world = World(tmp_path, works({"b": "1"}), works({"b": "2"}), DONE, checks={"new": new}, attempts=2)
    assert world.supervise().state is State.EXHAUSTED
    world.requests.put(RequestKind.EXTEND, {"attempts": 10})
    world.reopen()
    assert world.supervise().state is State.MET
    record = world.record
    assert (record.number, record.spent.attempts, record.allowance.attempts) == (3, 3, 12)
    assert [summary.number for summary in record.recent] == [1, 2, 3]
    assert len(world.events("baseline.verdict")) == 1


# --- what the agent must not touch -----------------------------------------------------------------------------------


def test_g3_a_contract_that_the_agent_changes_has_no_effect(tmp_path: Path) -> None:
    """The file is put back, it is said once, the attempt counts as it is."""
    world = World(tmp_path, works({"contract.yaml": "goal: easy", "b": "1"}), DONE, checks={"new": new})
    assert world.supervise().state is State.MET
    assert world.workspace.files["contract.yaml"] == "goal: demo"
    assert world.workspace.evidence == {"contract.yaml": "goal: easy"}
    assert [briefing.restored for briefing in world.instructions.briefings] == [(), ("contract.yaml",)]
    assert world.record.contract_digest == "d1"


def test_an_attempt_that_touched_a_protected_path_can_be_met(tmp_path: Path) -> None:
    world = World(tmp_path, works({"a.py": "new", "ci.yml": "mine"}), checks={"new": new})
    assert world.supervise().state is State.MET
    assert world.workspace.files["ci.yml"] == "owner's"
    assert world.record.history.tampers == 0


def test_a_check_never_sees_what_is_out_of_scope(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        works({"ci.yml": "green", "ci-extra.yml": "x", "notes.txt": "x"}),
        checks={"green": lambda seen: seen.files["ci.yml"] == "green" or len(seen.files) > 3},
        protected=("ci*.yml",),
        allowed=("*.py",),
        attempts=1,
    )
    assert world.supervise().state is State.EXHAUSTED
    assert world.workspace.files == {**world.workspace.trees[world.record.baseline], "notes.txt": "x"}
    captured = world.events("attempt.captured")[0]
    assert (captured["restored"], captured["unproven"]) == (["ci-extra.yml", "ci.yml"], ["notes.txt"])
    assert (captured["changed"], captured["effect"]) == ([], True)


def test_the_same_protected_path_three_times_in_a_row_is_rephrased_and_brought_to_attention(tmp_path: Path) -> None:
    scripts = [works({"ci.yml": f"mine {n}", f"part{n}": "x"}) for n in range(1, 6)]
    world = World(tmp_path, *scripts, checks=parts(5))
    assert world.supervise().state is State.MET
    assert [briefing.rephrase for briefing in world.instructions.briefings] == [False, False, False, True, False]
    assert world.record.attention == ("ci.yml changed 3 times in a row without effect",)


def test_the_same_protected_path_is_named_when_nothing_else_happens_either(tmp_path: Path) -> None:
    world = World(tmp_path, *[works({"ci.yml": f"mine {n}"}) for n in range(9)], checks={"new": new})
    assert world.supervise().state is State.STUCK
    assert "ci.yml changed 3 times in a row" in world.record.attention[0]


def test_the_owners_edits_between_attempts_are_taken_over_protected_ones_included(tmp_path: Path) -> None:
    world = World(tmp_path, works({"b": "1"}), DONE, checks={"new": new})

    def owner(run: object, kind: str) -> None:
        if kind == "decision" and world.record.number == 1:
            world.workspace.edit({"ci.yml": "owner's new", "README": "hello"})

    world.watchers.append(owner)
    assert world.supervise().state is State.MET
    assert world.workspace.files["ci.yml"] == "owner's new"
    assert world.events("owner.edited") == [{"paths": ["README", "ci.yml"], "elapsed_s": pytest.approx(62.0)}]
    assert world.record.history.restored == {}
    captured = world.events("attempt.captured")[1]
    assert (captured["changed"], captured["restored"]) == (["a.py"], [])


def test_the_owners_edits_during_preflight_are_not_the_agents(tmp_path: Path) -> None:
    world = World(tmp_path, DONE, checks={"new": new})

    def owner(run: object, kind: str) -> None:
        if kind == "baseline.verdict":
            world.workspace.edit({"ci.yml": "owner's new"})

    world.watchers.append(owner)
    assert world.supervise().state is State.MET
    assert world.workspace.files["ci.yml"] == "owner's new"
    assert world.events("attempt.captured")[0]["changed"] == ["a.py"]


def test_tampering_is_rejected_told_and_over_the_allowance_halts(tmp_path: Path) -> None:
    """A pinned copy that was forged is put right, and what holds on such a tree is not met."""
    scripts = [works({"a.py": "new", "b": str(n)}, forges=("contract.yaml",)) for n in range(3)]
    world = World(tmp_path, *scripts, checks={"new": new})
    ending = world.supervise()
    assert (ending.state, ending.exit_status, len(world.launches)) == (State.HALTED, 4, 3)
    assert world.forged == set()
    reasons = [event["reason"] for event in world.events("decision")]
    assert reasons[0] == "rejected for tampering: pinned copies were changed: contract.yaml"
    assert world.instructions.briefings[1].rejected == ("pinned copies were changed: contract.yaml",)
    assert world.record.best is None


def test_a_verifier_that_finds_tampering_is_counted_too(tmp_path: Path) -> None:
    def tests(seen: Seen) -> Status:
        return Status.TAMPER if seen.files.get("report.xml") else Status.FAIL

    scripts = [works({"report.xml": str(n)}) for n in range(3)]
    world = World(tmp_path, *scripts, checks={"tests": tests})
    assert world.supervise().state is State.HALTED
    assert len(world.launches) == 3


def test_an_attempt_after_tampering_may_be_met(tmp_path: Path) -> None:
    world = World(tmp_path, works({"b": "1"}, forges=("contract.yaml",)), DONE, checks={"new": new})
    assert world.supervise().state is State.MET


def test_locks_that_a_killed_agent_left_are_released_and_listed(tmp_path: Path) -> None:
    world = World(tmp_path, DONE, checks={"new": new})
    world.workspace.locks = (".git/index.lock",)
    world.supervise()
    assert world.events("attempt.captured")[0]["locks"] == [".git/index.lock"]


def test_one_attempt_can_act_over_time(tmp_path: Path) -> None:
    slow = Script((Does(0.0, {"b": "1"}), Does(30.0, {"a.py": "new"})), lasts_s=40.0)
    world = World(tmp_path, slow, checks={"new": new})
    assert world.supervise().state is State.MET
    assert world.record.spent.time_s == pytest.approx(43.0, abs=2.0)
