"""`loopd run "objective" --check COMMAND` as a contract that a person can read and keep."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from loopd.adapters.contract_file import Loaded, load_contract
from loopd.adapters.contract_writer import Wish, write_contract
from loopd.domain.errors import ContractError, LoopdError, StateError, UsageError
from loopd.domain.roles import AgentChoice


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository outside of any home."""
    root = tmp_path / "project"
    (root / ".git").mkdir(parents=True)
    return root


def wish(cwd: Path, objective: str | None = "Make it so.", **more: Any) -> Wish:
    """Something with one check and one agent."""
    return Wish(**({"cwd": cwd, "objective": objective, "checks": ["pytest -q"], "command": ["sh", "agent.sh"]} | more))


def loaded(path: Path) -> Loaded:
    """What the written contract means."""
    return load_contract(path, home=Path("/nonexistent"))


def test_a_wish_becomes_a_readable_contract(repository: Path) -> None:
    made = wish(repository, "Make the flaky parser tests pass", checks=["pytest -q", "ruff check ."])
    path, text = write_contract(made)
    assert path == repository / "goals" / "make-the-flaky-parser-tests-pass.yaml"
    assert (
        text
        == path.read_text()
        == (
            "goal: make-the-flaky-parser-tests-pass\n"
            "objective: Make the flaky parser tests pass\n"
            "criteria:\n"
            "  - run: pytest -q\n"
            "  - run: ruff check .\n"
            "agent: {command: [sh, agent.sh]}\n"
        )
    )
    goal = loaded(path).goal
    assert [criterion.name for criterion in goal.criteria] == ["pytest", "ruff-check"]
    assert loaded(path).root == repository


def test_the_same_wish_gives_the_same_file_and_another_one_its_own(repository: Path) -> None:
    first, _ = write_contract(wish(repository))
    again, _ = write_contract(wish(repository))
    other, _ = write_contract(wish(repository, checks=["make test"]))
    assert (first, other.name) == (again, "make-it-so-2.yaml")
    assert loaded(other).goal.goal == "make-it-so-2"
    assert "pytest -q" in first.read_text()


def test_without_a_repository_the_folder_is_the_workspace(tmp_path: Path) -> None:
    path, text = write_contract(wish(tmp_path))
    assert "workspace: ..\n" in text
    assert loaded(path).root == tmp_path


def test_from_a_folder_inside_the_contract_goes_to_the_repository(repository: Path) -> None:
    (repository / "sub").mkdir()
    path, _ = write_contract(wish(repository / "sub", command=["./agent.sh", "-x"]))
    assert path.parent == repository / "goals"
    agent = loaded(path).goal.agent
    assert agent is not None
    assert agent.command == ("../sub/agent.sh", "-x")


def test_an_agent_may_be_named_or_left_to_the_settings(repository: Path) -> None:
    with pytest.raises(ContractError, match="not available yet"):
        write_contract(wish(repository, command=(), agent="claude"))
    path, text = write_contract(wish(repository, command=()))
    assert "agent" not in text
    assert loaded(path).goal.agent is None


HARD = [
    "---\nfirst\n---\n",
    "# no comment",
    "a: b",
    "tab\there\n\tand there",
    "ends with a backslash\\",
    "%TAG and %",
    "no",
    "0755",
    "1:30",
    "null",
    "- dash",
    "? question",
    "*alias &anchor !tag",
    "'single' \"double\"",
    "  leading spaces\nnext",
    "trailing spaces  \nnext  ",
    "\n\nleading lines",
    "trailing lines\n\n\n",
    "one line end\n",
    "carriage\r\nreturn\r",
    "null\u2028line\x85separators",
    "\ufeffmark",
    "bell \x07 escape \x1b[31m delete \x7f",
    "emoji 😀 é 中",
    "{out} {{ jinja }} {% raw %}",
    "-p",
    "--help",
    "...",
    "x" * 200_000,
    "word\n" * 40_000,
    "---\n# a: b\t\\\n%\n" * 15_000,
    "\r\n" * 3 + "x",
    "|\n>",
    "a\n  b\n c",
    " \n  x\n",
    "tab first\n\t\n",
]


@pytest.mark.parametrize("objective", HARD, ids=range(len(HARD)))
def test_conf_5_an_objective_survives_byte_for_byte(repository: Path, objective: str) -> None:
    """As YAML where it can be, in a file of its own where it cannot."""
    path, _ = write_contract(wish(repository, objective))
    assert loaded(path).goal.objective.text == objective


def test_an_objective_of_several_lines_is_a_block_that_a_person_can_read(repository: Path) -> None:
    _, text = write_contract(wish(repository, "  indented: first\n# second\n\nlast\n"))
    assert "objective: |2\n    indented: first\n  # second\n\n  last\ncriteria:\n" in text


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(min_size=1), st.text())
@example("a\x00b", "c")
@example("\ud800", "c")
def test_conf_5_any_objective_and_check_survive_or_are_refused(tmp_path: Path, objective: str, check: str) -> None:
    """Nothing is changed on the way."""
    try:
        path, _ = write_contract(wish(tmp_path, objective, command=["sh", "-c", check], name="any"))
    except (UsageError, ContractError) as error:
        str(error).encode()
        return
    goal = loaded(path).goal
    for file in path.parent.iterdir():
        file.unlink()
    assert goal.objective.text == objective
    assert goal.agent is not None
    assert goal.agent.command == ("sh", "-c", check)


def test_conf_5_a_prompt_file_is_named_and_not_copied(repository: Path) -> None:
    """Its bytes are read when the contract is loaded, and pinned by digest."""
    (repository / "PROMPT file.md").write_bytes(b"---\r\n# Do it: now\t\\\n")
    path, text = write_contract(wish(repository, None, prompt_file=Path("PROMPT file.md")))
    assert "objective: {file: ../PROMPT file.md}" in text
    assert path.name == "do-it-now.yaml"
    assert loaded(path).goal.objective.text == "---\r\n# Do it: now\t\\\n"


@pytest.mark.parametrize("objective", ["---\nbegins with dashes", "-p", "--help"])
def test_prom_2_an_objective_that_looks_like_an_option_is_text(repository: Path, objective: str) -> None:
    """It is stored as it is; the instruction begins with loopd's own line."""
    path, _ = write_contract(wish(repository, objective))
    assert loaded(path).goal.objective.text == objective


@pytest.mark.parametrize(
    "check", ["grep -q 'a: b' x", "sh -c 'a && b'", 'test -f "a b"', "pytest -k 'not slow' #1", "echo {out}"]
)
def test_a_check_is_written_so_that_it_reads_back(repository: Path, check: str) -> None:
    path, text = write_contract(wish(repository, checks=[check]))
    assert len(loaded(path).goal.criteria) == 1
    assert check in text.replace('\\"', '"')


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"objective": None}, UsageError, "say the objective once"),
        ({"prompt_file": Path("x")}, UsageError, "say the objective once"),
        ({"objective": " \n"}, UsageError, "the objective is empty"),
        ({"checks": []}, UsageError, "add --check COMMAND"),
        ({"agent": "x"}, UsageError, "name the agent once"),
        ({"objective": "\udcff"}, UsageError, "not UTF-8"),
        ({"objective": None, "prompt_file": Path("missing.md")}, UsageError, "missing.md cannot be read: No such file"),
        ({"checks": ["a && b"]}, ContractError, r"criteria\[0\].run is `a && b`: `&&` needs a shell"),
        ({"checks": ["pytest {output}"]}, ContractError, "did you mean {out}"),
        ({"command": ["-x"]}, ContractError, "cannot begin with the option"),
        ({"name": "Not a name"}, ContractError, "a name of a-z, 0-9 and hyphens"),
    ],
)
def test_a_wish_that_cannot_be_meant_writes_nothing(
    repository: Path, changes: dict[str, Any], kind: type[LoopdError], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        write_contract(wish(repository, **changes))
    assert caught.value.exit_status == 2
    assert not (repository / "goals").exists()


def test_a_folder_that_cannot_be_written_is_told(repository: Path) -> None:
    (repository / "goals").write_text("a file")
    with pytest.raises(StateError, match="the contract cannot be written"):
        write_contract(wish(repository))


def test_an_agents_words_are_kept(repository: Path) -> None:
    words = ["sh", "-c", "echo 'a, b' && exit 1", "no", "3", ""]
    path, _ = write_contract(wish(repository, command=words))
    assert loaded(path).goal.agent == AgentChoice(command=tuple(words))
