"""Running what a document tells its reader to type, in the order of the document.

Two forms count, everything else is only read. "Write `FILE`:" before a code block writes that file. In a block marked
`console`, a line that begins with `$ ` is a command (`> ` continues it), and the lines after it are what it prints:
each must be found in the output, in this order, with … for what differs from run to run. `[exit N]` names a status
other than 0.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"(?:Write `(?P<file>[^`\n]+)`:\n\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
_EXIT = re.compile(r"\[exit (\d+)\]")
_HERE = "\x1e"  # the shell prints it, status and folder after each command


@dataclass(frozen=True)
class File:
    """A file to write."""

    name: str
    text: str


@dataclass(frozen=True)
class Typed:
    """A command, what it must print, and its exit status."""

    command: str
    shown: tuple[str, ...]
    status: int


def steps(document: str) -> Iterator[File | Typed]:
    """Everything a reader does."""
    for block in _BLOCK.finditer(document):
        if block["file"]:
            yield File(block["file"], block["text"])
        elif block["kind"] == "console":
            yield from _typed(block["text"])


def _typed(text: str) -> Iterator[Typed]:
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        first, *lines = part.splitlines()
        more = [line[2:] for line in lines if line.startswith("> ")]
        rest = [line.strip() for line in lines if not line.startswith("> ")]
        statuses = [int(found[1]) for line in rest if (found := _EXIT.fullmatch(line))]
        shown = tuple(line for line in rest if line.strip("…") and not _EXIT.fullmatch(line))
        yield Typed("\n".join([first, *more]), shown, statuses[0] if statuses else 0)


def follow(document: str, folder: Path, env: Mapping[str, str]) -> int:
    """Do every step, beginning in `folder`; how many commands were run. Fails at the first that does not hold."""
    count = 0
    for step in steps(document):
        if isinstance(step, File):
            path = folder / step.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.text, encoding="utf-8")
            continue
        folder = _do(step, folder, env)
        count += 1
    return count


def _do(step: Typed, folder: Path, env: Mapping[str, str]) -> Path:
    """Run one command; the folder in which the shell is afterwards."""
    script = f"{step.command}\nprintf '{_HERE}%s{_HERE}%s' $? \"$PWD\""
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    output, status, place = done.stdout.rsplit(_HERE, 2)
    said = f"$ {step.command}\n{output}"
    assert int(status) == step.status, f"exit {status}, not {step.status}\n{said}"
    at = 0
    for line in step.shown:
        found = re.compile(_pattern(line)).search(output, at)
        assert found, f"not printed (here, or in this order): {line}\n{said}"
        at = found.end()
    return Path(place)


def _pattern(line: str) -> str:
    """The line, with … standing for anything within a line and blanks for any number of them."""
    words = (r"[ \t]+".join(map(re.escape, part.split())) for part in line.split("…"))
    return r"[^\n]*".join(words)
