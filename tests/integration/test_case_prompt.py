"""PROM: how an instruction gets to an agent, and what happens when it is too long for the way."""

import os

import pytest

from cases import DONE, attempts, launches, notes, outcomes, prepare, with_env
from running import Project, contract

GETOPTS = 'while getopts :a:b: o; do case $o in \\?) echo "unknown option $OPTARG"; exit 2;; esac; done\n'
NOISE = """
import pathlib, sys
if pathlib.Path("out.txt").exists():
    sys.exit(0)
print("HEAD-OF-IT")
for n in range(34000):
    print("line", n, "y" * 80)
print("TAIL-OF-IT")
sys.exit(1)
"""


def test_prom_1_three_megabytes_of_output_and_a_prompt_by_argument(project: Project) -> None:
    """Attempt 2 starts; its prompt fits, has head and tail of the output, and a path to all of it."""
    script = 'printf %s "$1" > "$NOTES/prompt$N"\n[ $N = 2 ] && echo done > out.txt\ntouch part$N\n'
    agent = "{command: [sh, agent.sh], prompt: argument}"
    words = "a long story about what has to be done, line after line\n" * 4000
    project = prepare(project, script, agent=agent, checks=["python3 noise.py"], files={"noise.py": NOISE})
    text = (project.root / "goal.yaml").read_text()
    (project.root / "words.md").write_text(words)
    (project.root / "goal.yaml").write_text(text.replace("make every check pass", "{file: words.md}"))
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    assert outcomes(project) == ["finished", "finished"]
    prompt = (notes(project) / "prompt2").read_bytes()
    assert len(prompt) <= 131_071
    whole = project.run_folders()[-1] / "attempts" / "0002" / "instruction.md"
    assert str(whole).encode() in prompt
    assert b"HEAD-OF-IT" in whole.read_bytes()
    assert b"TAIL-OF-IT" in whole.read_bytes()
    assert b"TAIL-OF-IT" in prompt
    assert (project.run_folders()[-1] / "checks" / "0001-check-1" / "stdout.log").stat().st_size > 3_000_000


@pytest.mark.parametrize(
    ("way", "first"), [("argument", "---"), ("argument", "--help"), ("file", "-p"), ("stdin", "-")]
)
def test_prom_2_a_prompt_is_never_taken_for_an_option(project: Project, way: str, first: str) -> None:
    """The objective begins like an option and the agent uses getopts: it starts, and reads the objective."""
    read = {"argument": 'printf %s "$1"', "file": 'cat "$1"', "stdin": "cat"}[way]
    script = f'{GETOPTS}{read} > "$NOTES/prompt"\necho done > out.txt\n'
    project = prepare(project, script, agent=f"{{command: [sh, agent.sh], prompt: {way}}}")
    text = contract("case", DONE, f"{{command: [sh, agent.sh], prompt: {way}}}")
    (project.root / "goal.yaml").write_text(text.replace("make every check pass", f"|\n  {first}\n  the rest"))
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    prompt = (notes(project) / "prompt").read_text()
    assert prompt.startswith("This instruction comes from loopd")
    assert f"\n{first}\nthe rest" in prompt


def test_prom_3_arguments_and_environment_together_are_refused_with_sizes(project: Project) -> None:
    """1.9 MB of environment and a prompt of 100 kB by argument: refused before attempt 1, naming the sizes."""
    agent = "{command: [sh, agent.sh], prompt: argument}"
    project = _big(prepare(project, "echo done > out.txt\n", agent=agent), 100_000)
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 5, ran.text
    assert launches(project) == 0
    assert attempts(project) == []
    assert "of environment" in ran.text
    assert "by stdin or by a file" in ran.text
    assert project.of_kind("attempt.ended") == []


def test_prom_3_by_stdin_the_same_starts(project: Project) -> None:
    """The same environment with the prompt by stdin is no problem."""
    project = _big(prepare(project, "cat > /dev/null\necho done > out.txt\n"), 100_000)
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text


def _big(project: Project, words: int) -> Project:
    """An environment that just lets loopd itself start, and a long objective."""
    (project.root / "words.md").write_text("word " * (words // 5))
    path = project.root / "goal.yaml"
    path.write_text(path.read_text().replace("make every check pass", "{file: words.md}"))
    own = sum(len(name) + len(value) + 10 for name, value in {**os.environ, **project.env}.items())
    room = 2_097_152 - 4096 - own - 60_000
    parts = {f"FILLER_{n}": "x" * 100_000 for n in range(room // 100_012)}
    return with_env(project, parts)
