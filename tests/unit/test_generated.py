"""What is generated is what the sources say now, and no requirement is without a test."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """The program docs/generate.py."""
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_generated_file_is_out_of_date(generate: ModuleType) -> None:
    """`make docs` writes them; whoever changes a model, a flag or the name of a test runs it."""
    stale = [
        str(path.relative_to(ROOT))
        for path, make in generate.makers().items()
        if not path.is_file() or path.read_text(encoding="utf-8") != make()
    ]
    assert stale == [], "run make docs"


def test_no_help_text_is_left_of_a_command_that_is_gone(generate: ModuleType) -> None:
    """The folder holds what is generated and nothing else."""
    assert set(generate.FOLDER.glob("*.txt")) <= set(generate.makers())


def test_every_flag_that_the_settings_name_is_one_of_run(generate: ModuleType) -> None:
    """A reference of options that are not there would be worse than none."""
    named = set(re.findall(r"`(--[a-z-]+)`", (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")))
    options = set(re.findall(r"--[a-z-]+", generate.help_of("run")))
    assert named and named <= options


def test_every_requirement_has_a_test(generate: ModuleType) -> None:
    """An id of tests/requirements.toml is the beginning of at least one test's name."""
    assert generate.without_test() == []


def test_a_changed_file_and_a_missing_test_are_found(
    generate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--check names both and fails, and writes nothing."""
    page = tmp_path / "page.md"
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "makers", lambda: {page: lambda: "new"})
    monkeypatch.setattr(generate, "without_test", lambda: ["X-1"])
    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().out == "page.md\nwithout a test: X-1\n"
    assert not page.exists()
    assert generate.main([]) == 0
    assert page.read_text() == "new"
