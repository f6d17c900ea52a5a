"""Hostile trees against every means of containment this machine offers, looked at from outside."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from containers_under_test import (
    AT_ONCE,
    KINDS,
    QUICK,
    STRONG,
    eventually,
    held_by,
    recorded,
    run,
    sh,
    spec,
    still_alive,
)
from loopd.adapters.containment import nursery
from loopd.adapters.containment.containers import OwnedContainers
from loopd.adapters.containment.procfs import read_process
from loopd.adapters.containment.records import FILE
from loopd.ports.processes import Containment, Grace, ProcessSpec

pytestmark = pytest.mark.anyio

HOSTILE = Path(__file__).parents[1] / "hostile.py"
TREES = int(os.environ.get("LOOPD_CHAOS", "20"))


@pytest.fixture(params=KINDS)
def containers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OwnedContainers]:
    """One means after the other; fails when a test leaves a process, a shim or a cgroup behind."""
    made = OwnedContainers(nursery.spawn(), request.param)
    yield made
    resting = held_by(helper_of(made))
    assert all(held_by(shim) == [] for shim in resting)
    started = [recorded(file.parent)["started"] for file in tmp_path.glob(f"*/{FILE}")]
    assert [one["cgroup"] for one in started if one["cgroup"] and Path(one["cgroup"]).exists()] == []
    made.close()
    assert all(leaves(shim) for shim in resting)


def leaves(pid: int) -> bool:
    """Whether the process leaves within a deadline; a zombie has left."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        process = read_process(pid)
        if process is None or not process.alive:
            return True
        time.sleep(0.005)
    return False


def helper_of(containers: OwnedContainers) -> int:
    """The pid of the spawning helper, of which every shim is a child."""
    assert containers._nursery is not None
    return containers._nursery.pid


def hostile(folder: Path, script: str, log: Path) -> ProcessSpec:
    """A container that runs Python code with the hostile vocabulary at hand; `LOG` and `UNTIL` are set."""
    prelude = f"import sys, time; sys.path.insert(0, {str(HOSTILE.parent)!r}); from hostile import *\n"
    setting = f"LOG, UNTIL = {str(log)!r}, time.monotonic() + LIFE_S\nnote(LOG)\n"
    return spec(folder, sys.executable, "-S", "-I", "-c", prelude + setting + script)


async def grown(log: Path, processes: int) -> None:
    """Wait until so many processes have left their identity."""
    await eventually(lambda: log.exists() and len(log.read_text().splitlines()) >= processes)


async def test_tree_1_children_left_behind_are_ended_and_counted(containers: OwnedContainers, tmp_path: Path) -> None:
    """Three tool servers after each of ten attempts: none remains, each is named."""
    for _ in range(10):
        cleared = await run(
            containers,
            sh(
                tmp_path,
                "for i in 1 2 3; do sleep 60$i & until grep -q sleep /proc/$!/comm; do :; done; done",
            ),
        )
        assert cleared.exit.status == 0
        assert sorted(ended.command for ended in cleared.ended) == ["sleep 601", "sleep 602", "sleep 603"]
        assert cleared.signals == ()


async def test_tree_6_a_chain_whose_middle_has_exited_is_ended(containers: OwnedContainers, tmp_path: Path) -> None:
    """The walk needs no live parent link, neither while the main process runs nor after."""
    deep = tmp_path / "deep.sh"
    deep.write_text("sleep 600 & until grep -q sleep /proc/$!/comm; do :; done; echo $$ > part; mv part deep\n")
    # The middle has exited when it is a zombie, or gone where something reaps it.
    exited = "p=/proc/$(cat deep)/stat; until [ ! -e $p ] || grep -q ') Z' $p; do :; done"
    chain = f"sh -c 'sh -c \"sh deep.sh &\" &'; until [ -e deep ]; do :; done; {exited}; rm deep"
    cleared = await run(containers, sh(tmp_path, chain))
    assert [ended.command for ended in cleared.ended] == ["sleep 600"]
    made = await containers.start(sh(tmp_path, f"{chain}; touch up; sleep 601"))
    await eventually((tmp_path / "up").exists)
    cleared = await made.end(AT_ONCE)
    assert "sleep 600" in [ended.command for ended in cleared.ended]


async def test_tree_11_a_wrapper_over_its_limit_goes_with_its_child_and_its_memory(
    containers: OwnedContainers, tmp_path: Path
) -> None:
    """The wrapper waits for a child in another session that holds memory; both are gone within the grace."""
    script = "held = bytearray(50 << 20); open('up', 'w').close(); import time; time.sleep(600)"
    made = await containers.start(spec(tmp_path, "/bin/sh", "-c", f'setsid -w "$0" -c "{script}"', sys.executable))
    await eventually((tmp_path / "up").exists)
    with anyio.fail_after(5):
        cleared = await made.end(QUICK)
    assert cleared.exit.signal in ("SIGINT", "SIGTERM", "SIGKILL")
    assert any("bytearray" in ended.command for ended in cleared.ended)
    assert made.activity().processes == 0


TREES_OF_ONE_KIND = {
    "deaf to polite signals": "for s in SIGNALS: signal.signal(s, signal.SIG_IGN)\nchild(plain, LOG, UNTIL)",
    "in a session of its own": "child(in_a_session_of_its_own, LOG, UNTIL)",
    "in a group of its own": "child(in_a_group_of_its_own, LOG, UNTIL)",
    "double fork and setsid": "child(daemon, LOG, UNTIL)",
    "no marker left": "child(scrubbed, LOG, UNTIL)",
    "another name and no marker": "child(renamed, LOG, UNTIL)",
    "dead middle links": "child(dead_links, LOG, UNTIL)",
    "stopped": "child(stopped, LOG, UNTIL)",
    "a burst of fifty": "child(burst, LOG, UNTIL, 50)",
    "a mover": "child(mover, LOG, UNTIL)",
    "a mover in a burst": "for _ in range(5): child(mover, LOG, UNTIL)\nburst(LOG, UNTIL, 30)",
}


@pytest.mark.parametrize("ending", ["hangs", "has left"])
@pytest.mark.parametrize("tree", TREES_OF_ONE_KIND)
async def test_no_process_of_the_tree_is_left(
    containers: OwnedContainers, tmp_path: Path, tree: str, ending: str
) -> None:
    """After the end every process that left its identity is dead, whether the main process hung or left."""
    log = tmp_path / "log"
    last = "\nlinger(UNTIL)" if ending == "hangs" else "\ntime.sleep(0.05); os._exit(3)"
    made = await containers.start(hostile(tmp_path, TREES_OF_ONE_KIND[tree] + last, log))
    await grown(log, 40 if "mover" in tree else 2)
    if ending == "has left" and "burst" not in tree:
        assert (await made.wait()).status == 3
    cleared = await made.end(AT_ONCE)
    assert still_alive(log) == set()
    assert cleared.survivors == ()
    assert cleared.ended or ending == "hangs"


@pytest.mark.parametrize("kind", STRONG)
async def test_a_cgroup_or_a_namespace_holds_even_a_mover_in_a_new_session_at_each_hop(
    tmp_path: Path, kind: Containment
) -> None:
    """Groups betray nothing here; the kernel keeps the tree together."""
    containers, log = OwnedContainers(containment=kind), tmp_path / "log"
    for _ in range(5):
        script = "for _ in range(3): child(restless_mover, LOG, UNTIL)\nlinger(UNTIL)"
        made = await containers.start(hostile(tmp_path, script, log))
        await grown(log, 60)
        assert (await made.end(AT_ONCE)).survivors == ()
        assert still_alive(log) == set()
        log.unlink()
    containers.close()


async def test_the_subreaper_never_calls_a_container_empty_that_is_not(tmp_path: Path) -> None:
    """What it cannot hold, a mover in a new session at each hop, is a survivor; nothing is claimed."""
    containers, log = OwnedContainers(containment=Containment.SUBREAPER), tmp_path / "log"
    script = "for _ in range(3): child(restless_mover, LOG, time.monotonic() + 3)\nlinger(UNTIL)"
    made = await containers.start(hostile(tmp_path, script, log))
    await grown(log, 60)
    cleared = await made.end(Grace(first="SIGKILL", sweep_s=0.3))
    assert cleared.survivors or still_alive(log) == set()
    assert (await made.end(AT_ONCE)).survivors == ()
    assert still_alive(log) == set()
    containers.close()


async def test_a_tree_whose_shim_was_killed_is_still_ended(containers: OwnedContainers, tmp_path: Path) -> None:
    """The status is lost and said so; the processes are found all the same, those without a marker too."""
    log = tmp_path / "log"
    script = "for f in (daemon, scrubbed, renamed, mover): child(f, LOG, UNTIL)\nlinger(UNTIL)"
    made = hostile(tmp_path, script, log)
    container = await containers.start(made)
    await grown(log, 40)
    started = recorded(made.folder)["started"]
    os.kill(started["shim"][0], signal.SIGKILL)
    cleared = await container.end(QUICK)
    assert cleared.exit.lost
    assert cleared.survivors == ()
    assert still_alive(log) == set()


async def test_what_was_started_elsewhere_on_its_behalf_is_ended_by_the_marker(
    containers: OwnedContainers, tmp_path: Path
) -> None:
    """A daemon outside the tree that runs jobs with the environment of whoever asked, as atd does."""
    made = sh(tmp_path, "sleep 601")
    container = await containers.start(made)
    env = {"PATH": os.environ["PATH"], "LOOPD_MARKER": made.marker}
    with subprocess.Popen(["sleep", "600"], env=env, start_new_session=True) as job:
        other = {**env, "LOOPD_MARKER": f"{made.marker}0"}
        with subprocess.Popen(["sleep", "602"], env=other, start_new_session=True) as stranger:
            await eventually(lambda: Path(f"/proc/{job.pid}/comm").read_text() == "sleep\n")
            cleared = await container.end(AT_ONCE)
            assert job.wait(5) == -signal.SIGKILL
            assert stranger.poll() is None
            stranger.kill()
    assert "sleep 600" in [ended.command for ended in cleared.ended]


async def test_a_stopped_shim_is_woken_for_the_record(containers: OwnedContainers, tmp_path: Path) -> None:
    """SIGSTOP to the parent costs no status."""
    made = sh(tmp_path, "exit 3")
    slow = sh(tmp_path, "while [ ! -e go ]; do sleep 0.01; done; exit 3")
    container = await containers.start(slow)
    started = recorded(slow.folder)["started"]
    os.kill(started["shim"][0], signal.SIGSTOP)
    (tmp_path / "go").touch()
    await anyio.sleep(0.1)
    assert (await container.end(QUICK)).exit.status == 3
    assert (await run(containers, made)).exit.status == 3


async def test_ending_one_container_leaves_the_others_alone(containers: OwnedContainers, tmp_path: Path) -> None:
    """Two trees of the same supervisor, one of them over: the other works on."""
    log = tmp_path / "log"
    other = await containers.start(sh(tmp_path, "setsid sleep 600 & sleep 600"))
    await eventually(lambda: other.activity().processes >= 2)
    before = other.activity().processes
    made = await containers.start(hostile(tmp_path, "child(mover, LOG, UNTIL)\nlinger(UNTIL)", log))
    await grown(log, 10)
    await made.end(AT_ONCE)
    assert other.activity().processes == before
    await other.end(AT_ONCE)


async def test_a_restless_program_does_not_fill_the_process_table_with_zombies(
    containers: OwnedContainers, tmp_path: Path
) -> None:
    """Orphans are reaped once many have gathered, and their CPU time is not forgotten."""
    made = await containers.start(sh(tmp_path, "for i in $(seq 700); do (true &) ; done; touch up; sleep 600"))
    await eventually((tmp_path / "up").exists, 30)
    await eventually(lambda: _zombies(helper_of(containers)) < 300, 10)
    used = made.activity().cpu_s
    await anyio.sleep(0.1)
    assert made.activity().cpu_s >= used > 0
    await made.end(AT_ONCE)


def _zombies(helper: int) -> int:
    """Dead children of the shims below `helper`."""
    stats = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rsplit(") ", 1)[1].split()
        except OSError:
            continue
        stats.append((int(name), int(fields[1]), fields[0]))
    shims = {pid for pid, parent, _ in stats if parent == helper}
    return sum(parent in shims and state == "Z" for _, parent, state in stats)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
async def test_random_hostile_trees_are_empty_after_every_attempt(tmp_path: Path, kind: Containment) -> None:
    """LOOPD_CHAOS trees (20; 200 in the full run) from consecutive seeds; a failure names its seed."""
    containers = OwnedContainers(containment=kind)
    restless = ["restless"] if kind in STRONG else []
    for seed in range(TREES):
        folder = tmp_path / str(seed)
        folder.mkdir()
        log = folder / "log"
        made = spec(folder, sys.executable, "-S", "-I", str(HOSTILE), str(seed), str(log), *restless)
        container = await containers.start(made)
        with anyio.move_on_after(0.3):
            await container.wait()
        cleared = await container.end(QUICK)
        assert cleared.survivors == (), f"seed {seed}"
        assert still_alive(log) == set(), f"seed {seed}"
        if cleared.exit.signal is None:
            assert cleared.exit.status == seed % 7, f"seed {seed}"
    containers.close()
