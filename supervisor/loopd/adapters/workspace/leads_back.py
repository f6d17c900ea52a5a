# thousands of directory entries
"""Without bubblewrap a tree lies at a path of its own; this finds what in it still points at somebody else's.

Tried: with the tree at another path, an editable install made pytest import the agent's workspace and pass.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from loopd.adapters.workspace.toolchains import shebang
from loopd.domain.errors import BlockedError

_TEXTS = (".pth", ".egg-link")
_LARGEST = 1 << 20


def refuse_what_leads_back(search_path: str, folders: Iterable[Path], owned: Iterable[Path]) -> None:
    """Raise `BlockedError` naming the first file that leads from the trusted PATH or `folders` into `owned`.

    `folders`: what was carried and what the setup made.
    """
    theirs = tuple(os.path.realpath(path) for path in owned)
    for path, target in _ways_back(search_path, folders, theirs):
        raise BlockedError(
            f"{path} leads into the workspace ({target}), where the agent can change what a verifier runs",
            "Install bubblewrap, or make it in `setup:` instead of carrying it, or take it off the PATH.",
        )


def _ways_back(search_path: str, folders: Iterable[Path], theirs: tuple[str, ...]) -> Iterator[tuple[Path, str]]:
    places = [Path(part) for part in search_path.split(":") if part.startswith("/")]
    for place in places:
        if _inside(os.path.realpath(place), theirs):
            yield place, os.path.realpath(place)
        yield from _in_programs(place, theirs)
    packages = [path for place in places for path in (place.parent / "lib").glob("python3*/site-packages")]
    for folder in packages:
        yield from _in_site_packages(folder, theirs)
    for folder in folders:
        yield from _in_folder(folder, theirs)


def _in_programs(folder: Path, theirs: tuple[str, ...]) -> Iterator[tuple[Path, str]]:
    for entry in _scan(folder):
        yield from _by_link(Path(entry.path), entry.is_symlink(), theirs)
        interpreter = shebang(Path(entry.path)) if entry.is_file() else None
        if interpreter and (inside := _leads(interpreter, theirs)):
            yield Path(entry.path), inside


def _in_site_packages(folder: Path, theirs: tuple[str, ...]) -> Iterator[tuple[Path, str]]:
    for entry in _scan(folder):
        path = Path(entry.path)
        if entry.name.endswith(_TEXTS) or entry.name.startswith("__editable__"):
            yield from _by_text(path, theirs)
        elif entry.name.endswith(".dist-info"):
            yield from _by_text(path / "direct_url.json", theirs)


def _in_folder(folder: Path, theirs: tuple[str, ...]) -> Iterator[tuple[Path, str]]:
    yield from _by_link(folder, folder.is_symlink(), theirs)
    for here, names, files in os.walk(folder):
        for name in (*names, *files):
            path = Path(here, name)
            yield from _by_link(path, path.is_symlink(), theirs)
        if os.path.basename(here) == "bin":
            yield from _in_programs(Path(here), theirs)
        if os.path.basename(here) in ("site-packages", "dist-packages"):
            yield from _in_site_packages(Path(here), theirs)


def _by_link(path: Path, is_link: bool, theirs: tuple[str, ...]) -> Iterator[tuple[Path, str]]:
    inside = _leads(path, theirs) if is_link else ""
    if inside:
        yield path, inside


def _by_text(path: Path, theirs: tuple[str, ...]) -> Iterator[tuple[Path, str]]:
    try:
        with path.open("rb") as file:
            words = file.read(_LARGEST)
    except OSError:
        return
    for place in theirs:
        if os.fsencode(place) in words:
            yield path, place


def _leads(path: Path, theirs: tuple[str, ...]) -> str:
    """The place inside `theirs` that a path reaches, or names on the way; empty when there is none."""
    target = os.path.realpath(path)
    if path.is_symlink():
        named = os.path.normpath(os.path.join(path.parent, os.readlink(path)))
        return next((place for place in (named, target) if _inside(place, theirs)), "")
    return target if _inside(target, theirs) else ""


def _inside(path: str, theirs: tuple[str, ...]) -> bool:
    return any(path == place or path.startswith(place + "/") for place in theirs)


def _scan(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        return list(os.scandir(folder))
    except OSError:
        return []
