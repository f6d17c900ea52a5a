"""The scripted agent: a strict file, and a player that does what it says."""

import json
import subprocess
import sys

import pytest

from loopd.adapters.agents import scripted_player
from loopd.adapters.agents.scripted import ScriptedAgent, parse_script
from loopd.domain.attempt import Usage
from loopd.domain.errors import ContractError
from loopd.ports.agent import Final, Order, Text, Usages


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- - write: {path: a}", r"s\.yaml:1:5: 1\.1\.write\.text: Field required"),
        ("- - {print: a}\n  - writ: {path: a, text: b}", r"s\.yaml:2:5: 1\.2\.writ: Extra inputs"),
        ("- - {print: a, final: b}", "exactly one key"),
        ("- - {}", "exactly one key"),
        ("- - exit: true", r"1\.1\.exit: Input should be a valid integer"),
        ("- - exit: 256", "less than or equal to 255"),
        ("- - sleep: 2", r"1\.1\.sleep: .*unit"),
        ("- - usage: {cost_usd: .nan}", "finite"),
        ("- - usage: {cost_usd: -1}", "greater than or equal to 0"),
        ("- - run: ls -l", "valid list"),
        ("- print: a", "valid list"),
        ("a: 1", "valid list"),
        ("", "valid list"),
        ("- - {print: a, print: b}", "no valid YAML"),
        ("- - [", "no valid YAML"),
        ("- - print: !!python/object:os.system x", "s.yaml"),
    ],
)
def test_a_wrong_script_is_refused_with_its_line(text, message):
    """Unknown keys, doubled keys, wrong types: nothing is played in part."""
    with pytest.raises(ContractError, match=message):
        parse_script(text.encode(), "s.yaml")


def test_a_missing_script_is_a_contract_error(tmp_path):
    """Named with its path."""
    with pytest.raises(ContractError, match=r"none\.yaml is missing"):
        ScriptedAgent(tmp_path / "none.yaml")


@pytest.fixture
def play(tmp_path):
    """Play attempt `number` of a script in a workspace; the finished process."""
    workspace, folder = tmp_path / "workspace", tmp_path / "attempt"
    workspace.mkdir()
    folder.mkdir()
    (folder / "instruction.md").write_text("the instruction\n")

    def played(script, number=1):
        (tmp_path / "script.yaml").write_text(script)
        agent = ScriptedAgent(tmp_path / "script.yaml")
        order = Order(number, folder / "instruction.md", workspace, folder, "/usr/bin:/bin")
        launch = agent.launch(order)
        env = {"PATH": "/usr/bin:/bin"}
        with launch.stdin.open("rb") as stdin:
            done = subprocess.run(launch.argv, stdin=stdin, cwd=workspace, env=env, capture_output=True, timeout=60)
        reader = agent.reader(order)
        events = [event for line in done.stdout.splitlines() for event in reader.feed(line)]
        return done, events, reader.usage()

    played.workspace = workspace
    return played


def test_every_step_does_what_it_says(play, tmp_path):
    """Files, folders, links, modes, commands; text byte for byte."""
    (tmp_path / "ready.txt").write_text("from beside the script\n")
    done, events, usage = play(
        """
- - write: {path: deep/a.txt, text: "one one é\\r\\n"}
  - replace: {path: deep/a.txt, old: one, new: two, count: 2}
  - copy: {from: ready.txt, to: deep/copy.txt}
  - rename: {from: deep/copy.txt, to: moved/copy.txt}
  - mkdir: empty
  - write: {path: gone, text: ""}
  - delete: gone
  - chmod: {path: deep/a.txt, mode: "755"}
  - symlink: {path: link, to: deep/a.txt}
  - run: [sh, -c, "cat > got.txt"]
  - run: [sh, -c, "exit 7"]
  - print: hello
  - sleep: 0.01s
  - usage: {cost_usd: 0.1, tokens: 5}
  - usage: {cost_usd: 0.2}
  - final: finished
  - exit: 4
"""
    )
    workspace = play.workspace
    assert done.returncode == 4, done.stderr
    assert (workspace / "deep/a.txt").read_bytes() == "two two é\r\n".encode()
    assert (workspace / "deep/a.txt").stat().st_mode & 0o777 == 0o755
    assert (workspace / "moved/copy.txt").read_text() == "from beside the script\n"
    assert (workspace / "empty").is_dir()
    assert not (workspace / "gone").exists()
    assert (workspace / "link").readlink().as_posix() == "deep/a.txt"
    assert (workspace / "got.txt").read_text() == "the instruction\n"
    assert events == [
        Text("sh: exit 7"),
        Text("hello"),
        Usages(Usage(0.1, 5)),
        Usages(Usage(0.1 + 0.2, 5)),
        Final("finished"),
    ]
    assert usage == events[3].usage


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("- - replace: {path: a, old: x, new: y}", "step 1 (replace)"),
        ("- - write: {path: a, text: x x}\n  - replace: {path: a, old: x, new: y}", "stands 2 times in a, not 1"),
        ("- - delete: a", "step 1 (delete)"),
    ],
)
def test_a_step_that_cannot_be_played_ends_the_attempt_with_a_word(play, steps, message):
    """A script that no longer fits its tree is a visible failure, not a quiet one."""
    done, _, _ = play(steps + "\n  - write: {path: after, text: ''}")
    assert done.returncode == scripted_player.FAILED
    assert message in done.stderr.decode()
    assert not (play.workspace / "after").exists()


def test_a_pinned_copy_is_read_while_files_come_from_beside_the_script(tmp_path):
    """An edit of the script during a run changes nothing in that run."""
    goals, state = tmp_path / "goals", tmp_path / "state"
    for folder, attempts in ((goals, "- - print: edited"), (state, "- - copy: {from: ready, to: there}")):
        folder.mkdir()
        (folder / "s.yaml").write_text(attempts)
    agent = ScriptedAgent(goals / "s.yaml", pinned=state / "s.yaml")
    agent.launch(Order(1, state / "i", tmp_path, state, ""))
    assert json.loads((state / "steps.json").read_text()) == [{"copy": {"from": str(goals / "ready"), "to": "there"}}]


def test_an_attempt_beyond_the_script_does_nothing_and_says_so(play):
    """Exit 0, no change."""
    done, events, usage = play("- - print: only", number=3)
    assert (done.returncode, usage) == (0, None)
    assert events == [Text("nothing is scripted for attempt 3")]


@pytest.mark.parametrize("line", [b"loopd-scripted: ", b"loopd-scripted: [1]", b'loopd-scripted: {"usage": 1}'])
def test_a_line_that_only_looks_like_an_event_tells_nothing(play, line):
    """Printed by a program that the script runs."""
    script = "- - run: [" + ", ".join(map(json.dumps, [sys.executable, "-c", f"print({line.decode()!r})"])) + "]"
    _, events, usage = play(script)
    assert usage is None
    assert not any(isinstance(event, Usages | Final) for event in events)
