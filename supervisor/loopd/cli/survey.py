"""What a project's own files say about how it is checked. Reads files at its root; runs nothing, asks nothing."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

_LARGEST = 1024 * 1024  # bytes of a file that is looked into
_TARGET = re.compile(r"^([A-Za-z][\w-]*)\s*:(?!=)", re.MULTILINE)
_NODE_LOCKS = {
    "pnpm-lock.yaml": ("pnpm", "pnpm install --frozen-lockfile"),
    "yarn.lock": ("yarn", "yarn install --frozen-lockfile"),
    "bun.lock": ("bun", "bun install --frozen-lockfile"),
    "bun.lockb": ("bun", "bun install --frozen-lockfile"),
    "package-lock.json": ("npm", "npm ci"),
}
_PYTHON_LOCKS = {"uv.lock": "uv sync --frozen", "poetry.lock": "poetry install"}
_PYTHON_FILES = ("pyproject.toml", "setup.cfg", "setup.py", "requirements.txt")


class Check(Struct, frozen=True):
    """One command that the project itself has for checking."""

    name: str
    run: str
    why: str  # the file that says so
    report: str = ""


class Found(Struct, frozen=True):
    """What one language, or a Makefile, contributes."""

    kind: str
    because: str
    checks: tuple[Check, ...] = ()
    carry: tuple[str, ...] = ()
    setup: str = ""
    example: str = ""  # how a test that fails today would be named


def survey(root: Path) -> tuple[Found, ...]:
    """Everything found at `root`, languages first; a Makefile only where no language has a check of its own."""
    found = [one for look in (_python, _node, _go, _rust) if (one := look(root))]
    if not any(one.checks for one in found) and (make := _make(root)):
        found.append(make)
    return tuple(found)


def _python(root: Path) -> Found | None:
    files = [name for name in _PYTHON_FILES if (root / name).is_file()]
    tests = _test_folder(root)
    if not files and not (tests and any((root / tests).glob("test_*.py"))):
        return None
    carry = tuple(name for name in (".venv", "venv") if (root / name / "bin" / "python").exists())
    python = f"{carry[0]}/bin/python" if carry else "python3"
    lock = next((lock for lock in _PYTHON_LOCKS if (root / lock).is_file()), "")
    return Found(
        "Python",
        ", ".join(files) or f"{tests}/",
        tuple(_python_checks(root, python, tests)),
        carry,
        _PYTHON_LOCKS.get(lock, ""),
        f"{python} -m pytest -q tests/test_new_behaviour.py",
    )


def _python_checks(root: Path, python: str, tests: str) -> Iterator[Check]:
    told = {name: _read(root / name) for name in (*_PYTHON_FILES, "pytest.ini", "tox.ini", "requirements-dev.txt")}
    if by := next((name for name, text in told.items() if "pytest" in text or (text and name == "pytest.ini")), ""):
        yield Check("tests", f"{python} -m pytest -q --junitxml={{out}}/junit.xml", by, "{out}/junit.xml")
    elif tests:
        top = " -t ." if (root / tests / "__init__.py").is_file() else ""  # only a package can be imported from there
        yield Check("tests", f"{python} -m unittest discover -q -s {tests}{top}", f"{tests}/")
    tools = _tools(told["pyproject.toml"])
    if "ruff" in tools:
        yield Check("lint", "ruff check .", "pyproject.toml")
    if "mypy" in tools or (root / "mypy.ini").is_file():
        yield Check("types", f"{python} -m mypy .", "pyproject.toml" if "mypy" in tools else "mypy.ini")


def _node(root: Path) -> Found | None:
    if not (root / "package.json").is_file():
        return None
    scripts = _scripts(_read(root / "package.json"))
    lock = next((lock for lock in _NODE_LOCKS if (root / lock).is_file()), "package-lock.json")
    tool, install = _NODE_LOCKS[lock]
    checks = tuple(
        Check(
            {"test": "tests"}.get(name, name),
            f"{tool} test" if name == "test" else f"{tool} run {name}",
            "package.json",
        )
        for name in ("test", "lint", "typecheck", "build")
        if name in scripts and "no test specified" not in scripts[name]
    )
    carry = ("node_modules",) if (root / "node_modules").is_dir() else ()
    return Found("Node", "package.json", checks, carry, install, "node --test test/new-behaviour.test.js")


def _go(root: Path) -> Found | None:
    if not (root / "go.mod").is_file():
        return None
    checks = [Check("tests", "go test ./...", "go.mod"), Check("vet", "go vet ./...", "go.mod")]
    if any((root / f".golangci.{end}").is_file() for end in ("yml", "yaml", "toml")):
        checks.append(Check("lint", "golangci-lint run", ".golangci"))
    return Found("Go", "go.mod", tuple(checks), example="go test -run TestNewBehaviour ./...")


def _rust(root: Path) -> Found | None:
    if not (root / "Cargo.toml").is_file():
        return None
    checks = [Check("tests", "cargo test --quiet", "Cargo.toml")]
    if any((root / name).is_file() for name in ("clippy.toml", ".clippy.toml")):
        checks.append(Check("lint", "cargo clippy --quiet -- -D warnings", "clippy.toml"))
    return Found("Rust", "Cargo.toml", tuple(checks), example="cargo test --quiet new_behaviour")


def _make(root: Path) -> Found | None:
    name = next((name for name in ("GNUmakefile", "makefile", "Makefile") if (root / name).is_file()), "")
    if not name:
        return None
    targets = set(_TARGET.findall(_read(root / name)))
    wanted = [target for target in ("test", "tests", "check", "lint") if target in targets]
    checks = tuple(Check({"test": "tests"}.get(target, target), f"make {target}", name) for target in wanted)
    return Found("Make", name, checks, example="make test-new-behaviour")


def _test_folder(root: Path) -> str:
    return next((name for name in ("tests", "test") if (root / name).is_dir()), "")


def _tools(pyproject: str) -> dict[str, Any]:
    try:
        tools = tomllib.loads(pyproject).get("tool", {})
    except tomllib.TOMLDecodeError:
        return {}
    return tools if isinstance(tools, dict) else {}


def _scripts(package: str) -> dict[str, str]:
    try:
        scripts = json.loads(package)["scripts"]
        return {str(name): str(command) for name, command in scripts.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""
