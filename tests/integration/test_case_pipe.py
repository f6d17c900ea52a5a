"""PIPE: what agents and verifiers print, from the file to a person's terminal."""

import os
import pty
import re
import subprocess
import sys

from cases import attempts, notes, prepare
from running import Project, wait_for

# Alternate screen, bracketed paste, clipboard, title, colour, clear, bell, and 8-bit controls.
HOSTILE = b"\x1b[?1049h\x1b[?2004h\x1b]52;c;ZXZpbA==\x07\x1b]0;title\x07\x1b[31mred\x1b[2J\a\x9b31m\xc2\x9b31mend"
LIVE = re.compile(rb"1049h\x1b\[\?2004h|\x1b\]52|\x1b\]0;|\x07|\xc2\x9b")


def test_pipe_1_a_line_of_three_megabytes_is_cut_in_views_and_whole_in_the_file(project: Project) -> None:
    """No limit of a reader ends the run; what the view leaves out is counted."""
    project = prepare(project, "head -c 3000000 /dev/zero | tr '\\0' A; echo; echo done > out.txt\n")
    assert project.loopd("run", "goal.yaml").status == 0
    log = project.run_folders()[-1] / "attempts" / "0001" / "stdout.log"
    assert log.read_bytes() == b"A" * 3_000_000 + b"\n"
    view = project.loopd("logs", "last").out
    assert len(view) < 1_000_000
    assert re.search(r"[\d,]+ bytes left out", view), view[-200:]


def test_pipe_2_a_character_that_arrives_in_pieces_is_whole_in_a_view_that_follows(project: Project) -> None:
    """`logs -f` watches while an emoji arrives byte by byte: one emoji, no replacement sign."""
    pieces = "".join(f"printf '\\{byte:o}'; sleep 0.3; " for byte in "\U0001f600".encode())
    project = prepare(project, f'touch "$NOTES/up"; {pieces}echo; echo done > out.txt\n')
    loopd = project.start("run", "goal.yaml")
    wait_for(lambda: (notes(project) / "up").exists())
    follower = project.start("logs", "last", "-f")
    out, err = follower.communicate(timeout=60)
    assert follower.returncode == 0, err
    assert loopd.wait(timeout=60) == 0
    loopd.communicate()
    assert out == "\U0001f600\n"


def test_pipe_3_an_escape_before_an_event_does_not_hide_it(project: Project) -> None:
    """A title escape stands before the line that tells the cost: the cost is found."""
    agent = "{command: [sh, agent.sh], usage: {pattern: '^cost=(?P<cost>[0-9.]+)$'}}"
    project = prepare(project, "printf '\\033]0;title\\007cost=0.25\\n'; echo done > out.txt\n", agent=agent)
    assert project.loopd("run", "goal.yaml").status == 0
    assert attempts(project)[0]["usage"]["cost_usd"] == 0.25


def test_pipe_4_output_that_nobody_reads_does_not_block(project: Project) -> None:
    """4 MB on stderr and on stdout while loopd's own output is not read: the agent is done in seconds."""
    noise = "head -c 4000000 /dev/zero >&2; head -c 4000000 /dev/zero"
    project = prepare(project, f"{noise}; echo done > out.txt\n")
    loopd = project.start("run", "--json", "goal.yaml")  # its pipe is read only after its end
    assert wait_for(lambda: loopd.poll() is not None, timeout_s=60)
    loopd.communicate()
    assert loopd.returncode == 0
    assert attempts(project)[0]["exit"]["duration_s"] < 10
    assert (project.run_folders()[-1] / "attempts" / "0001" / "stderr.log").stat().st_size == 4_000_000


def test_pipe_5_no_escape_reaches_the_terminal(project: Project) -> None:
    """Agent and verifier print hostile sequences; on a real terminal none comes through, in no view of loopd's."""
    (notes(project) / "hostile").write_bytes(HOSTILE + b"\n")
    noise = f"cat {notes(project) / 'hostile'}"
    check = "import os, pathlib, sys\n"
    check += f"os.write(1, {HOSTILE!r} + b'\\n')\nsys.exit(not pathlib.Path('part2').exists())\n"
    script = f'{noise}; {noise} >&2; touch "part$N"\n'
    project = prepare(project, script, checks=["python3 check.py"], files={"check.py": check})
    screen = _on_terminal(project, "run", "goal.yaml")
    assert b"met" in screen
    for words in (["logs", "last"], ["show", "last"], ["status", "last"], ["ps"], ["diff", "last"]):
        screen += _on_terminal(project, *words)
    assert not LIVE.search(screen), LIVE.search(screen)
    folder = project.run_folders()[-1]
    assert HOSTILE in (folder / "attempts" / "0001" / "stdout.log").read_bytes()
    assert HOSTILE in (folder / "attempts" / "0001" / "stderr.log").read_bytes()
    assert HOSTILE in (folder / "checks" / "0001-check-1" / "stdout.log").read_bytes()
    told = (folder / "attempts" / "0002" / "instruction.md").read_bytes()
    assert b"\x1b" not in told


def _on_terminal(project: Project, *words: str) -> bytes:
    """Everything one command sends to a real terminal."""
    ours, theirs = pty.openpty()
    env = {**project.environment(), "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    command = [sys.executable, "-m", "loopd", *words]
    process = subprocess.Popen(command, cwd=project.root, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    while part := _read(ours):
        seen += part
    os.close(ours)
    process.wait(timeout=60)
    return seen


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # EIO: the other end is closed
        return b""
