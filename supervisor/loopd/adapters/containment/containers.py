"""Starting and adopting containers: the supervisor's half of the launch."""

import hashlib
import json
import os
import socket
from pathlib import Path
from typing import Any

import anyio

from loopd.adapters.containment import bubblewrap, cgroup, nursery, procfs, records
from loopd.adapters.containment.container import OwnedContainer
from loopd.adapters.containment.faults import explain
from loopd.adapters.containment.launched import parse, vanished
from loopd.adapters.containment.procfs import Identity
from loopd.adapters.containment.programs import require_program
from loopd.adapters.containment.shim import LENGTH, frame
from loopd.adapters.containment.sweep import MARKER
from loopd.domain.errors import BlockedError, StateError
from loopd.ports.processes import Containment, ProcessSpec

_LAUNCH_S = 60.0  # far more than a fork and an exec take on the busiest machine
_ADOPT_S = 10.0


class OwnedContainers:
    """Implements the port `Containers` on Linux.

    `nursery` is the helper forked before heavy imports; without one, it is made at the first start.
    `containment` forces a means; otherwise the strongest that works here is taken: a cgroup, a PID namespace,
    the subreaper. A spec with a `Sandbox` always runs under bubblewrap, inside a cgroup as well where there
    is one.
    """

    def __init__(self, nursery: nursery.Nursery | None = None, containment: Containment | None = None) -> None:
        self._nursery = nursery
        self._forced = containment
        self._chosen: Containment | None = None
        self._cgroup_root: Path | None = None
        self._choosing = anyio.Lock()

    async def choose(self) -> Containment:
        """The means used for a container without a sandbox. Probed once; raises `BlockedError` when a forced
        one fails.
        """
        async with self._choosing:
            if self._chosen is None:
                self._chosen = await self._probe()
        return self._chosen

    async def start(self, spec: ProcessSpec) -> OwnedContainer:
        """Launch once; see the port. Not cancelled half-way: what was launched is always handed back."""
        if spec.sandbox is None:  # in a sandbox other files may be there; bubblewrap tells
            require_program(spec.argv[0], spec.env.get("PATH", os.defpath), cwd=spec.cwd)
        request = await self._request(spec)
        reply = None
        with anyio.CancelScope(shield=True):
            reply = await self._launch(request)
        if reply is None:
            return await self._take_over(spec)
        if "error" in reply:
            raise explain(spec, reply["error"])
        return OwnedContainer(parse(spec.folder, reply["started"], self._helper()))

    async def adopt(self, folder: Path) -> OwnedContainer | None:
        """Take over what another loopd started in `folder`; None, for good, when nothing ever ran there."""
        if records.take_claim(str(folder), {"by": "adopter", "boot_id": procfs.boot_id()}):
            return None
        claim = records.read_record(str(folder), records.CLAIM) or {}
        if claim.get("by") == "adopter":
            return None
        started = await _settled(folder, claim)
        if started is not None:
            return OwnedContainer(parse(folder, started, self._helper()))
        if claim.get("boot_id") != procfs.boot_id():
            return OwnedContainer(vanished(folder, claim))
        if claim.get("cgroup"):
            await cgroup.remove(Path(claim["cgroup"]))
        return None

    def close(self) -> None:
        """End the helper; containers go on. Idempotent."""
        if self._nursery is not None:
            self._nursery.close()
            self._nursery = None

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

    async def _request(self, spec: ProcessSpec) -> dict[str, Any]:
        """Everything the shim needs, as JSON."""
        chosen = await self.choose()
        wrapped = spec.sandbox is not None or chosen is Containment.PID_NAMESPACE
        if spec.sandbox is not None and chosen is Containment.SUBREAPER:
            chosen = Containment.PID_NAMESPACE
        root = self._cgroup_root
        group = cgroup.folder_for(root, _short(spec.marker)) if root else None
        files = cgroup.limit_files(root, spec.limits.memory_bytes, spec.limits.processes) if root else {}
        return {
            "folder": str(spec.folder),
            "argv": [*(await _wrapper(spec) if wrapped else ()), *spec.argv],
            "cwd": str(spec.cwd) if spec.sandbox is None else "/",
            "env": {**spec.env, MARKER: spec.marker},
            "stdin": str(spec.stdin or os.devnull),
            "cgroup": str(group) if group else None,
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

    async def _launch(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Send the request to a new shim; its answer, or None when it died without one."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                self._hand_over(theirs)
            ours.setblocking(False)
            try:
                with anyio.fail_after(_LAUNCH_S):
                    await _send(ours, frame(request))
                    return await _receive(ours)
            except TimeoutError as error:
                raise StateError(f"no answer from the shim of {request['folder']} in {_LAUNCH_S:g} s") from error

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


async def _wrapper(spec: ProcessSpec) -> list[str]:
    found = await bubblewrap.find_bubblewrap()
    if found is None:
        raise BlockedError("bubblewrap is not installed, or may not make namespaces here", "Install bubblewrap.")
    if spec.sandbox is None:
        return bubblewrap.namespace_command(found, spec.cwd)
    return bubblewrap.sandbox_command(found, spec.sandbox, spec.cwd)


async def _settled(folder: Path, claim: dict[str, Any]) -> dict[str, Any] | None:
    """The `started` record once it will not change any more; None when the shim died before it let anything
    run.
    """
    shim = records.identity_of([claim.get("pid", 0), claim.get("start", 0)])
    assert shim is not None
    with anyio.move_on_after(_ADOPT_S):
        while _launching(folder, shim, claim):
            await anyio.sleep(0.002)
    if _launching(folder, shim, claim):
        procfs.send_signal(shim, 9)  # stopped or stuck; the end of its `go` pipe stops what it forked
    return records.read_record(str(folder), records.STARTED)


def _launching(folder: Path, shim: Identity, claim: dict[str, Any]) -> bool:
    if claim.get("boot_id") != procfs.boot_id() or not procfs.is_alive(shim):
        return False
    started = records.read_record(str(folder), records.STARTED)
    return started is None or (started["bubblewrap"] and "agent" not in started)


def _short(marker: str) -> str:
    return hashlib.sha256(marker.encode(errors="surrogateescape")).hexdigest()[:16]


async def _send(channel: socket.socket, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[channel.send(view, socket.MSG_NOSIGNAL) :]
        except BlockingIOError:
            await anyio.wait_writable(channel)
        except OSError:
            return  # the shim is gone; reading tells


async def _receive(channel: socket.socket) -> dict[str, Any] | None:
    data = bytearray()
    while True:
        await anyio.wait_readable(channel)
        try:
            part = channel.recv(1 << 16)
        except OSError:
            part = b""
        if not part:
            return None
        data += part
        if len(data) >= LENGTH.size and len(data) == LENGTH.size + LENGTH.unpack_from(data)[0]:
            return dict(json.loads(data[LENGTH.size :]))
