"""Which folders a trusted program needs besides itself, when HOME or /tmp is hidden from it."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

# variable: the usual place below HOME
_ROOTS = {
    "CARGO_HOME": ".cargo",
    "RUSTUP_HOME": ".rustup",
    "GOPATH": "go",
    "GOROOT": "",
    "JAVA_HOME": "",
    "NVM_DIR": ".nvm",
    "PYENV_ROOT": ".pyenv",
    "RBENV_ROOT": ".rbenv",
    "VOLTA_HOME": ".volta",
    "SDKMAN_DIR": ".sdkman",
    "DENO_INSTALL": ".deno",
    "BUN_INSTALL": ".bun",
    "ASDF_DATA_DIR": ".asdf",
    "MISE_DATA_DIR": ".local/share/mise",
    "UV_PYTHON_INSTALL_DIR": ".local/share/uv",
    "PIPX_HOME": ".local/share/pipx",
    "PNPM_HOME": ".local/share/pnpm",
}

# Never shown, though they lie inside a toolchain.
SECRETS = ("credentials", "credentials.toml", ".npmrc", ".netrc")

_SHEBANG = re.compile(rb"#!\s*(/[^\s]+)")


def needed_folders(
    search_path: str, hidden: Iterable[Path], env: Mapping[str, str], private: Iterable[Path] = ()
) -> tuple[Path, ...]:
    """Existing folders below a hidden one that trusted programs live in, outermost ones only, sorted.

    `env`: where the toolchains are, and HOME. `private`: folders that must not come back, nor anything in
    them.
    """
    covered, secret = tuple(hidden), tuple(private)
    home = Path(env.get("HOME", "/nonexistent"))
    found = {path for path in _toolchain_roots(env, home) if _below(path, covered)}
    named = [part for part in search_path.split(":") if part.startswith("/")]
    waiting = [Path(part) for part in (*named, *map(os.path.realpath, named))]
    seen: set[Path] = set()
    while waiting:
        folder = waiting.pop()
        if folder in seen or not _below(folder, covered) or not folder.is_dir():
            continue
        seen.add(folder)
        prefix, whole = folder, _prefix(folder, home)
        if whole and whole not in covered and not any(place.is_relative_to(whole) for place in secret):
            prefix = whole
        found.add(prefix)
        found |= {home / ".local" / "lib"} if folder == home / ".local" / "bin" else set()
        waiting.extend(_led_to(folder))
    return _outermost(path for path in found if path.is_dir() and not _within(path, secret))


def _toolchain_roots(env: Mapping[str, str], home: Path) -> Iterator[Path]:
    for name, usual in _ROOTS.items():
        place = env.get(name) or (str(home / usual) if usual else "")
        if place.startswith("/"):
            yield from (Path(part) for part in place.split(":"))


def _prefix(folder: Path, home: Path) -> Path | None:
    """Of `PREFIX/bin` the PREFIX, unless that is HOME or holds much else."""
    prefix = folder.parent
    if folder.name not in ("bin", "sbin", "scripts") or prefix in (home, home / ".local"):
        return None
    return prefix


def _led_to(folder: Path) -> Iterator[Path]:
    """Folders that links, shebangs and a venv's base interpreter in this folder lead to."""
    yield from (folder, folder.resolve())
    base = _venv_base(folder.parent / "pyvenv.cfg")
    if base:
        yield base
    for entry in os.scandir(folder):
        if entry.is_symlink():
            yield Path(os.path.realpath(entry.path)).parent
        elif interpreter := shebang(Path(entry.path)):
            yield interpreter.parent
            yield interpreter.resolve().parent


def _venv_base(config: Path) -> Path | None:
    try:
        lines = config.read_text(errors="replace").splitlines()
    except OSError:
        return None
    named = [line.partition("=")[2].strip() for line in lines if line.partition("=")[0].strip() == "home"]
    return Path(named[0]) if named else None


def shebang(path: Path) -> Path | None:
    """The interpreter that a script names by an absolute path; None for anything else."""
    try:
        with path.open("rb") as file:
            start = file.read(256)
    except OSError:
        return None
    found = _SHEBANG.match(start)
    return Path(os.fsdecode(found.group(1))) if found else None


def _below(path: Path, covered: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(folder) for folder in covered) and path not in covered


def _within(path: Path, folders: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _outermost(paths: Iterable[Path]) -> tuple[Path, ...]:
    kept: list[Path] = []
    for path in sorted(paths):
        if not any(path.is_relative_to(outer) for outer in kept):
            kept.append(path)
    return tuple(kept)
