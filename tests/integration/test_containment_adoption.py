"""Killing the supervisor: launches happen once, statuses are kept, running agents are taken over."""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest

from containers_under_test import AT_ONCE, KINDS, QUICK, eventually, keep_claim_only, output, recorded, run, sh
from loopd.adapters.containment import nursery, procfs, records
from loopd.adapters.containment.containers import OwnedContainers
from loopd.ports.processes import Containment
from supervised import read

pytestmark = pytest.mark.anyio

TESTS = Path(__file__).parents[1]
KILLS = int(os.environ.get("LOOPD_CHAOS", "20"))


def supervisor(folder: Path, kind: Containment) -> subprocess.Popen[bytes]:
    """Start the small supervisor."""
    env = {**os.environ, "PYTHONPATH": str(TESTS.parent / "supervisor")}
    argv = [sys.executable, str(TESTS / "supervised.py"), str(folder), kind]
    return subprocess.Popen(argv, env=env, stderr=subprocess.PIPE)


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL; a supervisor that has failed by itself fails the test with its words."""
    assert process.stderr is not None
    with process.stderr:
        if process.poll() is not None:
            pytest.fail(process.stderr.read().decode()[-2000:])
        process.kill()
        process.wait()


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
async def test_j2_a_supervisor_killed_at_any_point_launches_once_and_loses_no_status(
    tmp_path: Path, kind: Containment
) -> None:
    """LOOPD_CHAOS kills (20; 200 in the full run): nothing launched twice, no overlap, no status lost."""
    dice = random.Random(kind)
    for _ in range(KILLS):
        before = len(read(tmp_path))
        process = supervisor(tmp_path, kind)
        if dice.random() < 0.9:  # else perhaps before it has done anything
            await eventually(lambda before=before: len(read(tmp_path)) > before, 60)
        await anyio.sleep(dice.uniform(0, 0.3))
        kill(process)
    before = len(read(tmp_path))
    process = supervisor(tmp_path, kind)
    await eventually(lambda: len(read(tmp_path)) > before + 2, 30)
    kill(process)
    await end_the_last(tmp_path)
    check(tmp_path)


async def end_the_last(folder: Path) -> None:
    """Settle what the last kill has left, as any next supervisor would."""
    containers = OwnedContainers()
    for attempt in sorted(folder.glob("a*"), key=lambda path: int(path.name[1:]))[-1:]:
        adopted = await containers.adopt(attempt)
        if adopted is not None:
            await adopted.end(AT_ONCE)
    containers.close()
    marker = f"{folder}-"
    assert [p for p in procfs.pids() if (procfs.variable(p, "LOOPD_MARKER") or "").startswith(marker)] == []


def check(folder: Path) -> None:
    """Compare what the ledger says with what the agents did."""
    exits = {record["n"]: record for record in read(folder) if record["kind"] == "exit"}
    effects = [line.split() for line in (folder / "effects").read_text().splitlines()]
    begun = Counter(int(number) for what, number in effects if what == "B")
    assert max(begun.values()) == 1, "an attempt was launched twice"
    running: str | None = None
    for what, number in effects:
        assert running == (None if what == "B" else number), "two agents at the same time"
        running = number if what == "B" else None
    for number, record in exits.items():
        if record["how"] == "voided":
            assert number not in begun
        else:
            assert record["exit"] == f"exit {int(str(number)) % 7}", record
    assert {record["how"] for record in exits.values()} >= {"waited", "adopted"}


@pytest.mark.parametrize("kind", KINDS)
async def test_tree_5_the_agent_of_a_killed_supervisor_runs_on_and_is_adopted(
    tmp_path: Path, kind: Containment
) -> None:
    """Found by claim, pid and start time; its whole output is kept; it is ended like any other."""
    made = sh(tmp_path, "trap '' TERM HUP; for i in $(seq 600); do echo beat $i; sleep 0.05; done")
    helper = nursery.spawn()
    await OwnedContainers(helper, kind).start(made)
    os.kill(helper.pid, signal.SIGKILL)  # what the helper sees when its supervisor dies, only harsher
    helper.close()
    seen = output(made)
    await eventually(lambda: len(output(made)) > len(seen) + 20)
    successor = OwnedContainers()
    adopted = await successor.adopt(made.folder)
    assert adopted is not None
    assert adopted.containment is kind
    cleared = await adopted.end(QUICK)
    assert cleared.exit.signal == "SIGINT"
    assert output(made).startswith("beat 1\nbeat 2\n")
    size = len(output(made))
    await anyio.sleep(0.15)
    assert len(output(made)) == size
    successor.close()


async def test_an_agent_that_left_while_nobody_looked_keeps_its_status_and_its_strays_are_ended(
    tmp_path: Path,
) -> None:
    """The exit waits in its file, the orphans below the shim."""
    made = sh(tmp_path, "sleep 600 & sleep 0.1; exit 5")
    helper = nursery.spawn()
    await OwnedContainers(helper, Containment.SUBREAPER).start(made)
    helper.close()
    await eventually(lambda: "exit" in recorded(made.folder))
    adopted = await OwnedContainers().adopt(made.folder)
    assert adopted is not None
    with anyio.fail_after(5):
        assert (await adopted.wait()).status == 5
        cleared = await adopted.end(QUICK)
    assert [ended.command for ended in cleared.ended] == ["sleep 600"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_tree_without_shim_is_found_by_its_marker_after_a_restart(tmp_path: Path, kind: Containment) -> None:
    """Shim, helper and supervisor are gone: what carries the marker is ended, the exit is lost."""
    made = sh(tmp_path, "(setsid sleep 600 &); sleep 0.1; touch up; sleep 601")
    helper = nursery.spawn()
    await OwnedContainers(helper, kind).start(made)
    await eventually((tmp_path / "up").exists)
    helper.close()
    started = recorded(made.folder)["started"]
    os.kill(started["shim"][0], signal.SIGKILL)
    await eventually(lambda: not procfs.is_alive(procfs.Identity(*started["shim"])))
    adopted = await OwnedContainers().adopt(made.folder)
    assert adopted is not None
    with anyio.move_on_after(0.1) as scope:
        await adopted.wait()
    assert scope.cancelled_caught  # the agent lives on
    cleared = await adopted.end(QUICK)
    assert cleared.exit.lost
    assert cleared.survivors == ()
    assert list(procfs.marked("LOOPD_MARKER", made.marker)) == []


async def test_a_shim_killed_before_its_record_may_have_launched_and_is_lost(tmp_path: Path) -> None:
    """Not voided: what it launched is found by the marker of its claim, and ended."""
    made = sh(tmp_path, "sleep 600")
    container = await OwnedContainers(containment=Containment.SUBREAPER).start(made)
    started = recorded(made.folder)["started"]
    keep_claim_only(made.folder)
    os.kill(started["shim"][0], signal.SIGKILL)
    adopted = await OwnedContainers().adopt(made.folder)
    assert adopted is not None
    assert adopted.activity().processes >= 1
    assert (await adopted.end(QUICK)).exit.lost
    assert container.activity().processes == 0


async def test_a_claim_that_cannot_be_read_is_lost(tmp_path: Path) -> None:
    """A power failure may leave an empty one: something may have run."""
    made = sh(tmp_path, "exit 0")
    (made.folder / records.FILE).touch()
    adopted = await OwnedContainers().adopt(made.folder)
    assert adopted is not None
    assert (await adopted.end(AT_ONCE)).exit.lost


async def test_adopting_waits_for_a_shim_that_is_launching_still(tmp_path: Path) -> None:
    """A supervisor killed in the middle of a start leaves a shim that goes on."""
    for delay_s in (0, 0.001, 0.002, 0.004, 0.008):
        made = sh(tmp_path, "exit 3")
        first, second = OwnedContainers(nursery.spawn()), OwnedContainers()
        await run(first, sh(tmp_path, "exit 0"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.start, made)
            await anyio.sleep(delay_s)
            while not (made.folder / records.FILE).exists():
                await anyio.sleep(0)
            adopted = await second.adopt(made.folder)
        assert adopted is not None
        assert (await adopted.wait()).status == 3
        await adopted.end(QUICK)
        first.close()


async def test_a_helper_that_was_killed_is_replaced(tmp_path: Path) -> None:
    """The next launch works; the container that runs already is not disturbed."""
    helper = nursery.spawn()
    containers = OwnedContainers(helper, Containment.SUBREAPER)
    first = await containers.start(sh(tmp_path, "trap 'exit 3' INT; touch up; while :; do sleep 0.01; done"))
    await eventually((tmp_path / "up").exists)
    os.kill(helper.pid, signal.SIGKILL)
    second = await containers.start(sh(tmp_path, "exit 4"))
    assert (await second.wait()).status == 4
    await second.end(QUICK)
    assert (await first.end(QUICK)).exit.status == 3
    containers.close()


def shim_of(folder: Path) -> int:
    """The shim that held, or holds, a container."""
    return int(recorded(folder)["started"]["shim"][0])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_shim_whose_container_was_proven_empty_holds_the_next_one(tmp_path: Path, kind: Containment) -> None:
    """Nothing of the first is left in it: no folder, no descriptor, no signal that would end the second."""
    containers = OwnedContainers(containment=kind)
    first, second = sh(tmp_path, "sleep 600 & exit 1"), sh(tmp_path, "pwd; sleep 600")
    await run(containers, first)
    shim = shim_of(first.folder)
    descriptors = len(os.listdir(f"/proc/{shim}/fd"))
    held = await containers.start(second)
    assert shim_of(second.folder) == shim
    await eventually(lambda: output(second).strip() == str(tmp_path))
    assert (await held.end(AT_ONCE)).survivors == ()
    await run(containers, sh(tmp_path, "exit 0"))
    assert len(os.listdir(f"/proc/{shim}/fd")) == descriptors
    containers.close()
    await eventually(lambda: not procfs.is_alive(procfs.Identity(shim, 0)) and procfs.read_process(shim) is None)


async def test_a_shim_killed_at_rest_is_no_obstacle(tmp_path: Path) -> None:
    """The next container gets another one."""
    containers = OwnedContainers(containment=Containment.SUBREAPER)
    first, second = sh(tmp_path, "exit 0"), sh(tmp_path, "exit 5")
    await run(containers, first)
    os.kill(shim_of(first.folder), signal.SIGKILL)
    assert (await run(containers, second)).exit.status == 5
    containers.close()


@pytest.mark.parametrize("script", ["exit 0", "sleep 0.5", "sleep 0.5 & exit 0"])
async def test_a_shim_that_nobody_will_dismiss_leaves_after_its_last_process(tmp_path: Path, script: str) -> None:
    """A supervisor that never comes back leaves no shim behind, and the exit is recorded."""
    helper = nursery.spawn()
    containers = OwnedContainers(helper, Containment.SUBREAPER)
    made = sh(tmp_path, script)
    held = await containers.start(made)
    shim = shim_of(made.folder)
    helper.close()
    del held
    await eventually(lambda: (found := procfs.read_process(shim)) is None or not found.alive)
    assert "exit" in recorded(made.folder)
    containers.close()
