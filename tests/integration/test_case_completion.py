"""COMP: when a run is over. Real agents that claim, echo and repeat themselves."""

from cases import attempts, last_state, launches, outcomes, prepare
from running import Project

FIVE = [f"test -f part{number}" for number in range(1, 6)]


def test_comp_1_decorated_marker_is_neither_needed_nor_read(project: Project) -> None:
    """A completion word in bold, numbered and in a table: the verifier ends the run after attempt 1."""
    claims = "printf '**LOOP_COMPLETE**\\n1 LOOP_COMPLETE\\n| LOOP_COMPLETE | yes |\\n'\n"
    project = prepare(project, claims + "echo done > out.txt\n")
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    assert len(attempts(project)) == 1
    assert last_state(project) == "met"


def test_comp_2_bare_done_is_nothing(project: Project) -> None:
    """An agent that prints only DONE has had no effect; the work of attempt 2 ends the run."""
    project = prepare(project, 'if [ "$N" = 1 ]; then echo DONE; else echo done > out.txt; fi\n')
    assert project.loopd("run", "goal.yaml").status == 0
    assert outcomes(project) == ["no_effect", "finished"]
    first = next(data["verdict"] for data in project.of_kind("verdict") if data["attempt"] == 1)
    assert first["status"] == "fail"


def test_comp_3_echoed_prompt_proves_nothing(project: Project) -> None:
    """The objective itself speaks of a completion word and the agent echoes it: all three attempts are used."""
    project = prepare(project, "cat\n", more="budget: {attempts: 3}")
    path = project.root / "goal.yaml"
    path.write_text(path.read_text().replace("make every check pass", "when finished say LOOP_COMPLETE"))
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 1, ran.text
    assert launches(project) == 3
    assert outcomes(project) == ["no_effect"] * 3
    assert last_state(project) == "exhausted"
    echoed = project.run_folders()[-1] / "attempts" / "0003" / "stdout.log"
    assert "when finished say LOOP_COMPLETE" in echoed.read_text()


def test_comp_4_one_more_of_five_criteria_each_attempt(project: Project) -> None:
    """Exactly five attempts, each with the list of what holds and, once something breaks, of what fell back."""
    project = prepare(project, 'touch "part$N"; echo "all done"\n', checks=FIVE)
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    assert launches(project) == 5
    failing = [data["failing"] for data in project.of_kind("attempt.assessed")]
    assert failing == [[f"check-{n}" for n in range(done + 1, 6)] for done in range(1, 6)]
    shown = project.loopd("show", "last").out
    for done in range(1, 6):
        assert f"{done} of 5" in shown


def test_comp_4_what_fell_back_is_told_to_the_next_attempt(project: Project) -> None:
    """A criterion that held and fails again stands in the next instruction as passing before."""
    script = 'case "$N" in 1) touch part1;; 2) rm part1; touch part2;; 3) touch part1;; esac\n'
    project = prepare(project, script, checks=FIVE[:2])
    assert project.loopd("run", "goal.yaml").status == 0
    assert [data["failing"] for data in project.of_kind("attempt.assessed")] == [["check-2"], ["check-1"], []]
    told = (project.run_folders()[-1] / "attempts" / "0003" / "instruction.md").read_text()
    row = next(line for line in told.splitlines() if line.startswith("| check-1"))
    assert "fail" in row and "pass" in row, told


def test_comp_5_claims_without_work_end_as_stuck(project: Project) -> None:
    """Five attempts without effect, with pauses after the third and fourth: stuck, 15 attempts unspent."""
    project = prepare(project, "echo LOOP_COMPLETE\n")
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 3, ran.text
    assert launches(project) == 5
    assert last_state(project) == "stuck"
    assert len(project.of_kind("wait.ended")) == 2


def test_comp_6_equal_output_with_better_verdicts_is_progress(project: Project) -> None:
    """The same line six times, one more check each time: six attempts, met, never called stuck."""
    checks = [f"test -f part{number}" for number in range(1, 7)]
    project = prepare(project, 'touch "part$N"; echo "task completed"\n', checks=checks)
    assert project.loopd("run", "goal.yaml").status == 0
    assert launches(project) == 6
    assert {data["decision"] for data in project.of_kind("decision")} == {"continue", "met"}
