"""What lands, and where: in place, in the owner's tree from a clone, as one commit on a branch."""

import json

import pytest

from running import Project

AGENT = """agent: {command: [sh, -c, "cat > /dev/null; echo done > out.txt; echo extra > notes.txt"]}"""


def contract(more: str = "") -> str:
    """A goal that one attempt of the agent meets."""
    return f"""goal: land
objective: out.txt says done
criteria:
  - {{name: done, run: grep -qx done out.txt}}
{AGENT}
{more}
"""


@pytest.fixture
def ready(project: Project) -> Project:
    """A repository with one commit and one uncommitted change of the owner's."""
    project.write({"readme.txt": "hello\n", "goal.yaml": contract("isolation: clone")}).commit()
    return project.write({"mine.txt": "not committed\n"})


def test_a_clone_is_delivered_as_one_commit_on_a_branch_and_nothing_else_changes(ready: Project) -> None:
    """The default of a clone: the base commit, plus one, with trailers; the owner's files stay."""
    head = ready.git("rev-parse", "HEAD")
    ran = ready.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    assert "uncommitted" in ran.text
    branch = ready.git("for-each-ref", "--format=%(refname:short)", "refs/heads/loopd/").strip()
    assert ready.git("rev-list", "--count", f"HEAD..{branch}").strip() == "1"
    assert ready.git("show", f"{branch}:out.txt") == "done\n"
    message = ready.git("log", "-1", "--format=%B", branch)
    assert message.startswith("land: out.txt says done")
    assert "Loopd-Run: land-" in message and "Loopd-Tree: " in message and "- done: pass" in message
    assert not (ready.root / "out.txt").exists()
    assert (ready.root / "mine.txt").read_text() == "not committed\n"
    assert ready.git("rev-parse", "HEAD") == head


def test_a_clone_is_delivered_into_the_owners_tree_when_the_contract_says_so(ready: Project) -> None:
    """`deliver: tree`: the proven files are written, uncommitted ones stay, nothing is committed."""
    ready.write({"goal.yaml": contract("isolation: clone\ndeliver: tree")})
    ran = ready.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    assert (ready.root / "out.txt").read_text() == "done\n"
    assert (ready.root / "mine.txt").read_text() == "not committed\n"
    assert ready.git("rev-list", "--count", "HEAD").strip() == "1"


def test_a_conflict_leaves_the_run_met_and_is_repeated_by_deliver(ready: Project) -> None:
    """What the owner changed meanwhile is never overwritten; the way out is named and works."""
    ready.write({"goal.yaml": contract("isolation: clone\ndeliver: tree"), "out.txt": "mine\n"})
    ran = ready.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    assert "out.txt" in ran.text and "loopd deliver" in ran.text
    assert (ready.root / "out.txt").read_text() == "mine\n"
    refused = ready.loopd("deliver", "last")
    assert refused.status == 2 and "out.txt" in refused.err
    (ready.root / "out.txt").unlink()
    assert ready.loopd("deliver", "last").status == 0
    assert (ready.root / "out.txt").read_text() == "done\n"


def test_the_best_attempt_of_a_run_that_is_not_met_lands_on_request_marked_unproven(project: Project) -> None:
    """Exhausted: `deliver --best --branch` makes a branch that says unproven; without --best it is refused."""
    text = contract("budget: {attempts: 1}").replace("grep -qx done out.txt", "grep -qx never out.txt")
    project.write({"goal.yaml": text}).commit()
    assert project.loopd("run", "goal.yaml").status == 1
    refused = project.loopd("deliver", "last")
    assert refused.status == 2 and "--best" in refused.err
    delivered = project.loopd("deliver", "last", "--best", "--branch")
    assert delivered.status == 0 and "unproven" in delivered.out
    branch = project.git("for-each-ref", "--format=%(refname:short)", "refs/heads/loopd/").strip()
    assert "(unproven)" in project.git("log", "-1", "--format=%s", branch)


def test_an_extended_run_goes_on_with_its_history(project: Project) -> None:
    """`extend`, `steer`, then `resume`: numbers go on, the note is in the next instruction, once."""
    text = contract("budget: {attempts: 1}").replace("grep -qx done out.txt", "grep -qx never out.txt")
    project.write({"goal.yaml": text}).commit()
    assert project.loopd("run", "goal.yaml").status == 1
    assert project.loopd("extend", "last", "--attempts", "+2").status == 0
    assert project.loopd("steer", "last", "look at the word never").status == 0
    assert project.loopd("resume", "last").status == 1
    folder = project.run_folders()[-1]
    told = [(folder / "attempts" / f"{n:04d}" / "instruction.md").read_text() for n in (2, 3)]
    assert "look at the word never" in told[0] and "look at the word never" not in told[1]
    assert len(project.run_folders()) == 1
    status = json.loads(project.loopd("status", "last", "--json").out)
    assert status["budget"]["attempts"] == {"used": 3, "allowed": 3}


def test_an_amended_run_is_judged_by_the_new_contract(project: Project) -> None:
    """`amend` is a recorded decision of the owner's; the same run goes on and is met under it."""
    text = contract("budget: {attempts: 1}").replace("grep -qx done out.txt", "grep -qx never out.txt")
    project.write({"goal.yaml": text}).commit()
    assert project.loopd("run", "goal.yaml").status == 1
    (project.root / "out.txt").unlink()
    project.write({"goal.yaml": contract("budget: {attempts: 3}")})
    amended = project.loopd("amend", "last", "goal.yaml")
    assert amended.status == 0, amended.text
    resumed = project.loopd("resume", "last")
    assert resumed.status == 0, resumed.text
    assert [data["contract_digest"] for data in project.of_kind("owner.amended")]
    assert len(project.run_folders()) == 1
