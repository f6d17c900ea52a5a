"""What is found in a project's files, and the contract made of it."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from loopd.adapters.contract_file import load_contract
from loopd.cli.project import contract_text, init, slug
from loopd.cli.survey import survey
from loopd.domain.errors import UsageError

PROJECTS: Mapping[str, tuple[Mapping[str, str], tuple[str, ...]]] = {
    "python-pytest": (
        {"pyproject.toml": "[tool.pytest.ini_options]\n[tool.ruff]\n[tool.mypy]\n", "tests/test_a.py": ""},
        ("python3 -m pytest -q --junitxml={out}/junit.xml", "ruff check .", "python3 -m mypy ."),
    ),
    "python-unittest": (
        {"setup.cfg": "[metadata]\n", "tests/test_a.py": ""},
        ("python3 -m unittest discover -q -s tests",),
    ),
    "python-unittest-package": (
        {"setup.cfg": "[metadata]\n", "tests/__init__.py": "", "tests/test_a.py": ""},
        ("python3 -m unittest discover -q -s tests -t .",),
    ),
    "python-requirements": (
        {"requirements.txt": "pytest==8\n"},
        ("python3 -m pytest -q --junitxml={out}/junit.xml",),
    ),
    "python-venv": (
        {"pyproject.toml": "[project]\ndependencies = ['pytest']\n", ".venv/bin/python": ""},
        (".venv/bin/python -m pytest -q --junitxml={out}/junit.xml",),
    ),
    "node-npm": (
        {"package.json": json.dumps({"scripts": {"test": "jest", "lint": "eslint ."}}), "package-lock.json": "{}"},
        ("npm test", "npm run lint"),
    ),
    "node-pnpm": (
        {"package.json": json.dumps({"scripts": {"test": "vitest", "build": "tsc"}}), "pnpm-lock.yaml": ""},
        ("pnpm test", "pnpm run build"),
    ),
    "node-without-tests": (
        {"package.json": json.dumps({"scripts": {"test": 'echo "Error: no test specified" && exit 1'}})},
        (),
    ),
    "go": ({"go.mod": "module x\n"}, ("go test ./...", "go vet ./...")),
    "rust": (
        {"Cargo.toml": "[package]\n", "clippy.toml": ""},
        ("cargo test --quiet", "cargo clippy --quiet -- -D warnings"),
    ),
    "make": (
        {"Makefile": "CC := gcc\nall: x\n\ntest: all\n\t./t\nlint:\n\t./l\n"},
        ("make test", "make lint"),
    ),
    "make-and-go": ({"Makefile": "test:\n\tgo test\n", "go.mod": "module x\n"}, ("go test ./...", "go vet ./...")),
    "broken-files": ({"pyproject.toml": "[[[", "package.json": "{", "tests/x": ""}, ("python3 -m unittest discover",)),
    "empty": ({}, ()),
}


def made(root: Path, files: Mapping[str, str]) -> Path:
    root.mkdir()
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize("kind", PROJECTS)
def test_the_checks_a_project_has_are_found_in_its_files(tmp_path: Path, kind: str) -> None:
    files, commands = PROJECTS[kind]
    found = [check.run for one in survey(made(tmp_path / "p", files)) for check in one.checks]
    assert len(found) == len(commands)
    assert all(run.startswith(command) for run, command in zip(found, commands, strict=True))


@pytest.mark.parametrize("kind", PROJECTS)
@pytest.mark.parametrize("with_git", [True, False])
def test_the_contract_that_init_writes_is_one_that_check_accepts(tmp_path: Path, kind: str, with_git: bool) -> None:
    root = made(tmp_path / "My Project (2)", PROJECTS[kind][0])
    if with_git:
        (root / ".git").mkdir()
    assert init(root) == 0
    loaded = load_contract(root / "goals" / "my-project-2.yaml", home=tmp_path / "home")
    assert loaded.root == root
    runs = [" ".join(criterion.run or ()) for criterion in loaded.goal.criteria]
    assert len(runs) == max(1, len(PROJECTS[kind][1]))


def test_init_never_overwrites(tmp_path: Path) -> None:
    root = made(tmp_path / "p", {"goals/p.yaml": "mine"})
    with pytest.raises(UsageError, match="exists already; nothing was written"):
        init(root)
    assert (root / "goals/p.yaml").read_text() == "mine"


def test_init_says_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init(made(tmp_path / "p", {"go.mod": "module x\n", "package.json": "{}"}))
    said = capsys.readouterr().out
    assert "found Go (go.mod): go test ./..., go vet ./..." in said
    assert "found Node (package.json): no check of its own" in said


def test_a_carried_environment_and_a_setup_are_named_in_the_contract(tmp_path: Path) -> None:
    root = made(tmp_path / "p", {**PROJECTS["python-venv"][0], "uv.lock": "", "package.json": "{}"})
    text = contract_text(root, survey(root))
    assert "carry: [.venv]" in text
    assert "# setup: [uv sync --frozen]" in text


@pytest.mark.parametrize(
    ("name", "wanted"), [("My_Proj", "my-proj"), ("--", "goal"), ("ünï", "n"), ("a" * 80, "a" * 60)]
)
def test_a_folder_name_becomes_a_goal_name(name: str, wanted: str) -> None:
    assert slug(name) == wanted
