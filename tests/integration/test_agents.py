"""Agents as real processes: how the instruction arrives, what is read while they run, what is left at the end."""

import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from loopd.adapters.agents.command import ARGUMENT_BYTES, CommandAgent, as_argument
from loopd.adapters.containment.containers import OwnedContainers
from loopd.adapters.containment.environment import agent_environment
from loopd.adapters.prompts import FIRST_LINE, Prompts
from loopd.adapters.registry import agent_for
from loopd.adapters.tail import Tail
from loopd.domain.attempt import Outcome, Usage
from loopd.domain.errors import BlockedError, ContractError
from loopd.domain.feedback import Briefing, Excerpt, Left
from loopd.domain.roles import AgentChoice, Role
from loopd.ports.agent import Final, Order, Text
from loopd.ports.processes import Grace, ProcessSpec

SEARCH_PATH = os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"])
QUICK = Grace("SIGINT", 1.0, 1.0, 5.0)
BRIEFING = Briefing(1, "objective", "/w", Left(1, 60.0, 60.0))


@pytest.fixture
def containers():
    """Real ones; the helper is ended afterwards."""
    made = OwnedContainers()
    yield made
    made.close()


@pytest.fixture
def order(tmp_path):
    """Attempt 1 with an instruction that was rendered."""
    workspace, folder = tmp_path / "workspace", tmp_path / "attempt"
    workspace.mkdir()
    folder.mkdir()
    instruction, _ = Prompts().write(BRIEFING, folder)
    return Order(1, instruction, workspace, folder, SEARCH_PATH)


def agent(code, *args, **choice):
    """A python program as an agent."""
    return CommandAgent(
        AgentChoice.model_validate({"command": ["python3", "-c", code, *args], **choice}), Path("/nonexistent")
    )


@asynccontextmanager
async def running(containers, agent, order, env=None):
    """Start it as an attempt is started; ended when the block is left."""
    launch = agent.launch(order)
    process = order.folder / "process"
    process.mkdir()
    base = agent_environment({"PATH": SEARCH_PATH, **(env or {})})
    container = await containers.start(
        ProcessSpec(
            process, launch.argv, order.workspace, {**base, **launch.env}, "test/1", stdin=launch.stdin,
            stdout=order.folder / "stdout.log", stderr=order.folder / "stderr.log",
        )
    )  # fmt: skip
    try:
        yield container
    finally:
        await container.end(QUICK)


def attempt(containers, agent, order, env=None):
    """One attempt to its end: the exit, the events, the usage."""

    async def run():
        async with running(containers, agent, order, env) as container:
            with anyio.fail_after(60):
                return await container.wait()

    left = anyio.run(run)
    reader, events = agent.reader(order), []
    with Tail(order.folder / "stdout.log") as tail:
        while lines := tail.read():
            events += [event for line in lines for event in reader.feed(line)]
        if last := tail.finish():
            events += reader.feed(last)
    return left, events, reader.usage()


def test_pipe_1_to_4_trial_04_is_read_whole(containers, order):
    """Huge line, late characters, an escape before the JSON, invalid bytes, a flood on stderr, no last newline."""
    code = r"""
import os, sys, time
def w(b): os.write(1, b)
sys.stdin.close()
w(b'{"type":"user","content":"' + b"A" * 3_000_000 + b'"}\n')
for byte in "\U0001f600\u00e9\u4e2d".encode():
    w(bytes([byte])); time.sleep(0.01)
w(b"\n\x1b]0;title\x07" + b'{"type":"result","subtype":"success","total_cost_usd":0.05}\n')
w(b"\xc0\xff not utf-8\r\x1b[2J\x1b[31mred\n")
os.write(2, b"E" * 400_000)
w(b"last line, no newline")
open("out.txt", "w").write("done\n")
"""
    costly = agent(code, usage={"pattern": r'"total_cost_usd":(?P<cost>[\d.]+)'})
    left, events, usage = attempt(containers, costly, order)
    assert left.status == 0
    assert usage == Usage(0.05)
    texts = [event.text for event in events if isinstance(event, Text)]
    assert "bytes left out" in texts[0]
    assert texts[1] == "\U0001f600é中"
    assert texts[3:] == ["\ufffd\ufffd not utf-8\nred", "last line, no newline"]
    assert (
        (order.folder / "stdout.log")
        .read_bytes()
        .endswith(b"\xc0\xff not utf-8\r\x1b[2J\x1b[31mred\nlast line, no newline")
    )
    assert (order.folder / "stderr.log").stat().st_size == 400_000


def test_hang_2_the_final_event_is_seen_while_the_agent_stays(containers, order):
    """So that the grace can run; the usage before it is kept although the agent is ended."""
    code = (
        "import time; print('{\"total_cost_usd\":5.57}', flush=True)\n"
        'print(\'{"type":"result"}\', flush=True); time.sleep(600)'
    )
    stays = agent(code, usage={"pattern": r'"total_cost_usd":(?P<cost>[\d.]+)'}, final='"type":"result"')

    async def run():
        reader, events = stays.reader(order), []
        async with running(containers, stays, order) as container:
            with Tail(order.folder / "stdout.log") as tail, anyio.fail_after(60):
                while not any(isinstance(event, Final) for event in events):
                    events += [event for line in tail.read() for event in reader.feed(line)]
                    await anyio.sleep(0.02)
            assert container.activity().processes >= 1
        return reader.usage()

    assert anyio.run(run) == Usage(5.57)


def test_bud_3_an_attempt_that_is_killed_keeps_the_usage_it_told(containers, order):
    """Usage per message and never a final figure: the sum of what was seen."""
    code = "import os\nfor _ in range(5): print('cost 0.10', flush=True)\nos.kill(os.getpid(), 9)"
    left, _, usage = attempt(containers, agent(code, usage={"pattern": r"cost (?P<cost_add>[\d.]+)"}), order)
    assert left.signal == "SIGKILL"
    assert usage is not None
    assert usage.cost_usd == pytest.approx(0.5)
    assert attempt_nothing_told(containers, order) is None


def attempt_nothing_told(containers, order):
    """The usage of an agent that tells nothing: unknown, not zero."""
    return agent("pass", usage={"file": "usage.json"}).reader(order).usage()


def test_out_4_an_agent_that_asks_back_and_exits_0_is_only_text(containers, order):
    """A question is no result, no usage and no end."""
    left, events, usage = attempt(containers, agent("print('what would you like help with?')", final="^FINAL"), order)
    assert (left.status, events, usage) == (0, [Text("what would you like help with?")], None)


@pytest.mark.parametrize("place", [("--prompt={prompt}",), ()])
def test_prom_1_a_prompt_of_3_mb_as_argument_starts_with_head_tail_and_a_path(containers, order, place):
    """Measured limit: 131,071 bytes of one argument, what stands around the placeholder included."""
    text = FIRST_LINE + "\nhead\n" + "noise\n" * 500_000 + "\0tail\n"
    order.instruction.write_text(text)
    code = "import sys; open('got', 'w').write(sys.argv[-1])"
    left, _, _ = attempt(containers, agent(code, *place, prompt="argument"), order)
    assert left.status == 0
    got = (order.workspace / "got").read_text()
    assert ARGUMENT_BYTES - 100 <= len(got.encode()) <= ARGUMENT_BYTES
    got = got.removeprefix("--prompt=")
    assert got.startswith(FIRST_LINE + "\n")
    assert str(order.instruction) in got
    assert "bytes left out" in got
    assert got.endswith("noise\ntail\n")


def test_prom_1_the_longest_argument_passes_whole(containers, order):
    """131,071 bytes are handed over as they are; one more is cut."""
    order.instruction.write_text("x" * ARGUMENT_BYTES)
    assert as_argument(order.instruction) == "x" * ARGUMENT_BYTES
    code = "import sys; raise SystemExit(len(sys.argv[1]) != 131071)"
    assert attempt(containers, agent(code, prompt="argument"), order)[0].status == 0
    order.instruction.write_text("x" * (ARGUMENT_BYTES + 1))
    assert len(as_argument(order.instruction)) <= ARGUMENT_BYTES


@pytest.mark.parametrize("objective", ["---\nrule", "-p", "--help"])
def test_prom_2_a_goal_that_looks_like_an_option_is_not_one(containers, order, objective):
    """An agent that parses its options strictly finds a prompt."""
    Prompts().write(Briefing(1, objective, "/w", Left(1, 60.0, 60.0)), order.folder)
    code = "import argparse; p = argparse.ArgumentParser(); p.add_argument('prompt'); print(p.parse_args().prompt[:20])"
    left, events, _ = attempt(containers, agent(code, prompt="argument"), order)
    assert left.status == 0
    assert events == [Text(FIRST_LINE[:20])]


BIG = {f"BIG_{number}": "x" * 100_000 for number in range(19)}


def test_prom_3_a_big_environment_needs_the_prompt_by_stdin_or_file(containers, order):
    """1.9 MB of environment and 100 KB of prompt: both channels that use no argument start."""
    order.instruction.write_text(FIRST_LINE + "\n" + "x" * 100_000)
    code = "import sys; raise SystemExit(len(sys.stdin.read()) < 100000)"
    assert attempt(containers, agent(code), order, BIG)[0].status == 0


def test_prom_3_a_big_environment_and_a_big_argument_are_refused_before_the_start(containers, order):
    """The message names the size of the environment; nothing ran."""
    order.instruction.write_text(FIRST_LINE + "\n" + "x" * 100_000)
    with pytest.raises(BlockedError, match=r"2,000,\d\d\d of environment"):
        attempt(containers, agent("open('ran', 'w')", prompt="argument"), order, BIG | {"MORE": "x" * 100_000})
    assert os.listdir(order.workspace) == []


def test_conf_5_200_kb_of_goal_arrive_byte_for_byte(containers, order):
    """The agent stores what it gets, and the objective is in it unchanged."""
    objective = "---\n# a: b\t%s \\\n{{ x }}\r\n" * 8_000 + "no newline\\"
    captured = (Excerpt("t", "stdout", "{{ objective }}"),)
    Prompts().write(
        Briefing(1, objective, "/w", Left(1, 60.0, 60.0), outcome=Outcome.FINISHED, excerpts=captured), order.folder
    )
    code = "import sys; open('got', 'wb').write(sys.stdin.buffer.read())"
    assert attempt(containers, agent(code), order)[0].status == 0
    got = (order.workspace / "got").read_bytes()
    assert got == order.instruction.read_bytes()
    assert objective.encode() in got


def test_comp_3_an_echoed_prompt_proves_nothing(containers, order):
    """An agent that prints its whole instruction gives text and no final event."""
    left, events, usage = attempt(containers, agent("import sys; print(sys.stdin.read())", final="^FINAL"), order)
    assert left.status == 0
    assert all(isinstance(event, Text) for event in events)
    assert usage is None


def test_conf_6_a_program_that_is_not_there_is_blocked_with_the_path_searched(order):
    """Before the first attempt, by name or by path."""
    for program in ("no-such-agent-4711", "./no-such-agent-4711"):
        choice = AgentChoice.model_validate({"command": [program]})
        with pytest.raises(BlockedError) as caught:
            CommandAgent(choice, order.workspace).probe(SEARCH_PATH)
        assert program.removeprefix("./") in str(caught.value)
    with pytest.raises(BlockedError, match=SEARCH_PATH):
        CommandAgent(AgentChoice(command=("no-such-agent-4711",)), order.workspace).launch(order)


def test_the_registry_knows_commands_scripts_and_says_what_is_not_there(tmp_path):
    """Relative names are found from the contract's folder."""
    (tmp_path / "s.yaml").write_text("- - print: a")
    (tmp_path / "agent.sh").write_text("#!/bin/sh\n")
    (tmp_path / "agent.sh").chmod(0o755)
    made = agent_for(Role(agent=AgentChoice(command=("./agent.sh",)), args=("--fast",)), tmp_path)
    assert made.probe(SEARCH_PATH) == str(tmp_path / "agent.sh")
    assert made.name == "./agent.sh --fast"
    assert agent_for(Role(agent=AgentChoice(scripted="s.yaml")), tmp_path).name == "scripted"
    with pytest.raises(ContractError, match="'claude' is not available"):
        agent_for(Role(agent=AgentChoice(name="claude")), tmp_path)
    with pytest.raises(ContractError, match="no agent is named"):
        agent_for(Role(), tmp_path)


def test_an_installed_agent_is_found_by_its_entry_point(tmp_path, monkeypatch):
    """A third party's package adds a name, and loopd needs no change."""
    package = tmp_path / "thirdparty-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: thirdparty\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[loopd.agents]\nmine = thirdparty_agent:make\n")
    (tmp_path / "thirdparty_agent.py").write_text("def make(role, folder):\n    return (role.model, folder)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert agent_for(Role(agent=AgentChoice(name="mine"), model="m"), tmp_path) == ("m", tmp_path)
    with pytest.raises(ContractError, match="installed are mine"):
        agent_for(Role(agent=AgentChoice(name="other")), tmp_path)
