"""One command line: usage errors, help, crashes."""

import sys
from pathlib import Path
from typing import Annotated

import pytest
import typer

from loopd.cli import helptexts
from loopd.cli.app import COMMANDS, RUN, Command, invoke
from loopd.cli.crash import report
from loopd.domain.errors import UsageError

STARTED: list[tuple[Path, int]] = []


def pursue(
    context: typer.Context,
    contract: Annotated[Path, typer.Argument()],
    attempts: Annotated[int, typer.Option(min=1)] = 20,
) -> int:
    """Stands for a command that starts something."""
    STARTED.append((contract, attempts))
    return 3 if context.obj == "nursery" else 4


STAND_IN = {"run": Command(RUN, "stands in", f"{__name__}:pursue")}


@pytest.fixture(autouse=True)
def nothing_started(monkeypatch: pytest.MonkeyPatch) -> None:
    STARTED.clear()
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["goal.yaml", "--max-turn", "3"], "no option --max-turn"),
        (["goal.yaml", "--attempt", "3"], "did you mean --attempts?"),
        (["goal.yaml", "--attempts="], "--attempts"),
        (["goal.yaml", "--attempts=many"], "--attempts"),
        (["goal.yaml", "--attempts=0"], "--attempts"),
        (["goal.yaml", "--attempts"], "--attempts"),
        (["goal.yaml", "-n"], "-n"),
        (["goal.yaml", "other.yaml"], "other.yaml"),
        ([], "missing argument"),
    ],
)
def test_conf_4_an_unknown_or_misplaced_option_is_a_usage_error_and_starts_nothing(words: list[str], said: str) -> None:
    """Typing errors are told with the nearest thing that would be right."""
    with pytest.raises(UsageError, match=r"see loopd run --help") as raised:
        invoke(["run", *words], commands=STAND_IN)
    assert said in str(raised.value)
    assert raised.value.exit_status == 2
    assert STARTED == []


def test_bud_1_a_budget_flag_after_the_contract_and_with_an_equals_sign_is_understood() -> None:
    """A flag is never taken for a word of the goal."""
    assert invoke(["run", "goal.yaml", "--attempts=3"], "nursery", STAND_IN) == 3
    assert invoke(["run", "--attempts", "3", "goal.yaml"], None, STAND_IN) == 4
    assert [(Path("goal.yaml"), 3)] * 2 == STARTED


def test_an_unknown_command_is_told_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match=r"no command statsu; did you mean status\?"):
        invoke(["statsu"])


def test_a_hostile_word_is_shown_without_its_escapes() -> None:
    with pytest.raises(UsageError) as raised:
        invoke(["\x1b[2Jx"])
    assert "\x1b" not in str(raised.value)


@pytest.mark.parametrize("name", ["loopd", *COMMANDS])
def test_the_static_help_is_what_the_commands_say_now(name: str) -> None:
    assert (helptexts.FOLDER / f"{name}.txt").read_text() == helptexts.help_of(name)


@pytest.mark.parametrize("path", sorted(helptexts.FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_help_fits_80_columns(path: Path) -> None:
    assert max(map(len, path.read_text().splitlines())) <= 80


def test_the_top_help_groups_commands_and_ends_with_the_exit_statuses() -> None:
    text = helptexts.top()
    places = [text.index(f"\n{group}\n") for group in ("Run", "Look", "Steer", "Write contracts", "Exit statuses")]
    assert places == sorted(places)
    assert all(f"\n  {name:<8}  " in text for name in COMMANDS)


def test_a_crash_is_one_message_with_the_report_and_the_way_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOOPD_STATE", str(tmp_path))
    try:
        raise RuntimeError("token " + "gh" + "p_" + "a1" * 18)
    except RuntimeError as error:
        assert report(error, ["run", "goal.yaml"]) == 70
    said = capsys.readouterr().err
    [path] = (tmp_path / "crashes").iterdir()
    assert said.splitlines()[1:] == [f"the report lies in {path}", "go on with: loopd resume last"]
    text = path.read_text()
    assert "Traceback" in text
    assert "loopd run goal.yaml" in text
    assert "a1a1" not in text + said
    assert path.stat().st_mode & 0o077 == 0


def test_a_crash_report_goes_elsewhere_when_the_state_folder_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LOOPD_STATE", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert report(RuntimeError("x"), ["ps"]) == 70
    assert list(tmp_path.glob("crash-*.txt"))
    capsys.readouterr()
