"""Starting and adopting containers: the supervisor's half of the launch."""

import os
import signal
import socket
import time
import weakref
from pathlib import Path
from typing import Any

import anyio
from msgspec.structs import replace

from loopd.adapters.containment import bubblewrap, cgroup, nursery, procfs, records
from loopd.adapters.containment.channel import Message, frame, unframe
from loopd.adapters.containment.container import OwnedContainer
from loopd.adapters.containment.faults import explain
from loopd.adapters.containment.launched import NOBODY, parse, unreadable
from loopd.adapters.containment.procfs import Identity
from loopd.adapters.containment.programs import require_program
from loopd.adapters.containment.sweep import MARKER
from loopd.domain.digests import sha256_hex
from loopd.domain.errors import BlockedError, StateError
from loopd.ports.processes import Containment, ProcessSpec

_LAUNCH_S = 60.0  # far more than a fork and an exec take on the busiest machine
_ADOPT_S = 10.0
_READY_S = 1.0
_ELDERS_S = 20.0  # a pid that is given back is given out again much later than that


class Resting:
    """Lines to shims at rest, those of sandboxes apart; a shim leaves when its line is closed."""

    def __init__(self) -> None:
        self._lines: dict[bool, list[socket.socket]] | None = {False: [], True: []}

    def take(self, sandboxed: bool) -> socket.socket | None:
        """A line to a shim that held the same kind of container; None when there is none."""
        return self._lines[sandboxed].pop() if self._lines and self._lines[sandboxed] else None

    def put(self, sandboxed: bool, line: socket.socket) -> None:
        """Keep a line for the next container; once closed, nothing is kept."""
        if self._lines is None:
            line.close()
        else:
            self._lines[sandboxed].append(line)

    def close(self) -> None:
        """Let all shims at rest go. Idempotent."""
        lines, self._lines = self._lines, None
        for line in [line for kind in (lines or {}).values() for line in kind]:
            line.close()


class ShimLease:
    """The line to a shim while it holds a container. Given back, the shim is used again."""

    def __init__(self, channel: socket.socket, resting: Resting, sandboxed: bool) -> None:
        self._channel, self._resting, self._sandboxed = channel, resting, sandboxed
        self._close = weakref.finalize(self, channel.close)  # a container that is only left alone keeps its shim

    async def give_back(self) -> bool:
        """Wait a moment for the word of a dismissed shim that it is ready; whether it came."""
        with anyio.move_on_after(_READY_S):
            if await _receive(self._channel) is not None:
                self._close.detach()
                self._resting.put(self._sandboxed, self._channel)
                return True
        self._close()
        return False


class OwnedContainers:
    """Implements the port `Containers` on Linux.

    `nursery` is the helper forked before heavy imports; without one, it is made at the first start.
    `containment` forces a means; otherwise the strongest that works here is taken: a cgroup, a PID namespace,
    the subreaper. A spec with a `Sandbox` always runs under bubblewrap, inside a cgroup as well where there
    is one.

    Limits: memory and processes by the cgroup where its controllers can be had. Otherwise memory by
    RLIMIT_DATA, which counts what each process may write to (RLIMIT_AS would break every program that
    reserves address space), and the number of processes by the caller through `Activity`: RLIMIT_NPROC counts
    all of the user's.
    """

    def __init__(self, nursery: nursery.Nursery | None = None, containment: Containment | None = None) -> None:
        self._nursery = nursery
        self._forced = containment
        self._chosen: Containment | None = None
        self._cgroup_root: Path | None = None
        self._choosing = anyio.Lock()
        self._resting = Resting()
        self._listed: tuple[frozenset[int], float] = (frozenset(), 0.0)
        self._dismiss_resting = weakref.finalize(self, self._resting.close)

    async def choose(self) -> Containment:
        """The means for containers without a sandbox, probed once. Raises `BlockedError` for a forced one."""
        async with self._choosing:
            if self._chosen is None:
                self._chosen = await self._probe()
        return self._chosen

    async def start(self, spec: ProcessSpec) -> OwnedContainer:
        """Launch once; see the port. Not cancelled half-way: what was launched is always handed back.

        Raises `StateError` when the folder was used before, or when no answer came in a minute: `adopt` then
        tells whether it runs.
        """
        request = await self._request(spec)
        elders, until_s = self._elders()
        with anyio.CancelScope(shield=True):
            lease, reply = await self._launch(request)
            for helpless in (False, True):  # whoever should have launched was killed before a claim: nothing has run
                if reply is not None or records.read(request["folder"]) is not None:
                    break
                if helpless:  # a helper that is being killed still takes orders for a moment, and carries out none
                    self._dismiss_helper()
                lease, reply = await self._launch(request)
        if reply is None:
            return await self._take_over(spec)
        if "error" in reply:
            raise explain(spec, reply["error"])
        launched = parse(spec.folder, reply["started"], self._helper())
        return OwnedContainer(replace(launched, elders=elders, elders_until_s=until_s), lease)

    async def adopt(self, folder: Path) -> OwnedContainer | None:
        """Take over what another loopd started in `folder`; None, for good, when nothing ever ran there.

        A shim killed between claim and record may have launched: then the container has a lost exit.
        """
        known = records.read(str(folder))
        if known is None and records.take_claim(str(folder), {"by": "adopter", "boot_id": procfs.boot_id()}):
            return None
        known = known or records.read(str(folder)) or {}
        if records.CLEARED in known and records.STARTED in known:
            return OwnedContainer(parse(folder, known[records.STARTED]), is_empty=True)
        claim = known.get(records.CLAIM) or unreadable(folder)
        if claim.get("by") == "adopter":
            return None
        started = await _settled(folder, claim)
        return OwnedContainer(parse(folder, started or claim))

    def close(self) -> None:
        """End the helper; containers go on. Idempotent."""
        self._resting.close()
        self._dismiss_helper()

    def _dismiss_helper(self) -> None:
        if self._nursery is not None:
            self._nursery.close()
            self._nursery = None

    def _elders(self) -> tuple[frozenset[int], float]:
        """Pids from before this launch, and until when they are believed; listed anew every few seconds at most."""
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        if now_s > self._listed[1] - _ELDERS_S / 2:
            self._listed = (frozenset(procfs.pids()), now_s + _ELDERS_S)
        return self._listed

    def _helper(self) -> Identity | None:
        helper = procfs.read_process(self._nursery.pid) if self._nursery else None
        return helper.identity if helper else None

    async def _probe(self) -> Containment:
        root = cgroup.find_root()
        able = {
            Containment.CGROUP: root is not None,
            Containment.PID_NAMESPACE: self._forced is not Containment.CGROUP
            and (self._forced is not None or root is None)
            and await bubblewrap.find_bubblewrap() is not None,
            Containment.SUBREAPER: True,
        }
        chosen = self._forced or next(means for means in Containment if able[means])
        if not able[chosen]:
            raise BlockedError(f"containment by {chosen} is not possible on this machine")
        self._cgroup_root = root if chosen is Containment.CGROUP else None
        return chosen

    async def _request(self, spec: ProcessSpec) -> Message:
        """Everything the shim needs, as JSON."""
        chosen = await self.choose()
        wrapped = spec.sandbox is not None or chosen is Containment.PID_NAMESPACE
        if spec.sandbox is not None and chosen is Containment.SUBREAPER:
            chosen = Containment.PID_NAMESPACE
        root = self._cgroup_root
        group = cgroup.folder_for(root, _short(spec.marker)) if root else None
        files = cgroup.limit_files(root, spec.limits.memory_bytes, spec.limits.processes) if root else {}
        program, argv = await _command(spec, wrapped)
        return {
            "folder": str(spec.folder),
            "program": program,
            "argv": argv,
            "cwd": str(spec.cwd) if spec.sandbox is None else "/",
            "env": {**spec.env, MARKER: spec.marker},
            "stdin": str(spec.stdin or os.devnull),
            "own_cgroup": str(root),
            "cgroup_files": files,
            "data_bytes": None if "memory.max" in files else spec.limits.memory_bytes,
            "bubblewrap": wrapped,
            "record": {
                "format": 1,
                "containment": chosen,
                "marker": spec.marker,
                "bubblewrap": wrapped,
                "cgroup": str(group) if group else None,
                "stdout": str(spec.stdout or spec.folder / "stdout.log"),
                "stderr": str(spec.stderr or spec.folder / "stderr.log"),
            },
        }

    async def _launch(self, request: Message) -> tuple[ShimLease | None, Message | None]:
        """Send the request to an idle shim or a new one; its answer, or None when it died without one."""
        kind = request["bubblewrap"]
        ours = self._resting.take(kind) or self._new_shim()
        try:
            with anyio.fail_after(_LAUNCH_S):
                await _send(ours, frame(request))
                reply = await _receive(ours)
        except TimeoutError as error:
            ours.close()
            raise StateError(f"no answer from the shim of {request['folder']} in {_LAUNCH_S:g} s") from error
        if reply is None or "error" in reply:
            ours.close()
            return None, reply
        return ShimLease(ours, self._resting, kind), reply

    def _new_shim(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            self._hand_over(theirs)
        ours.setblocking(False)
        return ours

    def _hand_over(self, channel: socket.socket) -> None:
        if self._nursery is not None:
            try:
                self._nursery.hand_over(channel)
                return
            except OSError:
                self._nursery.close()  # the helper was killed; it holds nothing, a new one is as good
        self._nursery = nursery.spawn()
        self._nursery.hand_over(channel)

    async def _take_over(self, spec: ProcessSpec) -> OwnedContainer:
        """The shim fell silent: what it left decides whether the program ran."""
        adopted = await self.adopt(spec.folder)
        if adopted is None:
            raise BlockedError(f"{spec.argv[0]} was not started: its shim was killed before")
        return adopted


async def _command(spec: ProcessSpec, wrapped: bool) -> tuple[str, list[str]]:
    """The file to execute and its arguments; one that cannot run is refused while it can be explained."""
    if spec.sandbox is None:  # inside a sandbox other files may be there; bubblewrap tells
        program = require_program(spec.argv[0], spec.env.get("PATH", os.defpath), cwd=spec.cwd)
        if not wrapped:
            return str(program), list(spec.argv)
    found = await bubblewrap.find_bubblewrap()
    if found is None:
        raise BlockedError("bubblewrap is missing, or may not make namespaces here", "Install bubblewrap.")
    if spec.sandbox is None:
        wrapper = bubblewrap.namespace_command(found, spec.cwd)
    else:
        wrapper = bubblewrap.sandbox_command(found, spec.sandbox, spec.cwd)
    return found, [*wrapper, *spec.argv]


async def _settled(folder: Path, claim: dict[str, Any]) -> dict[str, Any] | None:
    """The `started` record of a shim that may be launching still; None when it died before it wrote one."""
    shim = records.identity_of(claim.get("shim")) or NOBODY
    with anyio.move_on_after(_ADOPT_S):
        while _launching(folder, shim, claim):
            await anyio.sleep(0.002)
    if _launching(folder, shim, claim):
        procfs.send_signal(shim, signal.SIGKILL)  # stopped or stuck: what it holds is found by its marker
    return _started(folder)


def _launching(folder: Path, shim: Identity, claim: dict[str, Any]) -> bool:
    return _started(folder) is None and claim.get("boot_id") == procfs.boot_id() and procfs.is_alive(shim)


def _started(folder: Path) -> dict[str, Any] | None:
    return (records.read(str(folder)) or {}).get(records.STARTED)


def _short(marker: str) -> str:
    return sha256_hex(marker.encode(errors="surrogateescape"))[:16]


async def _send(channel: socket.socket, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[channel.send(view, socket.MSG_NOSIGNAL) :]
        except BlockingIOError:
            await anyio.wait_writable(channel)
        except OSError:
            return  # the shim is gone; reading tells


async def _receive(supervisor: socket.socket) -> Message | None:
    data = bytearray()
    while (message := unframe(data)) is None:
        await anyio.wait_readable(supervisor)
        try:
            part = supervisor.recv(1 << 16)
        except OSError:
            return None
        if not part:
            return None
        data += part
    return message
