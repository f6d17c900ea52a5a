"""A small implementation of the containers port for tests of trees: real processes, real bubblewrap."""

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from loopd.domain.attempt import Exit
from loopd.domain.errors import BlockedError
from loopd.ports.processes import Activity, Cleared, Container, Containment, Grace, ProcessSpec, Sandbox


def bwrap_words(view: Sandbox, cwd: Path) -> list[str]:
    """The command line that makes this view."""
    words = ["bwrap", "--die-with-parent", "--unshare-pid", "--new-session"]
    words += ["--bind" if view.writable_root else "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for path in view.hidden:
        words += ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", "/dev/null", str(path)]
    for bind in view.binds:
        words += ["--bind" if bind.writable else "--ro-bind", str(bind.source), str(bind.target)]
    words += [] if view.network else ["--unshare-net"]
    return [*words, "--chdir", str(cwd), "--"]


@dataclass
class PlainContainer:
    """One process group."""

    process: "subprocess.Popen[bytes]"

    @property
    def containment(self) -> Containment:
        return Containment.SUBREAPER

    async def wait(self) -> Exit:
        status = await to_thread.run_sync(self.process.wait, abandon_on_cancel=True)
        return Exit(status=status) if status >= 0 else Exit(signal=signal.Signals(-status).name)

    def activity(self) -> Activity:
        return Activity(0, 0.0, int(self.process.poll() is None))

    async def end(self, grace: Grace) -> Cleared:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        return Cleared(await self.wait())


class PlainContainers:
    """Starts what it is told to start."""

    def __init__(self) -> None:
        self.started: list[ProcessSpec] = []

    async def start(self, spec: ProcessSpec) -> Container:
        self.started.append(spec)
        argv = [*bwrap_words(spec.sandbox, spec.cwd), *spec.argv] if spec.sandbox else list(spec.argv)
        out, err = (spec.folder / name for name in ("stdout.log", "stderr.log"))
        with out.open("ab") as stdout, err.open("ab") as stderr:
            try:
                process = subprocess.Popen(
                    argv,
                    cwd="/" if spec.sandbox else spec.cwd,
                    env=dict(spec.env),
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                )
            except OSError as problem:
                raise BlockedError(f"{argv[0]} cannot be started: {problem}") from problem
        return PlainContainer(process)

    async def adopt(self, folder: Path) -> Container | None:
        return None
