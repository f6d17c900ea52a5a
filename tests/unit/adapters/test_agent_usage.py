"""Figures an agent tells: taken when they are plain numbers, unknown otherwise."""

import os
import re

import pytest

from loopd.adapters.agents.command import CommandAgent, CommandReader
from loopd.adapters.agents.usage import PatternMeter, usage_from_json
from loopd.domain.attempt import Usage
from loopd.domain.errors import ContractError
from loopd.domain.roles import AgentChoice
from loopd.ports.agent import Final, Order, Text, Usages


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        ('{"cost_usd": 0.05, "tokens": 1200}', Usage(0.05, 1200)),
        ('{"cost_usd": 0, "tokens": 0}', Usage(0.0, 0)),
        ('{"input_tokens": 1000, "output_tokens": 200, "model": "m"}', Usage(None, 1200)),
        ('{"input_tokens": 1000}', None),
        ('{"cost_usd": true, "tokens": false}', None),
        ('{"cost_usd": NaN}', None),
        ('{"cost_usd": Infinity}', None),
        ('{"cost_usd": 1e999}', None),
        ('{"cost_usd": -1, "tokens": -5}', None),
        ('{"cost_usd": "0.05"}', None),
        ('{"cost_usd": 0.5, "tokens": true}', Usage(0.5, None)),
        ('{"tokens": 12.5}', None),
        ('{"tokens": 1e300}', None),
        ('{"cost_usd": ' + "9" * 400 + "}", None),
        ("[]", None),
        ("", None),
        ("[" * 100_000, None),
    ],
)
def test_bud_3_only_plain_figures_count_and_the_rest_is_unknown(told, usage):
    """Booleans, NaN, negative numbers and texts are never zero and never a price."""
    assert usage_from_json(told.encode()) == usage


def fed(pattern, *lines):
    """The usage a pattern finds in these lines."""
    meter = PatternMeter(re.compile(pattern))
    for line in lines:
        meter.feed(line)
    return meter.usage()


def test_bud_3_parts_are_summed_and_of_totals_the_last_counts():
    """An attempt that is ended before its final figure keeps what was seen."""
    assert fed(r"cost (?P<cost_add>[\d.]+)", "cost 0.1", "noise", "cost 0.1 cost 0.3") == Usage(0.5, None)
    assert fed(r"total (?P<cost>[\d.]+)", "total 0.1", "total 0.4") == Usage(0.4, None)
    assert fed(r"t=(?P<tokens>\S+)|(?P<tokens_add>\d+) more", "5 more", "t=1,200", "7 more") == Usage(None, 1200)
    assert fed(r"c=(?P<cost>\S+)", "c=NaN", "c=-1", "c=inf", "c=x", "c=") is None


def reader_of(tmp_path, **more):
    """A reader of a command agent."""
    return CommandReader(re.compile(more.get("pattern", '"total_cost_usd":(?P<cost>[0-9.]+)')), None)


def test_pipe_3_a_title_escape_before_the_json_hides_nothing(tmp_path):
    """Trial 04: the cost is found, and the escape is not shown."""
    reader = reader_of(tmp_path)
    line = b'\x1b]0;title\x07{"type":"result","total_cost_usd":0.05}'
    assert list(reader.feed(line)) == [
        Usages(Usage(0.05)),
        Text('{"type":"result","total_cost_usd":0.05}'),
    ]
    assert reader.usage() == Usage(0.05)


def test_a_final_line_is_seen_by_its_pattern_only():
    """Without a pattern nothing is final."""
    with_pattern = CommandReader(None, re.compile(r'"type":"result"'))
    assert Final('{"type":"result"}') in list(with_pattern.feed(b'{"type":"result"}'))
    assert list(CommandReader(None, None).feed(b'{"type":"result"}')) == [Text('{"type":"result"}')]


def agent(tmp_path, **choice):
    """A command agent and an order for it."""
    workspace, folder = tmp_path / "workspace", tmp_path / "attempt"
    workspace.mkdir()
    folder.mkdir()
    (folder / "instruction.md").write_text("x")
    made = CommandAgent(AgentChoice.model_validate({"command": ["true"], **choice}), tmp_path)
    return made, Order(1, folder / "instruction.md", workspace, folder, "/usr/bin:/bin")


def test_a_usage_file_is_found_where_the_agent_was_told_to_write_it(tmp_path):
    """LOOPD_USAGE_FILE names it; its folder is there."""
    made, order = agent(tmp_path, usage={"file": "deep/usage.json"})
    place = made.launch(order).env["LOOPD_USAGE_FILE"]
    assert made.reader(order).usage() is None
    with open(place, "w") as file:
        file.write('{"cost_usd": 0.5}')
    assert made.reader(order).usage() == Usage(0.5)


def test_a_usage_file_in_the_workspace_counts_once(tmp_path):
    """For programs that know nothing of loopd; the file of the attempt before is older than the instruction."""
    made, order = agent(tmp_path, usage={"file": "usage.json"})
    usage_file = order.workspace / "usage.json"
    usage_file.write_text('{"cost_usd": 0.5}')
    os.utime(usage_file, ns=(0, order.instruction.stat().st_mtime_ns - 1))
    assert made.reader(order).usage() is None
    usage_file.write_text('{"cost_usd": 0.75}')
    os.utime(usage_file, ns=(0, order.instruction.stat().st_mtime_ns + 1))
    assert made.reader(order).usage() == Usage(0.75)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "long"])
def test_a_usage_file_that_is_no_small_plain_file_tells_nothing(tmp_path, kind):
    """A link to a file of the owner's, a pipe that would block, a gigabyte."""
    made, order = agent(tmp_path, usage={"file": "usage.json"})
    place, secret = order.workspace / "usage.json", tmp_path / "secret.json"
    secret.write_text('{"cost_usd": 0.5}')
    match kind:
        case "link":
            place.symlink_to(secret)
        case "pipe":
            os.mkfifo(place)
        case "folder":
            place.mkdir()
        case "long":
            place.write_bytes(b'{"cost_usd": 0.5}' + b" " * 1024 * 1024)
    assert made.reader(order).usage() is None


@pytest.mark.parametrize(
    ("usage", "message"),
    [
        ({"pattern": "cost (.*)"}, "a group named cost"),
        ({"file": "/etc/passwd"}, "relative"),
        ({"file": "../x"}, "relative"),
    ],
)
def test_a_usage_source_that_cannot_work_is_a_contract_error(tmp_path, usage, message):
    """Said before any attempt."""
    with pytest.raises(ContractError, match=message):
        agent(tmp_path, usage=usage)
