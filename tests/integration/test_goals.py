"""Every bundled goal, run by a real loopd with its scripted agent: met, with the tree and the evidence it promises."""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from loopd.adapters.contract_file import load_contract
from loopd.adapters.contract_lint import warnings
from running import Project, Ran

GOALS = Path(__file__).parents[2] / "goals"
pytestmark = [pytest.mark.timeout(300), pytest.mark.needs("git")]


@dataclass(frozen=True)
class Promise:
    """What a goal's comments say will happen."""

    attempts: int
    changed: set[str]  # in the delivered tree, against the project
    restored: dict[int, list[str]] = field(default_factory=dict)  # attempt -> what was put back
    crashed: tuple[int, ...] = ()
    branch: bool = False


PROMISES = {
    "quickstart": Promise(3, {"httpretry/header.py"}),
    "feature": Promise(2, {"jot/__main__.py", "jot/export.py"}, {1: ["tests/test_export.py"]}),
    "bugfix": Promise(3, {"limiter/__init__.py"}, {1: ["tests/test_bug.py"]}),
    "overnight": Promise(
        4,
        {"money/parse.py", "money/split.py", "money/show.py"},
        {3: ["tests/test_split.py"]},
        crashed=(2,),
        branch=True,
    ),
}


def put(goal: str, project: Project) -> Project:
    """The goal's own project, with the contract in it, as its first commit."""
    shutil.copytree(GOALS / goal, project.root, dirs_exist_ok=True)
    for path in GOALS.glob(f"{goal}*.yaml"):
        shutil.copy(path, project.root)
    return project.commit()


def test_every_bundled_goal_is_run_here() -> None:
    """A contract that nobody runs is not shipped."""
    contracts = {path.stem for path in GOALS.glob("*.yaml") if not path.stem.endswith(".script")}
    assert contracts == set(PROMISES)


@pytest.mark.parametrize("goal", sorted(PROMISES))
def test_a_bundled_goal_has_nothing_that_check_warns_of_but_an_open_cost(goal: str, project: Project) -> None:
    """What people copy must not begin with a fault."""
    loaded = load_contract(put(goal, project).root / f"{goal}.yaml")
    assert [said for said in map(str, warnings(loaded)) if "cost and tokens are unlimited" not in said] == []


@pytest.mark.parametrize("goal", sorted(PROMISES))
def test_a_bundled_goal_is_met_with_the_tree_and_the_evidence_it_promises(goal: str, project: Project) -> None:
    """In the promised number of attempts; what the agent must not touch is as it was; every criterion proven afresh."""
    promise = PROMISES[goal]
    before = put(goal, project).git("status", "--porcelain")
    ran = project.loopd("run", f"{goal}.yaml", timeout_s=200)
    assert ran.status == 0, ran.text
    assert len(project.of_kind("attempt.ended")) == promise.attempts
    assert _restored(project) == promise.restored
    assert tuple(_outcomes(project, "crashed")) == promise.crashed
    assert _proven_afresh(project) == _criteria(project)
    assert _delivered(project, ran, branch=promise.branch) == promise.changed
    if promise.branch:
        assert project.git("status", "--porcelain") == before
        _is_told_and_leads_back(project)


def test_the_report_of_the_overnight_goal_notices_a_test_that_vanishes(project: Project) -> None:
    """With the suite outside the protected paths, removing a test is still a failure: the report must name it."""
    put("overnight", project)
    contract = project.root / "overnight.yaml"
    text = contract.read_text(encoding="utf-8").replace('allow: ["money/**"]', 'allow: ["money/**", "tests/**"]')
    contract.write_text(text.replace("attempts: 40", "attempts: 3"), encoding="utf-8")
    _all_in_the_third(project.root / "overnight.script.yaml")
    project.git("commit", "--quiet", "--all", "--message", "tests may go")
    ran = project.loopd("run", "overnight.yaml", timeout_s=200)
    assert ran.status == 1, ran.text
    verdict = project.of_kind("verdict")[-1]["verdict"]
    assert (verdict["criterion"], verdict["status"]) == ("tests", "fail")
    assert "test_no_cent_is_lost" in json.dumps(verdict["findings"])


def _is_told_and_leads_back(project: Project) -> None:
    """What the agent told of its cost is added up; the branch is one commit that names the run."""
    status = json.loads(project.loopd("status", "--json").out)
    assert status["budget"]["cost_usd"]["used"] == pytest.approx(0.92)
    assert status["budget"]["tokens"]["used"] == 63_000
    run = project.run_folders()[-1].name
    assert project.git("rev-list", "--count", f"main..loopd/{run}") == "1\n"
    message = project.git("log", "-1", "--format=%B", f"loopd/{run}")
    assert message.startswith("overnight: All public functions of the package `money` are annotated.\n")
    assert f"Loopd-Run: {run}\n" in message


def _all_in_the_third(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    script.write_text(text.replace('str = "EUR"):\'\n  - usage', 'str = "EUR") -> str:\'\n  - usage'), encoding="utf-8")


def _restored(project: Project) -> dict[int, list[str]]:
    captured = project.of_kind("attempt.captured")
    return {data["attempt"]: data["restored"] for data in captured if data["restored"]}


def _outcomes(project: Project, outcome: str) -> list[int]:
    return [data["attempt"] for data in project.of_kind("attempt.ended") if data["outcome"] == outcome]


def _proven_afresh(project: Project) -> dict[str, str]:
    fresh = (data["verdict"] for data in project.of_kind("verdict") if data["fresh"])
    return {verdict["criterion"]: verdict["status"] for verdict in fresh}


def _criteria(project: Project) -> dict[str, str]:
    return {data["verdict"]["criterion"]: "pass" for data in project.of_kind("baseline.verdict")}


def _delivered(project: Project, ran: Ran, *, branch: bool) -> set[str]:
    """The paths that differ from the first commit, where the goal was delivered."""
    if not branch:
        project.git("add", "--all")
        return set(project.git("diff", "--cached", "--name-only").split())
    (name,) = project.git("branch", "--list", "--format=%(refname:short)", "loopd/*").split()
    assert name in ran.text
    return set(project.git("diff", "--name-only", "main", name).split())
