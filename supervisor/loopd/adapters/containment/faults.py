"""Why a container could not be started, in words a person can act on."""

import errno
import os
from typing import Any

from loopd.adapters.containment.programs import require_program
from loopd.domain.errors import BlockedError, LoopdError, StateError
from loopd.ports.processes import ProcessSpec

_LONGEST_STRING = 131_071  # bytes of one argument or one variable that Linux accepts (MAX_ARG_STRLEN less the NUL)
_TAIL = 2000


def explain(spec: ProcessSpec, fault: dict[str, Any]) -> LoopdError:
    """Turn what the shim reported into an error that says what, where and what to do."""
    stage, number = str(fault["stage"]), fault.get("errno")
    reason = os.strerror(number) if number else str(fault.get("detail", ""))
    match stage:
        case "claim":
            return StateError(f"{spec.folder} has been claimed already: each container needs a folder of its own")
        case "exec":
            return _cannot_execute(spec, number, reason)
        case "sandbox":
            return _sandbox_failed(spec)
        case "cwd":
            return BlockedError(f"the working directory {spec.cwd} cannot be entered: {reason}")
        case "stdin" | "stdout" | "stderr":
            path = getattr(spec, stage) or spec.folder
            return BlockedError(f"{stage} ({path}) cannot be opened: {reason}")
        case _:
            return BlockedError(f"a container cannot be made ({stage}): {reason}")


def _too_long(spec: ProcessSpec) -> BlockedError:
    """Name the sizes that together exceed what the kernel takes."""
    arguments, variables = _sizes(spec)
    longest, where = max(
        [(len(os.fsencode(word)), f"argument {index}") for index, word in enumerate(spec.argv)]
        + [(len(os.fsencode(f"{key}={value}")), f"variable {key}") for key, value in spec.env.items()]
    )
    message = f"{spec.argv[0]} cannot be started: {arguments:,} bytes of arguments and {variables:,} of environment"
    if longest > _LONGEST_STRING:
        return BlockedError(
            f"{message}; {where} alone has {longest:,} bytes, {_LONGEST_STRING:,} are possible",
            "Hand a long instruction over by stdin or by a file.",
        )
    return BlockedError(
        f"{message} are more than this machine accepts at once",
        "Start loopd with a smaller environment, or hand the instruction over by stdin or by a file.",
    )


def _sizes(spec: ProcessSpec) -> tuple[int, int]:
    arguments = sum(len(os.fsencode(word)) + 1 for word in spec.argv)
    variables = sum(len(os.fsencode(key)) + len(os.fsencode(value)) + 2 for key, value in spec.env.items())
    return arguments, variables


def _cannot_execute(spec: ProcessSpec, number: int | None, reason: str) -> LoopdError:
    if number == errno.E2BIG:
        return _too_long(spec)
    if number == errno.ENOEXEC:
        return BlockedError(
            f"{spec.argv[0]} cannot be started: it is neither a program for this machine nor a script",
            "A script needs a first line such as #!/bin/sh.",
        )
    try:
        require_program(spec.argv[0], spec.env.get("PATH", os.defpath), cwd=spec.cwd)
    except BlockedError as error:
        return error
    return BlockedError(f"{spec.argv[0]} cannot be started: {reason}")


def _sandbox_failed(spec: ProcessSpec) -> BlockedError:
    try:
        with open(spec.stderr or spec.folder / "stderr.log", "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        lines = []
    words = next((line for line in reversed(lines) if line.startswith("bwrap: ")), "bubblewrap failed")
    if "execvp" not in words:
        return BlockedError(f"the sandbox for {spec.argv[0]} cannot be made: {words}")
    try:
        require_program(spec.argv[0], spec.env.get("PATH", os.defpath), cwd=spec.cwd)
    except BlockedError as error:
        return error
    return BlockedError(
        f"{spec.argv[0]} cannot be started inside the sandbox: {words}",
        "It, or the interpreter its first line names, is not visible there.",
    )
