"""Which changes of a mixed file touch the test runner."""

import pytest

from loopd.domain.runner_settings import is_judged_by_settings, settings_kept

PYPROJECT = b"[project]\nname='x'\n[tool.pytest.ini_options]\naddopts='-q'\n"
PACKAGE = b'{"scripts": {"test": "node --test", "build": "tsc"}, "jest": {}}'
SETUP = b"[metadata]\nname=x\n[tool:pytest]\naddopts=-q\n[coverage:run]\nbranch=1\n"


@pytest.mark.parametrize(
    ("path", "old", "new", "kept"),
    [
        ("a.py", b"", b"", None),
        ("pyproject.toml", PYPROJECT, PYPROJECT + b"[tool.ruff]\nline-length=9\n", True),
        ("sub/pyproject.toml", PYPROJECT, PYPROJECT.replace(b"name='x'", b"dependencies=['y']"), True),
        ("pyproject.toml", PYPROJECT, PYPROJECT.replace(b"-q", b"-k nothing"), False),
        ("pyproject.toml", PYPROJECT, b"", False),
        ("pyproject.toml", PYPROJECT, None, False),
        ("pyproject.toml", None, PYPROJECT, False),
        ("pyproject.toml", None, b"[project]\nname='x'\n", True),
        ("pyproject.toml", b"[project]\n", b"[project.entry-points.pytest11]\na='b'\n", False),
        ("pyproject.toml", PYPROJECT, b"not toml [", False),
        ("pyproject.toml", PYPROJECT, b"\xff\xfe", False),
        ("pyproject.toml", b"tool=1", b"tool=2", True),
        (
            "package.json",
            PACKAGE,
            PACKAGE.replace(b'"jest": {}', b'"dependencies": {"a": "1"}, "jest": {}'),
            True,
        ),
        ("package.json", PACKAGE, PACKAGE.replace(b"node --test", b"exit 0"), False),
        ("package.json", PACKAGE, PACKAGE.replace(b'"build"', b'"lint": "eslint .", "build"'), True),
        ("package.json", PACKAGE, PACKAGE.replace(b'"build"', b'"pretest": "exit 1", "build"'), False),
        ("package.json", PACKAGE, PACKAGE.replace(b'"build"', b'"postinstall": "x", "build"'), False),
        ("package.json", PACKAGE, PACKAGE.replace(b', "build": "tsc"', b""), False),
        ("package.json", PACKAGE, b"[]", False),
        ("package.json", b"{}", b'{"scripts": {"test": "exit 0"}}', False),
        ("package.json", b'{"scripts": 1}', b'{"scripts": 2}', False),
        ("setup.cfg", SETUP, SETUP.replace(b"name=x", b"name=y"), True),
        ("setup.cfg", SETUP, SETUP.replace(b"-q", b"--co"), False),
        ("setup.cfg", SETUP, SETUP + b"[coverage:report]\nomit=*\n", False),
        ("setup.cfg", SETUP, SETUP + b"[options.entry_points]\npytest11=\n  a=b\n", False),
        ("setup.cfg", SETUP, b"no section", False),
    ],
)
def test_settings_of_the_runner_are_told_from_the_rest(
    path: str, old: bytes | None, new: bytes | None, kept: bool | None
) -> None:
    assert settings_kept(path, old, new) is kept
    assert is_judged_by_settings(path) is (kept is not None)
