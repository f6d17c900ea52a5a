"""What a launched program inherits, what it costs the supervisor, and what a sandbox shows it."""

import fcntl
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from containers_under_test import AT_ONCE, KINDS, QUICK, eventually, output, run, sh, spec
from loopd.adapters.containment import nursery, procfs, records, shim
from loopd.adapters.containment.containers import OwnedContainers
from loopd.domain.errors import BlockedError
from loopd.ports.processes import Bind, Containment, Limits, Sandbox

pytestmark = pytest.mark.anyio

needs_bubblewrap = pytest.mark.skipif(Containment.PID_NAMESPACE not in KINDS, reason="no bubblewrap here")


@pytest.fixture(params=KINDS)
def containers(request: pytest.FixtureRequest) -> Iterator[OwnedContainers]:
    """One means after the other."""
    made = OwnedContainers(containment=request.param)
    yield made
    made.close()


async def test_res_5_three_hundred_attempts_leave_no_descriptor_open(
    containers: OwnedContainers, tmp_path: Path
) -> None:
    """With room for 40 descriptors more than are open all run; the count is flat from the fifth."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 40, hard))
    try:
        counts = []
        for _ in range(60 if containers._forced is not Containment.SUBREAPER else 300):
            assert (await run(containers, sh(tmp_path, "exit 0"))).exit.status == 0
            counts.append(len(os.listdir("/proc/self/fd")))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(set(counts[5:])) == 1


async def test_nothing_the_supervisor_holds_open_reaches_an_agent(tmp_path: Path) -> None:
    """Neither inheritable descriptors from before the helper nor locks from after it; 0, 1 and 2 only."""
    held = os.open(tmp_path / "secret", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(held, True)
    helper = nursery.fork()
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    for kind in KINDS:
        containers = OwnedContainers(helper, kind)
        made = spec(tmp_path, "/bin/ls", "/proc/self/fd")
        await run(containers, made)
        assert output(made).split() == ["0", "1", "2", "3"]  # 3 is the folder that ls reads
        sleeper = await containers.start(sh(tmp_path, "sleep 600"))
        os.close(lock)
        lock = os.open(tmp_path / "lock", os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        await sleeper.end(AT_ONCE)
    os.close(held)
    os.close(lock)
    helper.close()


async def test_the_helper_and_the_shim_hold_nothing_of_the_supervisor(tmp_path: Path) -> None:
    """Their descriptors are /dev/null and a socket; they have left the session and the folder."""
    here, there = socket.socketpair()
    here.set_inheritable(True)
    helper = nursery.fork()
    containers = OwnedContainers(helper, Containment.SUBREAPER)
    made = await containers.start(sh(tmp_path, "sleep 600"))
    shim = int(Path(f"/proc/{helper.pid}/task/{helper.pid}/children").read_text())
    main = int(Path(f"/proc/{shim}/task/{shim}/children").read_text())
    assert os.getsid(main) == os.getpgid(main) == main
    allowed = {"/dev/null", "anon_inode:[pidfd]"}
    for pid in (helper.pid, shim):
        assert os.getsid(pid) == pid
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        opened = {os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}
        others = {name for name in opened - allowed if not name.startswith("socket:")}
        assert {name for name in others if not name.startswith("pipe:")} == set()
        assert f"socket:[{os.fstat(here.fileno()).st_ino}]" not in opened
    await made.end(AT_ONCE)
    here.close()
    there.close()
    containers.close()
    await eventually(lambda: not Path(f"/proc/{shim}").exists())


def test_the_helper_is_lean() -> None:
    """What the command line imports before it forks costs little; nothing of the supervisor's other half."""
    code = "import sys; from loopd.adapters.containment import nursery; print(*sys.modules)"
    env = {"PYTHONPATH": str(Path(__file__).parents[2] / "supervisor")}
    loaded = subprocess.run([sys.executable, "-S", "-c", code], env=env, stdout=subprocess.PIPE, check=True)
    heavy = {"anyio", "asyncio", "pydantic", "dataclasses", "inspect", "subprocess", "threading", "logging"}
    assert not heavy & set(loaded.stdout.decode().split())


async def test_a_script_without_a_first_line_is_refused_with_the_mend(tmp_path: Path) -> None:
    """Neither program nor script; only bubblewrap, which asks a shell then, runs it."""
    (tmp_path / "text").write_text("echo hello\n")
    (tmp_path / "text").chmod(0o755)
    with pytest.raises(BlockedError, match="#!/bin/sh"):
        await OwnedContainers(containment=Containment.SUBREAPER).start(spec(tmp_path, str(tmp_path / "text")))


async def test_a_limit_on_memory_holds_in_every_means(containers: OwnedContainers, tmp_path: Path) -> None:
    """A program that takes more than it may fails; a smaller one does not notice."""
    take = "x = bytearray(int(__import__('sys').argv[1]) << 20)"
    for megabytes, fine in ((10, True), (400, False)):
        limits = Limits(memory_bytes=200 << 20)
        made = spec(tmp_path, sys.executable, "-S", "-c", take, str(megabytes), limits=limits)
        cleared = await run(containers, made)
        assert (cleared.exit.status == 0) is fine


async def test_no_cgroup_remains_of_a_container(tmp_path: Path) -> None:
    """Removed when it is empty, also those that the agent made below."""
    if Containment.CGROUP not in KINDS:
        pytest.skip("no cgroup to write to here")
    containers = OwnedContainers(containment=Containment.CGROUP)
    made = sh(tmp_path, "echo up; sleep 600")
    container = await containers.start(made)
    await eventually(lambda: output(made) == "up\n")
    folder = container._held.cgroup
    assert folder is not None
    (folder / "below").mkdir()
    await container.end(AT_ONCE)
    assert not folder.exists()


def seen_by(folder: Path, script: str, sandbox: Sandbox):  # type: ignore[no-untyped-def]
    """A sandboxed shell."""
    return sh(folder, script, sandbox=sandbox)


@needs_bubblewrap
async def test_a_sandbox_reads_the_disk_and_writes_only_where_it_may(
    containers: OwnedContainers, tmp_path: Path
) -> None:
    """The rest is read-only, for root as well, who cannot mount it back."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    other.mkdir()
    (other / "file").write_text("readable")
    script = (
        f"cat {other}/file; echo x >{mine}/new; echo x >{other}/new; mount -o remount,rw,bind / 2>&1;"
        f"echo x >{other}/again; ls {mine}; true"
    )
    made = seen_by(tmp_path, script, Sandbox(binds=(Bind(mine, mine, writable=True),)))
    cleared = await run(containers, made)
    assert cleared.exit.status == 0
    assert output(made).startswith("readable")
    assert output(made).endswith("new\n")
    assert os.listdir(other) == ["file"]
    assert (mine / "new").exists()


@needs_bubblewrap
async def test_a_sandbox_hides_folders_files_and_sockets_and_binds_over_them(tmp_path: Path) -> None:
    """Hidden first, then the binds in order, also to another place; what does not exist is no trouble."""
    home, tree = tmp_path / "home", tmp_path / "tree"
    (home / "keys").mkdir(parents=True)
    (home / "keys" / "secret").write_text("secret")
    (home / "work").mkdir()
    tree.mkdir()
    (tree / "source").write_text("tree")
    socket_file = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(socket_file))
        hidden = (home, socket_file, tmp_path / "none")
        made = seen_by(
            tmp_path,
            f"ls -A {home}; cat {home}/work/source; test -S {socket_file} || echo masked; touch {home}/new",
            Sandbox(binds=(Bind(tree, home / "work"),), hidden=hidden),
        )
        cleared = await run(OwnedContainers(containment=Containment.SUBREAPER), made)
    assert cleared.exit.status == 0
    assert output(made) == "work\ntreemasked\n"
    assert not (home / "new").exists()


@needs_bubblewrap
async def test_a_sandbox_has_processes_devices_and_network_of_its_own(tmp_path: Path) -> None:
    """It sees only itself, a fresh /dev, and without network only the loopback device."""
    made = seen_by(
        tmp_path,
        "ls /proc | grep -c '^[0-9]'; cat /proc/net/dev | wc -l; test -w /dev/null && echo null",
        Sandbox(network=False),
    )
    await run(OwnedContainers(), made)
    processes, devices, null = output(made).split()
    assert int(processes) < 8
    assert devices == "3"  # two lines of heading, then lo
    assert null == "null"


@needs_bubblewrap
async def test_a_sandbox_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    """bubblewrap's own words; nothing ran, nothing remains."""
    sandbox = Sandbox(binds=(Bind(tmp_path / "none", tmp_path),))
    made = seen_by(tmp_path, "touch ran", sandbox)
    with pytest.raises(BlockedError, match="Can't find source path"):
        await OwnedContainers().start(made)
    assert not (made.folder / records.FILE).exists()


@needs_bubblewrap
async def test_a_program_missing_inside_the_sandbox_is_said(tmp_path: Path) -> None:
    """It exists outside, but what is hidden is not there."""
    tool = tmp_path / "tools" / "tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    with pytest.raises(BlockedError, match="inside the sandbox"):
        await OwnedContainers().start(spec(tmp_path, str(tool), sandbox=Sandbox(hidden=(tool.parent,))))


@needs_bubblewrap
async def test_a_sandboxed_container_is_held_by_the_strongest_means(
    containers: OwnedContainers, tmp_path: Path
) -> None:
    """A cgroup where there is one, else the namespace; strays are named by their outer pid and ended."""
    made = sh(tmp_path, "sleep 600 & until grep -q sleep /proc/$!/comm; do :; done; exit 3", sandbox=Sandbox())
    container = await containers.start(made)
    assert container.containment in (Containment.CGROUP, Containment.PID_NAMESPACE)
    assert (await container.wait()).status == 3
    assert [ended.command for ended in (await container.end(QUICK)).ended] == ["sleep 600"]


async def test_output_files_named_in_the_spec_are_used_and_may_be_one(tmp_path: Path) -> None:
    """Both streams in one file, counted once."""
    file = tmp_path / "both"
    made = sh(tmp_path, "echo out; echo err >&2; sleep 600", stdout=file, stderr=file)
    container = await OwnedContainers().start(made)
    await eventually(lambda: file.exists() and file.read_text() == "out\nerr\n")
    assert container.activity().output_bytes == 8
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    await container.end(AT_ONCE)


async def test_many_starts_at_once_do_not_mix(containers: OwnedContainers, tmp_path: Path) -> None:
    """Twenty programs started together each have their own status and output."""
    specs = [sh(tmp_path, f"echo {number}; exit {number}") for number in range(20)]
    seen = {}

    async def one(number: int) -> None:
        seen[number] = (await run(containers, specs[number])).exit.status

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(one, number)
    assert seen == {number: number for number in range(20)}
    assert [output(made) for made in specs] == [f"{number}\n" for number in range(20)]


@needs_bubblewrap
def test_an_orphan_in_a_namespace_is_not_taken_for_the_agent_that_left_it(tmp_path: Path) -> None:
    """A short agent may have left before its shim looks; what it left is a stray, and named as one."""
    bwrap = ["bwrap", "--dev-bind", "/", "/", "--proc", "/proc", "--unshare-pid", "--json-status-fd", "3", "--"]
    script = f"exec 3> {tmp_path}/status; exec {' '.join(bwrap)} sh -c 'sleep 600 & exit 0'"
    subprocess.run(["sh", "-c", script], check=True, timeout=30)
    told = json.loads((tmp_path / "status").read_text().splitlines()[0])
    try:
        with subprocess.Popen(["sleep", "600"]) as monitor:
            monitor.kill()
            assert shim._executed_child(told["child-pid"], monitor.pid, 2) is None
            assert len(procfs.children_of(told["child-pid"]) or ()) == 1
    finally:
        os.kill(told["child-pid"], signal.SIGKILL)
