"""CONF: contract, command line and environment of a real start."""

import stat
from pathlib import Path

import pytest

from cases import DONE, attempts, launches, notes, prepare, with_env
from running import Project, contract

HARD = (
    "---\n# not a comment: really\n\tindented by a tab\ntrailing backslash \\\n100 % of {{ this }} and {% that %}\n"
    "quotes ' \" ` $HOME $(id)\n---\n\u00e9 \U0001f600\n"
)


@pytest.mark.parametrize("value", ["true", "no"])
def test_conf_2_boolean_is_no_number(project: Project, value: str) -> None:
    """A boolean in any spelling is refused for each number of the budget."""
    more = f"budget: {{attempts: {value}, cost: {value}, time: {value}, tokens: {value}}}"
    ran = prepare(project, "true\n", more=more).loopd("run", "goal.yaml")
    assert ran.status == 2
    for name in ("attempts", "cost", "time", "tokens"):
        assert f"budget.{name}" in ran.err, ran.err
    assert launches(project) == 0


@pytest.mark.parametrize("value", [".nan", "-.inf", "1e999 USD"])
def test_conf_3_nan_and_infinity_are_no_budget(project: Project, value: str) -> None:
    """Neither in the contract nor on the command line."""
    path = prepare(project, "true\n", more=f"budget: {{cost: {value}}}").root / "goal.yaml"
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 2
    assert "budget.cost" in ran.err
    path.write_text(path.read_text().replace(f"budget: {{cost: {value}}}", ""))
    by_flag = project.loopd("run", "goal.yaml", f"--cost={value.lstrip('.')}")
    assert by_flag.status == 2, by_flag.text
    assert launches(project) == 0


WRONG = [
    ["--max-turn", "3"],
    ["--max-turns="],
    ["--attempts="],
    ["-n"],
    ["other.yaml"],
    ["—attempts", "3"],
]


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_conf_4_unknown_option_starts_nothing(project: Project, words: list[str]) -> None:
    """Unknown, empty and short options and a second contract are usage errors."""
    project = prepare(project, "true\n")
    ran = project.loopd("run", "goal.yaml", *words)
    assert ran.status == 2, ran.text
    assert launches(project) == 0
    assert not project.state.exists() or project.run_folders() == []
    assert "Traceback" not in ran.text


@pytest.mark.parametrize("size", [0, 200_000], ids=["short", "200 kB"])
@pytest.mark.parametrize("way", ["block", "file"])
def test_conf_5_objective_reaches_the_agent_byte_for_byte(project: Project, way: str, size: int) -> None:
    """Lines of `---`, hashes, tabs, a trailing backslash, percent signs, and length: stored by the agent, compared."""
    words = HARD + ("0123456789 abcdef # : - %\n" * (size // 25))
    project = prepare(project, 'cat > "$NOTES/prompt"\necho done > out.txt\n')
    (project.root / "words.md").write_text(words)
    block = "|\n" + "".join(f"  {line}\n" for line in words.split("\n")[:-1])
    text = contract("case", DONE, "{command: [sh, agent.sh]}")
    text = text.replace("make every check pass\n", block if way == "block" else "{file: words.md}\n")
    (project.root / "goal.yaml").write_text(text)
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    got = (notes(project) / "prompt").read_bytes()
    assert words.encode().rstrip(b"\n") in got


def test_conf_6_program_elsewhere_is_said_before_attempt_1(project: Project, tmp_path: Path) -> None:
    """With a bare PATH, an executor that lives elsewhere: blocked, the PATH named, no attempt used."""
    project = with_env(prepare(project, "true\n", agent="{command: [my-agent, -x]}"), {"PATH": "/usr/bin:/bin"})
    _program(tmp_path / "elsewhere" / "my-agent", "#!/bin/sh\n")
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 5, ran.text
    assert "my-agent: program not found" in ran.text
    assert "/usr/bin:/bin" in ran.text
    assert attempts(project) == []


@pytest.mark.parametrize("role", ["agent", "verifier"])
def test_conf_6_missing_interpreter_is_said_before_attempt_1(project: Project, tmp_path: Path, role: str) -> None:
    """A program whose `#!/usr/bin/env` interpreter is missing, as executor and as verifier."""
    tools = tmp_path / "tools"
    _program(tools / "scripted", "#!/usr/bin/env no-such-interpreter\n")
    agent, checks = ("{command: [scripted]}", DONE) if role == "agent" else ("{command: [sh, agent.sh]}", ["scripted"])
    path = f"{tools}:/usr/bin:/bin"
    project = with_env(prepare(project, "true\n", checks=checks, agent=agent), {"PATH": path})
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 5, ran.text
    assert "no-such-interpreter" in ran.text
    assert path in ran.text
    assert attempts(project) == []
    assert launches(project) == 0


def test_conf_7_markers_of_an_agent_session_are_not_passed_on(project: Project) -> None:
    """Started from an agent's session, the agent sees none of its markers, and still sees its keys."""
    markers = {"CLAUDECODE": "1", "CLAUDE_CODE_ENTRYPOINT": "cli", "CODEX_SANDBOX": "x", "GEMINI_CLI": "1"}
    names = "|".join([*markers, "LOOPD_STATE"])
    script = f'env | grep -E "^({names})=" && exit 1\n[ "$SOME_API_KEY" = kept ] || exit 2\necho done > out.txt\n'
    project = with_env(prepare(project, script), {**markers, "SOME_API_KEY": "kept"})
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    assert len(attempts(project)) == 1


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
