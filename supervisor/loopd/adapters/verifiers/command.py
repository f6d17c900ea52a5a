"""Criteria decided by a command: run contained, in a folder of its own, in a short environment, within its limits."""

import json
import os
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from loopd.adapters.atomic import write_whole
from loopd.adapters.containment.environment import verifier_environment
from loopd.adapters.containment.programs import require_program
from loopd.adapters.tail import keep_head_and_tail
from loopd.adapters.verifiers.judging import Declared, declare, judge
from loopd.domain.contract import Criterion
from loopd.domain.errors import BlockedError
from loopd.domain.repeats import combine
from loopd.domain.verdict import Status, Verdict
from loopd.ports.clock import Clock
from loopd.ports.processes import Bind, Cleared, Container, Containers, Grace, Limits, ProcessSpec, Sandbox
from loopd.ports.verifier import CheckContext

OUTPUT_CAP_BYTES = 256 * 1024 * 1024
PRIVATE = 0o700  # the mode of a folder that one check has for itself
LOOK_S = 0.5  # between two looks at the length of the output
CONTEXT_SCHEMA = "loopd.context/1"
# Unlike an agent, a check has nothing to save when it is ended.
GRACE = Grace(first="SIGTERM", interrupt_s=2.0, terminate_s=1.0)

_PLACEHOLDER = re.compile(r"\{(out|tree|baseline|sealed)\}")


class CheckTerms(Struct, frozen=True):
    """What holds for every check of a run."""

    search_path: str  # the PATH fixed at its start
    base_env: Mapping[str, str]  # loopd's own environment, from which a short list is taken
    extra_env: Mapping[str, str] = field(default_factory=dict)  # what the contract names
    limits: Limits = field(default_factory=Limits)
    output_cap_bytes: int = OUTPUT_CAP_BYTES
    grace: Grace = GRACE


class CommandVerifiers:
    """Implements the port `Verifiers` for `run:` criteria."""

    def __init__(self, containers: Containers, clock: Clock, terms: CheckTerms) -> None:
        self._containers = containers
        self._clock = clock
        self._terms = terms
        self._spare: dict[str, Path] = {}  # untouched private folders of an earlier check, by name

    def locate(self, criterion: Criterion) -> str:
        """Where the program is. A relative path lies in the tree, which is not there yet; it is taken as it is."""
        program = _command(criterion)[0]
        if "/" in program and not program.startswith("/"):
            return f"{program} (in the tree)"
        return str(require_program(program, self._terms.search_path))

    async def check(self, criterion: Criterion, context: CheckContext) -> Verdict:
        """Run it, as often as the criterion says, in `context.folder`, which is made anew.

        A check that another loopd left there is ended first. The folder then holds stdout.log and stderr.log of the
        run that decided, `out` and the records of the process. Cancelling ends the check.
        """
        await self._clear(context.folder)
        if criterion.runs == 1:
            return await self._run(criterion, context)
        folders = [context.folder / f"run-{number}" for number in range(1, criterion.runs + 1)]
        verdicts = []
        for folder in folders:
            folder.mkdir()
            verdicts.append(await self._run(criterion, replace(context, folder=folder)))
        combined = combine(verdicts, criterion.rule)
        deciding = next(n for n, verdict in enumerate(verdicts) if verdict.status is combined.status)
        for log in _logs(folders[deciding]):
            os.link(log, context.folder / log.name)
        return combined

    async def _clear(self, folder: Path) -> None:
        for left in (folder, *folder.glob("run-*")) if folder.exists() else ():
            if container := await self._containers.adopt(left):
                await container.end(self._terms.grace)
        _remove(folder)
        folder.mkdir(parents=True, mode=0o700)

    async def _run(self, criterion: Criterion, context: CheckContext) -> Verdict:
        error = Verdict(criterion.name, Status.ERROR)
        try:
            call = self._prepare(criterion, context)
            container = await self._containers.start(self._spec(call, context))
        except BlockedError as failure:
            return replace(error, reason=f"could not be started: {failure.message}")
        try:
            stopped = await self._watch(container, criterion.timeout_s, context.folder)
        finally:
            cleared = await container.end(self._terms.grace)
            self._put_away(context.folder)
        stopped = stopped or self._flooded(context.folder)
        for log in _logs(context.folder):
            keep_head_and_tail(log, self._terms.output_cap_bytes)
        if stopped:
            return _with_strays(replace(error, reason=stopped, duration_s=cleared.exit.duration_s), cleared)
        verdict = judge(criterion.name, cleared.exit, call.declared, criterion.protocol == "loopd")
        return _with_strays(verdict, cleared)

    async def _watch(self, container: Container, timeout_s: float, folder: Path) -> str:
        """Wait for the main process; why it has to be ended, or "" when it left by itself."""
        reasons: list[str] = []
        until = self._clock.elapsed() + timeout_s
        async with anyio.create_task_group() as tasks:

            async def limit() -> None:
                while not (reason := self._flooded(folder)):
                    left_s = until - self._clock.elapsed()
                    if left_s <= 0:
                        reason = f"timed out after {timeout_s:g} s"
                        break
                    await self._clock.sleep(min(LOOK_S, left_s))
                reasons.append(reason)
                tasks.cancel_scope.cancel()

            tasks.start_soon(limit)
            await container.wait()
            reasons.clear()
            tasks.cancel_scope.cancel()
        return reasons[0] if reasons else ""

    def _flooded(self, folder: Path) -> str:
        cap = self._terms.output_cap_bytes
        return f"too much output: more than {cap:,} bytes" if sum(map(_size, _logs(folder))) > cap else ""

    def _prepare(self, criterion: Criterion, context: CheckContext) -> "_Call":
        wanted = {"home", *(("out", "tmp") if context.tree.sandbox else ())}
        if criterion.protocol == "loopd" or "{out}" in " ".join((*_command(criterion), _report_file(criterion))):
            wanted.add("out")
        for name in wanted:
            self._make(context.folder / name)
        places = _places(context)
        argv = tuple(_filled(word, places) for word in _command(criterion))
        if criterion.protocol == "loopd":
            report = declare(context.folder / "out" / "report.json", "loopd", required=False)
            return _Call(argv, {"LOOPD_CONTEXT": str(_write_context(context))}, report)
        if criterion.report is None:
            return _Call(argv, {}, None)
        if criterion.report.format not in ("junit", "loopd"):
            raise BlockedError(f"{criterion.report.format} reports are not available yet", "Use junit or loopd json.")
        path = _on_disk(_filled(criterion.report.file, places), context)
        return _Call(argv, {}, declare(path, criterion.report.format))

    def _make(self, folder: Path) -> None:
        """A new folder, or an untouched one of an earlier check: making one costs more than all the rest here."""
        try:
            self._spare.pop(folder.name).rename(folder)
        except (KeyError, OSError):
            folder.mkdir(mode=PRIVATE)

    def _put_away(self, folder: Path) -> None:
        for private in (folder / "home", folder / "tmp"):
            if _untouched(private):
                self._spare[private.name] = private
            else:
                _remove(private)

    def _spec(self, call: "_Call", context: CheckContext) -> ProcessSpec:
        folder, terms = context.folder, self._terms
        sandbox = _sandbox(context)
        tmp = Path("/tmp") if sandbox else folder / "home"  # a private one: see _sandbox
        env = verifier_environment(terms.base_env, folder / "home", tmp, terms.search_path)
        return ProcessSpec(
            folder=folder,
            argv=call.argv,
            cwd=context.tree.seen_at,
            env={**env, **terms.extra_env, **call.env},
            # A check that is repeated after a crash must not meet what the dead one left under its marker.
            marker=f"{context.marker}/{os.urandom(4).hex()}",
            sandbox=sandbox,
            limits=terms.limits,
        )


class _Call(Struct, frozen=True):
    """A criterion with everything filled in."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    declared: Declared | None


def _command(criterion: Criterion) -> Sequence[str]:
    if not criterion.run:
        raise BlockedError(f"{criterion.name}: the verifier {criterion.use} is not available", "Use run: COMMAND.")
    return criterion.run


def _report_file(criterion: Criterion) -> str:
    return criterion.report.file if criterion.report else ""


def _places(context: CheckContext) -> dict[str, str]:
    places = {"out": str(context.folder / "out"), "tree": str(context.tree.seen_at)}
    if context.baseline is not None:
        places["baseline"] = str(context.baseline.path)
    if context.sealed is not None:
        places["sealed"] = str(context.sealed)
    return places


def _filled(word: str, places: Mapping[str, str]) -> str:
    def place(found: re.Match[str]) -> str:
        if found[1] not in places:
            raise BlockedError(f"{found[0]} stands in the command, but there is none")
        return places[found[1]]

    return _PLACEHOLDER.sub(place, word)


def _on_disk(report: str, context: CheckContext) -> Path:
    # The check sees the tree at `seen_at`; loopd finds the same file below `path`.
    path = context.tree.seen_at / report
    if path.is_relative_to(context.tree.seen_at):
        return context.tree.path / path.relative_to(context.tree.seen_at)
    return path


def _write_context(context: CheckContext) -> Path:
    told = {
        "schema": CONTEXT_SCHEMA,
        "tree": str(context.tree.seen_at),
        "baseline_tree": str(context.baseline.path) if context.baseline else None,
        "baseline_metrics": dict(context.baseline_metrics),
        "attempt": context.attempt,
        "with": dict(context.parameters),
        "out": str(context.folder / "out"),
    }
    path = context.folder / "context.json"
    write_whole(path, json.dumps(told, allow_nan=False).encode(), durable=False)
    return path


def _sandbox(context: CheckContext) -> Sandbox | None:
    """The tree's view plus a private /tmp before it (the tree may lie below) and our folders after it."""
    view, folder = context.tree.sandbox, context.folder
    if view is None:
        return None
    ours = [Bind(folder / name, folder / name, writable=True) for name in ("out", "home")]
    shown = [context.baseline.path if context.baseline else None, context.sealed, folder / "context.json"]
    ours += [Bind(path, path) for path in shown if path is not None and path.exists()]
    tmp = Bind(folder / "tmp", Path("/tmp"), writable=True)
    return replace(view, binds=(tmp, *view.binds, *ours))


def _with_strays(verdict: Verdict, cleared: Cleared) -> Verdict:
    if cleared.survivors:
        commands = ", ".join(ended.command for ended in cleared.survivors[:3])
        return replace(verdict, status=Status.ERROR, reason=f"its processes could not be ended: {commands}")
    if cleared.ended:
        return replace(verdict, flags=(*verdict.flags, f"left {len(cleared.ended)} processes running"))
    return verdict


def _untouched(folder: Path) -> bool:
    """Whether nothing was put into a folder, and nothing about it was changed."""
    try:
        return (
            stat.S_IMODE(os.lstat(folder).st_mode) == PRIVATE and not any(folder.iterdir()) and not os.listxattr(folder)
        )
    except OSError:
        return False


def _logs(folder: Path) -> list[Path]:
    return [log for log in (folder / "stdout.log", folder / "stderr.log") if log.exists()]


def _size(log: Path) -> int:
    return log.stat().st_size


def _remove(folder: Path) -> None:
    """Remove a folder that foreign code filled: folders without write permission (module caches) are opened first."""
    for inner, folders, _ in os.walk(folder):
        for name in folders:
            if not (Path(inner) / name).is_symlink():
                with suppress(OSError):
                    (Path(inner) / name).chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
