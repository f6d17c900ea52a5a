"""The contract's setup commands, run in a tree of ours."""

import shutil
from collections.abc import Callable
from pathlib import Path

import anyio
from anyio import to_thread
from msgspec import Struct

from loopd.adapters.workspace.plan import WorkspacePlan
from loopd.ports.processes import Containers, Grace, ProcessSpec, Sandbox
from loopd.ports.workspace import SetupError

_TAIL_BYTES = 2000


class Setup(Struct, frozen=True):
    """How setup commands are run. `sandbox` makes the view for a tree; None where bubblewrap is not used."""

    plan: WorkspacePlan
    containers: Containers
    env: dict[str, str]
    seen_at: Path
    sandbox: Callable[[Path], Sandbox] | None

    async def run(self, tree: Path, logs: Path) -> float:
        """Run all commands in order; the seconds they took. Raises `SetupError` at the first that fails.

        What an interrupted run left in `logs` is ended and removed first.
        """
        await self.clear(logs)
        started = anyio.current_time()
        for number, argv in enumerate(self.plan.setup, 1):
            folder = logs / str(number)
            folder.mkdir(parents=True, exist_ok=True)
            await self._command(argv, tree, folder, number)
        return anyio.current_time() - started if self.plan.setup else 0.0

    async def clear(self, logs: Path) -> None:
        """End what a dead loopd started there, and remove its logs. Idempotent."""
        for folder in sorted(logs.glob("*")):
            left = await self.containers.adopt(folder)
            if left:
                await left.end(Grace())
        await to_thread.run_sync(lambda: shutil.rmtree(logs, ignore_errors=True))

    async def _command(self, argv: tuple[str, ...], tree: Path, folder: Path, number: int) -> None:
        marker = f"{self.plan.run}-setup-{folder.parent.parent.name}-{number}"
        cwd = self.seen_at if self.sandbox else tree
        view = self.sandbox(tree) if self.sandbox else None
        container = await self.containers.start(ProcessSpec(folder, argv, cwd, self.env, marker, sandbox=view))
        try:
            with anyio.fail_after(self.plan.setup_timeout_s):
                how = await container.wait()
        except TimeoutError:
            raise SetupError(_words(argv, f"took longer than {self.plan.setup_timeout_s:g} s", folder)) from None
        finally:
            with anyio.CancelScope(shield=True):
                await container.end(Grace())
        if how.status != 0:
            raise SetupError(_words(argv, f"failed ({how})", folder))


def _words(argv: tuple[str, ...], what: str, folder: Path) -> str:
    logs = [_tail(folder / name) for name in ("stdout.log", "stderr.log")]
    return "\n".join([f"setup: `{' '.join(argv)}` {what}; the logs are in {folder}", *filter(None, logs)])


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read().decode(errors="backslashreplace").strip()
    except OSError:
        return ""
