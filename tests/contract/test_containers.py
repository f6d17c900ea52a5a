"""The contract of the port `Containers`: each of IMPLEMENTATIONS has to pass it."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from containers_under_test import AT_ONCE, KINDS, QUICK, eventually, keep_claim_only, output, run, sh, spec
from loopd.adapters.containment import records
from loopd.adapters.containment.containers import OwnedContainers
from loopd.domain.attempt import Exit
from loopd.domain.errors import BlockedError, StateError
from loopd.ports.processes import Containers, Grace

pytestmark = pytest.mark.anyio

IMPLEMENTATIONS: dict[str, Callable[[], OwnedContainers]] = {
    kind.value: lambda kind=kind: OwnedContainers(containment=kind)  # type: ignore[misc]
    for kind in KINDS
}


@pytest.fixture(params=IMPLEMENTATIONS)
def containers(request: pytest.FixtureRequest) -> Iterator[Containers]:
    """Each implementation in turn."""
    made = IMPLEMENTATIONS[request.param]()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("script", "left"),
    [
        ("exit 0", Exit(status=0)),
        ("exit 3", Exit(status=3)),
        ("exit 128", Exit(status=128)),
        ("exit 129", Exit(status=129)),
        ("kill -KILL $$", Exit(signal="SIGKILL")),
        ("kill -TERM $$", Exit(signal="SIGTERM")),
        ("kill -SEGV $$", Exit(signal="SIGSEGV")),
    ],
)
async def test_wait_tells_how_the_main_process_left(
    containers: Containers, tmp_path: Path, script: str, left: Exit
) -> None:
    """A status or a signal, never both, and how long it took."""
    made = await containers.start(sh(tmp_path, f"sleep 0.05; {script}"))
    seen = await made.wait()
    assert (seen.status, seen.signal, seen.lost) == (left.status, left.signal, False)
    assert 0.05 <= seen.duration_s < 10
    assert (await made.end(QUICK)).exit == seen


async def test_a_program_that_leaves_at_once_has_its_status(containers: Containers, tmp_path: Path) -> None:
    """No race between launch and exit."""
    for status in range(20):
        made = await containers.start(sh(tmp_path, f"exit {status}"))
        assert (await made.wait()).status == status
        await made.end(QUICK)


async def test_output_goes_to_private_files_and_is_appended(containers: Containers, tmp_path: Path) -> None:
    """Both streams are kept apart, mode 0600; what stands there already stays."""
    first = sh(tmp_path, "echo out; echo err >&2")
    (first.folder / "stdout.log").write_text("before\n")
    await run(containers, first)
    assert output(first) == "before\nout\n"
    assert (first.folder / "stderr.log").read_text() == "err\n"
    assert (first.folder / "stderr.log").stat().st_mode & 0o777 == 0o600


async def test_the_environment_is_complete_and_carries_the_marker(containers: Containers, tmp_path: Path) -> None:
    """Nothing is inherited; bytes that are no UTF-8 and newlines pass."""
    odd = os.fsdecode(b"a\xff\nb")
    made = spec(tmp_path, "/usr/bin/env", "-0", env={"ODD": odd, "EMPTY": ""})
    await run(containers, made)
    seen = dict(
        os.fsdecode(pair).split("=", 1) for pair in (made.folder / "stdout.log").read_bytes().split(b"\0") if pair
    )
    seen.pop("PWD", None)  # bubblewrap sets it
    assert seen == {"ODD": odd, "EMPTY": "", "LOOPD_MARKER": made.marker}


async def test_stdin_is_the_file_and_the_folder_is_the_cwd(containers: Containers, tmp_path: Path) -> None:
    """The program sees exactly what the spec says."""
    text, place = tmp_path / "text", tmp_path / "a place"
    text.write_text("to be read")
    place.mkdir()
    made = sh(tmp_path, "pwd; cat", stdin=text, cwd=place)
    await run(containers, made)
    assert output(made) == f"{place}\nto be read"


async def test_hang_1_a_program_that_reads_stdin_to_its_end_goes_on(containers: Containers, tmp_path: Path) -> None:
    """Without a file, stdin is empty and at its end."""
    with anyio.fail_after(5):
        made = await containers.start(sh(tmp_path, "cat >/dev/null; exit 4"))
        assert (await made.wait()).status == 4
    await made.end(QUICK)


async def test_hang_8_there_is_no_terminal_to_ask_on(containers: Containers, tmp_path: Path) -> None:
    """A program that opens /dev/tty is told no and cannot block."""
    made = sh(tmp_path, "exec 2>&1; if (: </dev/tty); then echo asked; else echo denied; fi")
    with anyio.fail_after(5):
        await run(containers, made)
    assert "denied" in output(made)
    assert "asked" not in output(made)


async def test_tree_2_grandchild_that_holds_stdout_does_not_delay_the_end(
    containers: Containers, tmp_path: Path
) -> None:
    """The exit is seen at once, the stray is ended and named, bytes written before are kept."""
    made = sh(tmp_path, "sleep 600 & until grep -q sleep /proc/$!/comm; do :; done; echo dev server started")
    with anyio.fail_after(5):
        container = await containers.start(made)
        assert (await container.wait()).status == 0
        cleared = await container.end(QUICK)
    assert output(made) == "dev server started\n"
    assert [ended.command for ended in cleared.ended] == ["sleep 600"]
    assert cleared.survivors == ()


async def test_end_goes_up_the_ladder_only_as_far_as_needed(containers: Containers, tmp_path: Path) -> None:
    """Interrupt first; terminate and kill for those who do not listen. Each signal once."""
    polite = await containers.start(sh(tmp_path, "trap 'exit 7' INT; touch p; while :; do sleep 0.01; done"))
    deaf = await containers.start(sh(tmp_path, "trap '' INT TERM; touch d; while :; do sleep 0.01; done"))
    await eventually(lambda: (tmp_path / "p").exists() and (tmp_path / "d").exists())
    cleared = await polite.end(Grace(interrupt_s=10))
    assert (cleared.exit.status, cleared.signals) == (7, ("SIGINT",))
    cleared = await deaf.end(QUICK)
    assert (cleared.exit.signal, cleared.signals) == ("SIGKILL", ("SIGINT", "SIGTERM", "SIGKILL"))


async def test_end_uses_the_first_signal_it_is_given(containers: Containers, tmp_path: Path) -> None:
    """An adapter may know better than SIGINT; SIGKILL means at once."""
    made = await containers.start(sh(tmp_path, "trap 'exit 9' TERM; touch t; while :; do sleep 0.01; done"))
    await eventually((tmp_path / "t").exists)
    cleared = await made.end(Grace(first="SIGTERM", interrupt_s=10))
    assert (cleared.exit.status, cleared.signals) == (9, ("SIGTERM",))
    made = await containers.start(sh(tmp_path, "sleep 600"))
    with anyio.fail_after(5):
        assert (await made.end(Grace(first="SIGKILL", interrupt_s=60))).signals == ("SIGKILL",)


async def test_a_stopped_program_can_answer_the_polite_signal(containers: Containers, tmp_path: Path) -> None:
    """SIGSTOP does not cost the final usage."""
    script = "trap 'exit 7' INT; touch s; kill -STOP $$; while :; do sleep 0.01; done"
    made = await containers.start(sh(tmp_path, script))
    await eventually((tmp_path / "s").exists)
    assert (await made.end(Grace(interrupt_s=10))).exit.status == 7


async def test_end_is_idempotent_also_at_the_same_time(containers: Containers, tmp_path: Path) -> None:
    """Every caller gets the same answer; signals go out once."""
    made = await containers.start(sh(tmp_path, "sleep 600"))
    seen = []

    async def end() -> None:
        seen.append(await made.end(QUICK))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(end)
    assert seen[0] == seen[1] == seen[2] == await made.end(QUICK)


async def test_cancelling_wait_leaves_everything_running(containers: Containers, tmp_path: Path) -> None:
    """Waiting is looking."""
    made = await containers.start(sh(tmp_path, "sleep 0.4; exit 5"))
    with anyio.move_on_after(0.05) as scope:
        await made.wait()
    assert scope.cancelled_caught
    assert (await made.wait()).status == 5
    await made.end(QUICK)


async def test_cancelling_end_still_empties_the_container(containers: Containers, tmp_path: Path) -> None:
    """A cancelled run must not leave an agent behind."""
    made = await containers.start(sh(tmp_path, "trap '' INT TERM; sleep 600 & wait"))
    with anyio.move_on_after(0.01):
        await made.end(QUICK)
    assert made.activity().processes == 0


async def test_activity_shows_three_signals_of_life(containers: Containers, tmp_path: Path) -> None:
    """Output, CPU of a grandchild that has come and gone, and the number of live processes."""
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    made = spec(tmp_path, "/bin/sh", "-c", f'echo hello; "$0" -S -c "{burn}"; sleep 600 & sleep 600', sys.executable)
    container = await containers.start(made)
    await eventually(lambda: container.activity().cpu_s >= 0.25)
    await eventually(lambda: container.activity().processes == 3)
    assert container.activity().output_bytes == 6
    assert 0.25 <= container.activity().cpu_s < 3
    await container.end(AT_ONCE)
    assert container.activity().processes == 0


@pytest.mark.parametrize("kind", ["missing", "nowhere", "not executable", "interpreter", "env interpreter"])
async def test_conf_6_a_program_that_cannot_start_is_said_before_anything_runs(
    containers: Containers, tmp_path: Path, kind: str
) -> None:
    """What, where and the PATH searched; and no container remains."""
    file = tmp_path / "tool"
    text, mode, words = {
        "missing": (None, 0, "program not found"),
        "nowhere": (None, 0, "no such file"),
        "not executable": ("#!/bin/sh\n", 0o644, "not executable"),
        "interpreter": ("#!/opt/none/python\n", 0o755, "interpreter /opt/none/python"),
        "env interpreter": ("#!/usr/bin/env no-such-python\n", 0o755, "interpreter no-such-python"),
    }[kind]
    if text is not None:
        file.write_text(text)
        file.chmod(mode)
    made = spec(tmp_path, "no-such-tool" if kind == "missing" else str(file), env={"PATH": "/usr/bin:/bin"})
    with pytest.raises(BlockedError, match=words) as raised:
        await containers.start(made)
    if kind == "missing":
        assert "/usr/bin:/bin" in str(raised.value)
    assert records.FILE not in os.listdir(made.folder)


async def test_a_missing_working_folder_is_said(containers: Containers, tmp_path: Path) -> None:
    """The path is in the message."""
    with pytest.raises(BlockedError, match="no/such"):
        await containers.start(sh(tmp_path, "exit 0", cwd=Path("/no/such")))


@pytest.mark.parametrize(("size", "starts"), [(131_071, True), (131_072, False)])
async def test_prom_1_the_longest_argument_starts_and_a_longer_one_is_named(
    containers: Containers, tmp_path: Path, size: int, starts: bool
) -> None:
    """131,071 bytes pass; one more is refused with its size, before anything ran."""
    made = sh(tmp_path, 'printf %s "${#1}"')
    made = spec(tmp_path, *made.argv, "sh", "x" * size)
    if starts:
        await run(containers, made)
        assert output(made) == str(size)
    else:
        with pytest.raises(BlockedError, match="argument 4 alone has 131,072 bytes"):
            await containers.start(made)
        assert records.FILE not in os.listdir(made.folder)


async def test_prom_3_arguments_and_a_huge_environment_start_or_are_refused_with_sizes(
    containers: Containers, tmp_path: Path
) -> None:
    """1.9 MB of variables arrive whole; what the kernel refuses is said with the environment's size."""
    big = {"PATH": "/usr/bin:/bin", **{f"V{n}": "x" * 100_000 for n in range(19)}}
    made = spec(tmp_path, "/bin/sh", "-c", 'printf %s "${#1}${#V18}"', "sh", "y" * 50_000, env=big)
    await run(containers, made)
    assert output(made) == "50000100000"
    with pytest.raises(BlockedError, match=r"9,\d+,\d+ of environment"):
        await containers.start(
            spec(tmp_path, "/bin/sh", "-c", "exit 0", env={f"V{n}": "x" * 100_000 for n in range(99)})
        )


async def test_adopt_of_a_folder_where_nothing_ran_is_final(containers: Containers, tmp_path: Path) -> None:
    """None, twice; and a late launch refuses to start."""
    made = sh(tmp_path, "touch ran")
    assert await containers.adopt(made.folder) is None
    assert await containers.adopt(made.folder) is None
    with pytest.raises(StateError, match="claimed"):
        await containers.start(made)
    assert not (tmp_path / "ran").exists()


async def test_one_folder_launches_once(containers: Containers, tmp_path: Path) -> None:
    """Of many starts at the same time one wins."""
    made, won = sh(tmp_path, "echo ran >> ran"), []

    async def start() -> None:
        try:
            won.append(await containers.start(made))
        except StateError:
            return

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(start)
    assert len(won) == 1
    await won[0].wait()
    await won[0].end(QUICK)
    assert (tmp_path / "ran").read_text() == "ran\n"


async def test_an_adopted_container_is_like_a_started_one(containers: Containers, tmp_path: Path) -> None:
    """Waiting, measuring and ending work on a tree that somebody else started."""
    made = sh(tmp_path, "trap 'exit 6' INT; sleep 600 & echo up; while :; do sleep 0.01; done")
    await containers.start(made)
    await eventually(lambda: output(made) == "up\n")
    adopted = await containers.adopt(made.folder)
    assert adopted is not None
    await eventually(lambda: adopted.activity().processes >= 2)
    cleared = await adopted.end(Grace(interrupt_s=10))
    assert (cleared.exit.status, cleared.signals, cleared.survivors) == (6, ("SIGINT",), ())
    again = await containers.adopt(made.folder)
    assert again is not None
    assert await again.wait() == cleared.exit
    assert (await again.end(QUICK)).exit == cleared.exit


async def test_a_container_of_another_boot_is_lost(containers: Containers, tmp_path: Path) -> None:
    """Nothing is known and nothing is killed, whoever has those pids now."""
    made = sh(tmp_path, "sleep 600")
    container = await containers.start(made)
    other = sh(tmp_path, "exit 0").folder
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    (other / records.FILE).write_text((made.folder / records.FILE).read_text().replace(boot, "another-boot"))
    adopted = await containers.adopt(other)
    assert adopted is not None
    assert (await adopted.wait()).lost
    assert (await adopted.end(AT_ONCE)).exit.lost
    assert container.activity().processes
    keep_claim_only(other)
    adopted = await containers.adopt(other)
    assert adopted is not None
    assert (await adopted.wait()).lost
    await container.end(AT_ONCE)


async def test_signals_that_were_ignored_or_blocked_reach_the_agent_again(
    containers: Containers, tmp_path: Path
) -> None:
    """Default dispositions and an empty mask, whatever loopd was started with (nohup, `&`)."""
    made = spec(tmp_path, "/bin/grep", "-E", "^Sig(Blk|Ign|Pnd)", "/proc/self/status")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        await run(containers, made)
    finally:
        signal.signal(signal.SIGHUP, before)
    masks = [int(line.split()[1], 16) for line in output(made).splitlines()]
    assert len(masks) == 3
    assert not any(mask & (1 << 31) - 1 for mask in masks)  # 32 and 33 are the C library's own


async def test_an_old_folder_never_leads_to_the_container_that_came_after(
    containers: Containers, tmp_path: Path
) -> None:
    """What was proven empty stays so: adopting and ending it again touches nothing that runs now."""
    first = sh(tmp_path, "exit 7")
    await run(containers, first)
    second = await containers.start(sh(tmp_path, "sleep 600"))
    old = await containers.adopt(first.folder)
    assert old is not None
    assert (await old.wait()).status == 7
    assert (await old.end(AT_ONCE)).ended == ()
    with anyio.move_on_after(0.2) as waited:
        await second.wait()
    assert waited.cancelled_caught
    assert (await second.end(AT_ONCE)).exit.signal == "SIGKILL"
