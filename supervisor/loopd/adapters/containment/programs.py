"""Short helper programs (git, cp): started, fed, waited for and reaped in one call."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import to_thread

from loopd.domain.errors import BlockedError


@dataclass(frozen=True, slots=True)
class Completed:
    """How a helper program left. `status` is negative for a signal."""

    status: int
    stdout: bytes
    stderr: bytes


async def run_program(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes | None = None,
    timeout_s: float = 60.0,
) -> Completed:
    """Run to the end and reap; cancelling kills it. `env` is complete.

    Raises `BlockedError` when it cannot be started, `TimeoutError` when it takes longer than `timeout_s`.
    """
    process = _started(argv, cwd, env)
    try:
        with anyio.fail_after(timeout_s):
            out, err = await to_thread.run_sync(process.communicate, stdin, abandon_on_cancel=True)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return Completed(process.returncode, out, err)


def _started(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as problem:
        raise BlockedError(f"{os.fspath(argv[0])} cannot be started: {problem.strerror}") from problem
