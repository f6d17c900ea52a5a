"""What verifiers and setup see: our tree at the workspace's path, nothing of ours or of the host."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from loopd.adapters.workspace.plan import WorkspacePlan
from loopd.adapters.workspace.toolchains import SECRETS, needed_folders
from loopd.ports.processes import Bind, Sandbox

# A network namespace does not stop these.
_SOCKETS = (
    *(
        "/run/docker.sock",
        "/run/podman",
        "/run/containerd",
        "/run/crio",
        "/run/dbus",
        "/run/user",
        "/run/libvirt",
    ),
    *("/run/snapd.socket", "/run/snapd-snap.socket", "/run/systemd/private"),
)

# Bundlers write here, inside what is bound read-only.
WRITABLE_IN_NODE_MODULES = (".cache", ".vite", ".vite-temp", ".vitest")


def sandbox(
    plan: WorkspacePlan,
    tree: Path,
    seen_at: Iterable[Path],
    *,
    read_only: Iterable[str] = (),
    network: bool,
    host: Mapping[str, str],
) -> Sandbox:
    """A view for programs that work on `tree`. `host`: loopd's own environment, for HOME and toolchains."""
    host = {**host, "HOME": os.path.realpath(host.get("HOME") or "/nonexistent")}
    hidden = _hidden(plan, host)
    private = (plan.root, plan.state, *plan.hide)
    binds = [Bind(path, path) for path in needed_folders(plan.search_path, hidden, host, private)]
    binds += [Bind(Path("/dev/null"), path) for bind in list(binds) for path in _secrets(bind.source)]
    baseline = plan.state / "baseline"  # for verifiers that compare; whole only between two checks
    binds += [Bind(path, path) for path in (*plan.mounts, baseline) if path.exists() and path != tree]
    for place in dict.fromkeys(seen_at):
        binds.append(Bind(tree, place, writable=True))
        binds += _read_only(tree, place, read_only)
    return Sandbox(tuple(binds), hidden, network=network)


def _hidden(plan: WorkspacePlan, host: Mapping[str, str]) -> tuple[Path, ...]:
    """Folders and sockets, outer ones first: one inside another must be made after it."""
    home = Path(host["HOME"])
    places = [Path("/tmp"), Path("/var/tmp"), home, plan.state, *plan.hide, *map(Path, _SOCKETS)]
    agent = host.get("SSH_AUTH_SOCK", "")
    places += [Path(agent)] if agent.startswith("/") else []
    found = {Path(os.path.realpath(place)) for place in places if place.exists()} - {Path("/")}
    return tuple(sorted(found, key=lambda path: (len(path.parts), path)))


def _secrets(folder: Path) -> list[Path]:
    return [folder / name for name in SECRETS if (folder / name).is_file()]


def _read_only(tree: Path, place: Path, made: Iterable[str]) -> list[Bind]:
    binds = []
    for path in made:
        if os.path.realpath(place / path) != str(place / path):
            continue  # the agent made a link of it: a mount would land where that link leads
        binds.append(Bind(tree / path, place / path))
        if path.rpartition("/")[2] == "node_modules":
            caches = [f"{path}/{name}" for name in WRITABLE_IN_NODE_MODULES]
            binds += [Bind(tree / cache, place / cache, writable=True) for cache in caches]
    return binds
