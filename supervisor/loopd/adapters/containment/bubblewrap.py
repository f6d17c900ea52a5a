"""The command line of bubblewrap: how a sandbox, or a PID namespace alone, is written down."""

import os
import stat
from collections.abc import Iterator
from functools import cache
from glob import glob
from pathlib import Path

from loopd.adapters.containment.programs import find_program, run_program
from loopd.domain.errors import LoopdError
from loopd.ports.processes import Sandbox

_GPU = ("/dev/dri", "/dev/kfd", "/dev/dxg", "/dev/nvidia*")
_PROBE_S = 10.0
# What a root user keeps inside a sandbox: working with files and users, not with mounts, devices or the
# kernel.
_ROOT_KEEPS = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID")


def namespace_command(bwrap: str, cwd: Path) -> list[str]:
    """bubblewrap for an agent: a PID namespace and its /proc, the rest of the machine as it is."""
    return [bwrap, "--dev-bind", "/", "/", "--proc", "/proc", *_common(cwd)]


def sandbox_command(bwrap: str, sandbox: Sandbox, cwd: Path) -> list[str]:
    """bubblewrap for a verifier: what `sandbox` says and nothing more; ends in `--`, the program follows.

    Hidden paths that do not exist are left out. Targets are resolved on the host: a mount point below an
    absolute link would otherwise land outside the sandbox.
    """
    argv = [bwrap, "--bind" if sandbox.writable_root else "--ro-bind", "/", "/", "--dev", "/dev"]
    for device in sorted(path for pattern in _GPU for path in glob(pattern)):
        argv += ["--dev-bind-try", device, device]
    argv += ["--proc", "/proc"]
    for path in sandbox.hidden:
        argv += _hide(path)
    for bind in sandbox.binds:
        argv += ["--bind" if bind.writable else "--ro-bind", str(bind.source), os.path.realpath(bind.target)]
    argv += ["--unshare-ipc", *([] if sandbox.network else ["--unshare-net"]), *_capabilities()]
    return argv + _common(cwd)


def _common(cwd: Path) -> list[str]:
    # Not --die-with-parent: it ends the namespace together with the agent, before anyone can say what was
    # left behind. Not --as-pid-1: bubblewrap's own pid 1 reaps, and it makes SIGINT and SIGTERM work for the
    # agent.
    return ["--unshare-pid", "--new-session", "--chdir", str(cwd), "--"]


def _hide(path: Path) -> Iterator[str]:
    real = os.path.realpath(path)
    try:
        mode = os.stat(real).st_mode
    except OSError:
        return
    if stat.S_ISDIR(mode):
        yield from ("--perms", f"{stat.S_IMODE(mode):04o}", "--tmpfs", real)
    else:
        yield from ("--dev-bind", "/dev/null", real)


def _capabilities() -> list[str]:
    if os.geteuid() != 0:
        return []  # an ordinary user has none to lose
    return ["--cap-drop", "ALL", *(word for name in _ROOT_KEEPS for word in ("--cap-add", f"CAP_{name}"))]


async def find_bubblewrap(search_path: str | None = None) -> str | None:
    """The absolute path of a bubblewrap that can make a PID namespace here, or None. One try a PATH."""
    path = search_path or os.environ.get("PATH", os.defpath)
    known = _known()
    if path not in known:
        program = find_program("bwrap", path)
        known[path] = str(program) if program and await _works(str(program), path) else None
    return known[path]


@cache
def _known() -> dict[str, str | None]:
    return {}


async def _works(bwrap: str, path: str) -> bool:
    argv = [*namespace_command(bwrap, Path("/")), "true"]
    try:
        done = await run_program(argv, cwd=Path("/"), env={"PATH": path}, stdin=None, timeout_s=_PROBE_S)
    except LoopdError:
        return False
    return done.status == 0
