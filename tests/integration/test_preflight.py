"""Preflight on real input: what is missing is found by trying, and the line that mends it is named."""

import socket
import threading

import pytest

from running import Project

AGENT = "agent: {command: [sh, -c, 'cat > /dev/null; echo 1 > out.txt']}"


def blocked(project: Project, criterion: str, more: str = "") -> str:
    """What a run says that cannot begin; no attempt was used."""
    project.write({"goal.yaml": f"goal: pre\nobjective: x\n{AGENT}\ncriteria:\n  - {criterion}\n{more}\n"}).commit()
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 5, ran.text
    assert project.of_kind("attempt.reserved") == []
    return ran.text


@pytest.mark.needs("bwrap")
def test_a_check_that_needs_an_ignored_file_names_the_line_that_carries_it(project: Project) -> None:
    """The interpreter in `.venv` is not part of a tree; one of three ignored things is what is missing."""
    project.write({".gitignore": ".venv/\nother/\n", ".venv/bin/check": "#!/bin/sh\nexit 1\n", "other/x": ""})
    (project.root / ".venv/bin/check").chmod(0o755)
    said = blocked(project, "{name: own, run: .venv/bin/check}")
    assert "environment: {carry: [.venv]}" in said
    assert "other" not in said


@pytest.mark.needs("bwrap")
def test_a_check_that_needs_the_network_names_the_line_that_gives_it(project: Project) -> None:
    """Verifiers have no network unless the contract says so; a report that never comes is an error."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: [server.accept()[0].close() for _ in range(9)], daemon=True).start()
        port = server.getsockname()[1]
        code = (
            f"import socket, sys; socket.create_connection(('127.0.0.1', {port}));"
            " open(sys.argv[1], 'w').write('<testsuite><testcase name=\\\"a\\\"><failure/></testcase></testsuite>');"
            " sys.exit(1)"
        )
        said = blocked(
            project, f'{{name: net, run: [python3, -c, "{code}", "{{out}}/r.xml"], report: "{{out}}/r.xml"}}'
        )
    assert "environment: {network: host}" in said


def test_a_check_that_nothing_mends_says_where_to_look(project: Project) -> None:
    """No line would help: the output of the check is named."""
    said = blocked(project, '{name: lost, run: "true", report: "{out}/never.xml"}')
    assert "lost cannot run on the baseline" in said
    assert "loopd resume" in said


def test_templates_of_a_project_are_pinned_and_used(project: Project) -> None:
    """`templates` in loopd.toml; what the agent writes there later has no effect."""
    agent = "agent: {command: [sh, -c, 'cat > /dev/null; echo changed > prompts/instruction.md.j2']}"
    project.write(
        {
            "loopd.toml": 'templates = "prompts"\n',
            "prompts/instruction.md.j2": "Attempt {{ attempt }} of ours: {{ objective }}\n",
            "goal.yaml": f"goal: own\nobjective: do it\n{agent}\nbudget: {{attempts: 2}}\n"
            "criteria:\n  - {name: never, run: test -f never}\n",
        }
    ).commit()
    assert project.loopd("run", "goal.yaml").status == 1
    folder = project.run_folders()[-1] / "attempts"
    told = [(folder / f"{n:04d}" / "instruction.md").read_text().splitlines()[-1] for n in (1, 2)]
    assert told == ["Attempt 1 of ours: do it", "Attempt 2 of ours: do it"]


def test_a_wrong_template_is_said_before_anything_starts(project: Project) -> None:
    """Its name, and what is wrong."""
    project.write(
        {
            "prompts/instruction.md.j2": "{{ nonsense }}\n",
            "goal.yaml": f"goal: own\nobjective: do it\n{AGENT}\ntemplates: prompts\n"
            "criteria:\n  - {name: never, run: test -f never}\n",
        }
    ).commit()
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 2
    assert "nonsense" in ran.err
    assert project.run_folders() == []
