"""Real projects as input: fetched when the tests run, checked by hash, unpacked into a git repository.

`packages.toml` says what they are. Archives are kept in `$LOOPD_TEST_CACHE`, else in `.cache/packages` of the
checkout, so they are fetched once. A missing toolchain skips by name, and fails with `LOOPD_NO_SKIP=1`;
a failed fetch always fails.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

HERE = Path(__file__).resolve().parent
FETCH_TIMEOUT_S = 120
COMMAND_TIMEOUT_S = 180


@dataclass(frozen=True, slots=True)
class Archive:
    """One pinned file of a registry."""

    version: str
    file: str
    sha256: str
    patch: str = ""  # inside a Debian archive: the patch that makes the fixed tree out of the old one


@dataclass(frozen=True, slots=True)
class Replacement:
    """A text that occurs exactly once in a file, and what takes its place."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Package:
    """One entry of `packages.toml`, where the fields are explained."""

    key: str
    source: str
    name: str
    old: Archive
    fixed: Archive
    bug: str
    given: Mapping[str, Mapping[str, str]]
    criterion: Sequence[str]
    fails_with: str
    suite: Sequence[str]
    passes_with: str
    fix: Sequence[str]
    wrong: Replacement
    needs: Sequence[str] = ()
    venv: str = ""  # "" | "setup" | "owner"
    install: Sequence[str] = ()

    @property
    def preparation(self) -> tuple[str, ...]:
        """Commands that make the virtual environment in the tree, each to be split by shlex."""
        if not self.venv:
            return ()
        return ("python3 -m venv .venv", shlex.join([".venv/bin/pip", "install", "-q", *self.install]))


def _package(key: str, entry: dict[str, Any]) -> Package:
    parts = {
        "old": Archive(**entry["old"]),
        "fixed": Archive(**entry["fixed"]),
        "wrong": Replacement(**entry["wrong"]),
    }
    return Package(**{"key": key, **entry, **parts})


PACKAGES = {
    key: _package(key, entry)
    for key, entry in tomllib.loads((HERE / "packages.toml").read_text(encoding="utf-8")).items()
}


def require(package: Package) -> None:
    """Skip by name when a program of `needs` is missing."""
    for need in ("git", *package.needs):
        if not _available(need):
            lacking(need)


def lacking(need: str) -> NoReturn:
    """Skip the test with `needs <need>`; a failure where nothing may be skipped."""
    if os.environ.get("LOOPD_NO_SKIP") == "1":
        pytest.fail(f"needs {need}, and LOOPD_NO_SKIP=1 forbids to skip", pytrace=False)
    pytest.skip(f"needs {need}")


def _available(need: str) -> bool:
    if bound := re.fullmatch(r"python<3\.(\d+)", need):
        return sys.version_info < (3, int(bound[1]))
    return shutil.which(need) is not None


def environment(**more: str) -> dict[str, str]:
    """The environment of a person at a terminal: this interpreter first on PATH, nothing of the test run."""
    alien = ("PYTHON", "VIRTUAL_ENV", "PYTEST_", "GIT_", "NODE_", "LOOPD_", "COV_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(alien)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return {**kept, "PATH": path, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", **more}


def run(argv: Sequence[str], folder: Path, *, timeout_s: float = COMMAND_TIMEOUT_S, index: str = "") -> tuple[int, str]:
    """Exit status and joined output of a command; `index` is a git index to use instead of the repository's.

    Bytecode is not written: its time stamps are too coarse for edits that follow within a second.
    """
    more = {"PYTHONDONTWRITEBYTECODE": "1", **({"GIT_INDEX_FILE": index} if index else {})}
    done = subprocess.run(
        argv,
        cwd=folder,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout_s,
        check=False,
    )
    return done.returncode, done.stdout.decode(errors="replace")


def must(argv: Sequence[str], folder: Path, *, index: str = "") -> str:
    """Output of a command that has to succeed."""
    status, output = run(argv, folder, index=index)
    assert status == 0, f"{shlex.join(argv)} left with {status}:\n{output}"
    return output


# fetching


def cache() -> Path:
    """Where the archives are kept between runs."""
    chosen = os.environ.get("LOOPD_TEST_CACHE")
    folder = Path(chosen) if chosen else HERE.parents[1] / ".cache" / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def archives(package: Package) -> tuple[Path, Path]:
    """The old and the fixed archive in the cache, with the pinned hashes; fetched when missing or damaged."""
    kept = cache()
    missing = [archive for archive in (package.old, package.fixed) if not _intact(kept / archive.file, archive)]
    if missing:
        with tempfile.TemporaryDirectory(dir=kept) as folder:
            _CLIENTS[package.source](package, missing, Path(folder))
            for archive in missing:
                keep(package, archive, Path(folder) / archive.file, kept)
    return kept / package.old.file, kept / package.fixed.file


def _intact(path: Path, archive: Archive) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == archive.sha256


def keep(package: Package, archive: Archive, fetched: Path, kept: Path) -> None:
    """Move a fetched archive into the cache, at once and only with the pinned hash."""
    if not fetched.is_file():
        pytest.fail(f"{package.source} gave no {archive.file} for {package.name} {archive.version}", pytrace=False)
    if not _intact(fetched, archive):
        found = hashlib.sha256(fetched.read_bytes()).hexdigest()
        pytest.fail(f"{archive.file} has sha256 {found}, pinned is {archive.sha256}", pytrace=False)
    fetched.replace(kept / archive.file)


def _client(argv: Sequence[str], folder: Path) -> None:
    """Run the client of a registry; whatever goes wrong fails the test with the client's own words."""
    if not shutil.which(argv[0]):
        lacking(argv[0])
    try:
        status, output = run(argv, folder, timeout_s=FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        status, output = 1, f"no answer in {FETCH_TIMEOUT_S} s"
    if status:
        pytest.fail(f"cannot fetch; the tests need the network once: {shlex.join(argv)}\n{output}", pytrace=False)


def _pypi(package: Package, missing: Sequence[Archive], folder: Path) -> None:
    for archive in missing:  # one call each: pip refuses two versions of a project in one
        pins = folder / f"{archive.version}.txt"
        pins.write_text(f"{package.name}=={archive.version} --hash=sha256:{archive.sha256}\n")
        options = [
            "-q",
            "--no-deps",
            "--no-binary",
            ":all:",
            "--require-hashes",
            "-r",
            str(pins),
            "-d",
            str(folder),
        ]
        _client([sys.executable, "-m", "pip", "download", *options], folder)


def _npm(package: Package, missing: Sequence[Archive], folder: Path) -> None:
    for archive in missing:
        _client(["npm", "pack", "--silent", f"{package.name}@{archive.version}"], folder)


def _debian(package: Package, missing: Sequence[Archive], folder: Path) -> None:
    """`apt-get source` with lists and sources of its own: most machines have no `deb-src`."""
    places = {
        "Dir::Etc::SourceList": os.devnull,
        "Dir::Etc::SourceParts": _source_parts(folder),
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root",  # else apt warns that its own user cannot enter this folder
    }
    for place in ("lists/partial", "cache/archives/partial"):
        (folder / place).mkdir(parents=True)
    apt = ["apt-get", "-q", *(word for key, value in places.items() for word in ("-o", f"{key}={value}"))]
    _client([*apt, "update"], folder)
    _client([*apt, "source", "--download-only", f"{package.name}={missing[0].version}"], folder)


def _source_parts(folder: Path) -> Path:
    """The machine's own Debian archives, asked for source packages instead of binary ones."""
    parts = folder / "parts"
    parts.mkdir()
    for listed in [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]:
        if listed.is_file() and listed.suffix in (".list", ".sources"):
            text = listed.read_text(encoding="utf-8", errors="replace")
            if "debian" in text.lower():
                source = re.sub(
                    r"(?m)^(Types:\s*)deb\b.*$|^deb ",
                    lambda m: f"{m[1]}deb-src" if m[1] else "deb-src ",
                    text,
                )
                (parts / listed.name).write_text(source, encoding="utf-8")
    if not any(parts.iterdir()):
        lacking("Debian package sources")
    return parts


_CLIENTS: dict[str, Callable[[Package, Sequence[Archive], Path], None]] = {
    "pypi": _pypi,
    "npm": _npm,
    "debian": _debian,
}


# trees


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack into a new folder and return the one folder in it; nothing of the archive can land outside.

    The files belong to whoever unpacks, also as root: git refuses a repository of someone else's files.
    """
    folder.mkdir(parents=True)
    must(["tar", "--no-same-owner", "-xf", str(archive), "-C", str(folder)], folder)
    (top,) = folder.iterdir()
    return top


def workspace(package: Package, folder: Path) -> tuple[Path, Path]:
    """The old release as its owner's repository (one commit, `given` included); the fixed release's tree."""
    old, fixed = archives(package)
    fixed_tree = _fixed_tree(package, old, fixed, folder)
    tree = folder / "work"
    unpack(old, folder / "old").rename(tree)
    for path, given in package.given.items():
        text = given["text"] if "text" in given else (fixed_tree / given["fixed"]).read_text(encoding="utf-8")
        write(tree / path, text)
    with (tree / ".gitignore").open("a", encoding="utf-8") as ignore:
        ignore.write("\n.venv/\n__pycache__/\n*.egg-info/\n.pytest_cache/\n")
    commit(tree, f"{package.name} {package.old.version}")
    return tree, fixed_tree


def _fixed_tree(package: Package, old: Path, fixed: Path, folder: Path) -> Path:
    if not package.fixed.patch:
        return unpack(fixed, folder / "fixed")
    tree = unpack(old, folder / "fixed")
    patch = unpack(fixed, folder / "packaging") / package.fixed.patch
    must(["git", "init", "-q"], tree)  # else `git apply` below another repository takes nothing and says nothing
    must(["git", "apply", str(patch)], tree)
    return tree


def write(path: Path, text: str) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def commit(tree: Path, message: str) -> None:
    """Record everything that is not ignored, in a repository that is made if there is none."""
    must(["git", "init", "-q", "-b", "main"], tree)
    must(["git", "add", "-A"], tree)
    must(
        ["git", "-c", "user.name=Owner", "-c", "user.email=owner@localhost", "commit", "-q", "-m", message],
        tree,
    )


def prepare(package: Package, tree: Path) -> None:
    """Make the virtual environment in the tree, as the contract's setup or the owner does."""
    for command in package.preparation:
        must(shlex.split(command), tree)


def apply_wrong(package: Package, tree: Path) -> None:
    """Make the plausible change that turns the suite red."""
    wrong = package.wrong
    text = (tree / wrong.path).read_text(encoding="utf-8")
    assert text.count(wrong.old) == 1, f"{wrong.old!r} occurs {text.count(wrong.old)} times in {wrong.path}"
    write(tree / wrong.path, text.replace(wrong.old, wrong.new))


def apply_fix(package: Package, tree: Path, fixed_tree: Path) -> None:
    """Take the files of the fix from the fixed release."""
    for path in package.fix:
        shutil.copyfile(fixed_tree / path, tree / path)


def content(tree: Path) -> list[str]:
    """Mode, blob and path of every file that git does not ignore; the repository's own index stays."""
    with tempfile.TemporaryDirectory() as folder:
        index = f"{folder}/index"
        must(["git", "add", "-A"], tree, index=index)
        return must(["git", "ls-files", "-s"], tree, index=index).splitlines()
