"""Programs: where they are, why they cannot run, and loopd's own short trusted ones (git)."""

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from msgspec import Struct

from loopd.domain.errors import BlockedError, StateError

_DRAIN_S = 1.0  # for a grandchild that still holds a pipe after the program has left
_KILL_S = 5.0
_INTERPRETER_DEPTH = 4  # the kernel's own bound on scripts that interpret scripts


class Completed(Struct, frozen=True):
    """How a program ended; `status` is negative for a signal."""

    status: int
    stdout: bytes
    stderr: bytes


_FOUND: dict[tuple[str, str, Path | None], tuple[Path, tuple[int, ...]]] = {}


def _signature(path: Path) -> tuple[int, ...]:
    try:
        stat = os.stat(path)
    except OSError:
        return ()
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_mode


def find_program(name: str, search_path: str) -> Path | None:
    """The file that would run for `name`, its interpreter checked too; None when there is none that can run.

    A name with a slash is taken as a path, relative to the working directory. Nothing but `search_path` is
    searched.
    """
    return next((path for path in _candidates(name, search_path, Path()) if not _fault(path, search_path)), None)


def require_program(name: str, search_path: str, *, cwd: Path | None = None) -> Path:
    """Like `find_program`, but raises `BlockedError` that says what is wrong and which PATH was searched.

    What was found once is found again while the file stays the same: the same agent and checks run all night.
    """
    asked, faults = (name, search_path, cwd), []
    found = _FOUND.get(asked)
    if found and _signature(found[0]) == found[1]:
        return found[0]
    for path in _candidates(name, search_path, cwd or Path()):
        fault = _fault(path, search_path)
        if not fault:
            _FOUND[asked] = (path, _signature(path))
            return path
        if path.exists():
            faults.append(fault)
    if faults:
        raise BlockedError(faults[0], f"Searched PATH: {search_path}")
    if "/" in name:
        raise BlockedError(f"{name}: no such file", f"Looked from {(cwd or Path()).absolute()}.")
    raise BlockedError(
        f"{name}: program not found",
        f"Searched PATH: {search_path}\nInstall it, or start loopd with a PATH that has it.",
    )


async def run_program(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: bytes | None = None, timeout_s: float
) -> Completed:
    """Run one of loopd's own short tools to its end, in the C locale; `env` is complete otherwise.

    Not for foreign commands: there is no container. The program and its group are killed on timeout, which
    raises `StateError`, and on cancellation. Raises `BlockedError` when it cannot be started.
    """
    try:
        process = await anyio.open_process(
            list(argv),
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            cwd=cwd,
            env={**env, "LC_ALL": "C"},
            start_new_session=True,
        )
    except OSError as error:
        raise BlockedError(f"{argv[0]} cannot be started: {error.strerror or error}") from error
    output, errors = bytearray(), bytearray()
    try:
        with anyio.fail_after(timeout_s):
            await _converse(process, stdin, output, errors)
    except TimeoutError as error:
        raise StateError(f"`{shlex.join(argv)}` did not finish in {timeout_s:g} s and was ended") from error
    finally:
        await _put_away(process)
    assert process.returncode is not None  # _put_away has waited for it
    return Completed(process.returncode, bytes(output), bytes(errors))


async def _converse(process: Process, stdin: bytes | None, output: bytearray, errors: bytearray) -> None:
    async with anyio.create_task_group() as tasks:
        if process.stdin is not None:
            tasks.start_soon(_feed, process.stdin, stdin or b"")
        for stream, sink in ((process.stdout, output), (process.stderr, errors)):
            assert stream is not None  # both are pipes
            tasks.start_soon(_collect, stream, sink)
        await process.wait()
        tasks.cancel_scope.deadline = anyio.current_time() + _DRAIN_S


async def _feed(stream: ByteSendStream, data: bytes) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # it need not read what it is given
        await stream.send(data)
    with suppress(anyio.BrokenResourceError):
        await stream.aclose()


async def _collect(stream: ByteReceiveStream, sink: bytearray) -> None:
    async for chunk in stream:
        sink += chunk


async def _put_away(process: Process) -> None:
    with anyio.CancelScope(shield=True), anyio.move_on_after(_KILL_S):
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await process.aclose()


def _candidates(name: str, search_path: str, cwd: Path) -> Iterator[Path]:
    if "/" in name:
        yield cwd / name
        return
    for folder in search_path.split(os.pathsep):
        if os.path.isabs(folder):  # an empty or relative entry would mean the agent's own tree
            yield Path(folder) / name


def _fault(path: Path, search_path: str, depth: int = 0) -> str:
    """Why this file cannot run; empty when it can."""
    if not path.exists():
        return f"{path}: no such file"
    if path.is_dir():
        return f"{path}: is a directory"
    if not os.access(path, os.X_OK):
        return f"{path}: not executable (chmod +x)"
    interpreter = _interpreter(path)
    if interpreter is None or depth == _INTERPRETER_DEPTH:
        return ""
    missing = f"{path}: its interpreter {interpreter} is not there"
    found = next((p for p in _candidates(interpreter, search_path, Path()) if p.exists()), None)
    return (f"{missing}: {deeper}" if (deeper := _fault(found, search_path, depth + 1)) else "") if found else missing


def _interpreter(path: Path) -> str | None:
    """What the first line asks for, seen through `/usr/bin/env`; None for a program of its own."""
    try:
        with path.open("rb") as file:
            head = file.read(256)
    except OSError:
        return None
    if not head.startswith(b"#!"):
        return None
    words = head[2:].split(b"\n")[0].decode(errors="surrogateescape").split()
    if words and os.path.basename(words[0]) == "env" and os.path.exists(words[0]):
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return words[0] if words else None
