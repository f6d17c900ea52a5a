"""What a contract names: workspace, objective, references and sealed files, and what the digest covers of them."""

import shutil
from pathlib import Path

import pytest

from contract_texts import SMALL, load, problems, write
from loopd.adapters.contract_file import load_contract
from loopd.adapters.contract_rules import pinned_files
from loopd.domain.contract import Goal
from loopd.domain.errors import ContractError


def test_g3_files_of_a_sealed_folder_are_pinned(tmp_path: Path) -> None:
    """By name and content; the folder itself stays where it is."""
    project = tmp_path / "project"
    (tmp_path / "checks" / "deep").mkdir(parents=True)
    (tmp_path / "checks" / "deep" / "test_x.py").write_text("1")
    project.mkdir()
    goal = Goal.model_validate(
        {"goal": "g", "objective": "x", "criteria": [{"run": "pytest {sealed}", "sealed": "../checks"}]}
    )
    pinned = pinned_files(goal, project, project)
    assert [(file.kind, file.label) for file in pinned] == [("sealed", "../checks/deep/test_x.py")]


def test_the_workspace_is_the_repository_around_the_contract(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL, "goals/small.yaml")
    assert load_contract(path).root == tmp_path
    shutil.rmtree(tmp_path / ".git")
    assert load_contract(path).root == tmp_path / "goals"
    path.write_text(f"{SMALL}workspace: ..\n")
    assert load_contract(path).root == tmp_path


def test_a_git_file_marks_a_repository_as_well(tmp_path: Path) -> None:
    """Worktrees and submodules have a file instead of a folder."""
    path = write(tmp_path, SMALL, "goals/small.yaml")
    (tmp_path / ".git").rmdir()
    (tmp_path / ".git").write_text("gitdir: elsewhere\n")
    assert load_contract(path).root == tmp_path


@pytest.mark.parametrize("workspace", ["/", "'~'", "..", "/missing", "nowhere"])
def test_the_workspace_is_never_the_root_the_home_or_around_it(
    tmp_path: Path, workspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    path = write(home, f"{SMALL}workspace: {workspace}\n")
    with pytest.raises(ContractError, match=r"name a project folder|there is no folder"):
        load_contract(path)


def test_a_repository_in_the_home_is_no_workspace_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ContractError, match="name a project folder"):
        load_contract(write(tmp_path, SMALL, "goals/small.yaml"))


def test_conf_5_an_objective_file_arrives_byte_for_byte(tmp_path: Path) -> None:
    """Line ends, tabs, dashes, a trailing backslash and 200 KB are kept."""
    words = "---\n# a: b\r\n\tx\\\n%\n" + "é" * 100_000 + "\\"
    (tmp_path / "words.md").write_bytes(words.encode())
    loaded = load(tmp_path, SMALL.replace("The end.", "{file: words.md}"))
    assert loaded.goal.objective.text == words
    assert [(file.kind, file.label) for file in loaded.files] == [("objective", "words.md")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b" \n", "the file is empty"),
        (b"\xff", "is not UTF-8 text"),
        (b"x" * 1_048_577, "larger than 1 MiB"),
    ],
)
def test_an_objective_file_that_cannot_be_one_is_told(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "words.md").write_bytes(content)
    assert message in problems(tmp_path, SMALL.replace("The end.", "{file: words.md}"))[0]


def test_conf_5_an_objective_block_arrives_byte_for_byte(tmp_path: Path) -> None:
    """As far as YAML says so: a block keeps everything but its indentation."""
    words = "---\n# no comment: here\n\ttab\n%TAG\nback\\\n  more\n\n" + "word\n" * 40_000
    block = "".join(f"  {line}\n" if line else "\n" for line in words.split("\n")[:-1])
    assert load(tmp_path, SMALL.replace("The end.", f"|\n{block}")).goal.objective.text == words


def test_g3_the_digest_changes_with_every_pinned_file(tmp_path: Path) -> None:
    """Objective, references and the files that criteria name."""
    for name in ("words.md", "SPEC.md", "check.py", "other.py"):
        (tmp_path / name).write_text("1")
    text = SMALL.replace("The end.", "{file: words.md}").replace("pytest -q", "python check.py --x=SPEC.md")
    text += "references: ['*.md']\n"
    seen = {load(tmp_path, text).digest}
    for name in ("words.md", "SPEC.md", "check.py"):
        (tmp_path / name).write_text("2")
        seen.add(load(tmp_path, text).digest)
    assert len(seen) == 4
    (tmp_path / "other.py").write_text("2")
    assert load(tmp_path, text).digest in seen
    kinds = [(file.kind, file.label) for file in load(tmp_path, text).files]
    assert kinds == [
        ("objective", "words.md"),
        ("reference", "SPEC.md"),
        ("reference", "words.md"),
        ("verifier", "check.py"),
        ("verifier", "SPEC.md"),
    ]


def test_g3_comments_and_layout_are_no_part_of_the_digest(tmp_path: Path) -> None:
    """The same agreement in other words on paper is the same agreement."""
    assert load(tmp_path, f"# mine\n{SMALL}tamper: 2\n").digest == load(tmp_path, SMALL).digest


def test_references_are_found_in_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "design").mkdir()
    (tmp_path / "design" / "a.png").write_bytes(b"\x89")
    (tmp_path.parent / "outside.md").write_text("x")
    path = write(tmp_path, f"{SMALL}references: ['design/*.png', '{tmp_path.parent}/outside.md']\n", "goals/g.yaml")
    assert [file.label for file in load_contract(path).files] == ["design/a.png", f"{tmp_path.parent}/outside.md"]


def test_values_of_the_command_line_take_the_place_of_written_ones(tmp_path: Path) -> None:
    loaded = load(
        tmp_path, f"{SMALL}budget: {{time: 8h}}\n", overrides={"budget.attempts": 7, "agent": {"command": ["x"]}}
    )
    assert (loaded.goal.budget.attempts, loaded.goal.budget.time_s) == (7, 28800)
    assert loaded.overridden == {"budget.attempts", "agent"}


def test_a_wrong_value_of_the_command_line_has_no_line(tmp_path: Path) -> None:
    found = problems(tmp_path, SMALL, overrides={"budget.attempts": 0})
    assert found == ["budget.attempts is `0`: at least 1 is needed"]


def test_an_unknown_agent_is_told_at_its_line(tmp_path: Path) -> None:
    found = problems(tmp_path, SMALL.replace("{command: [sh, agent.sh]}", "claude"))
    assert found == [
        "goal.yaml:3:8: agent is `claude`: not available yet; any program works: agent: {command: [claude, …]}"
    ]
