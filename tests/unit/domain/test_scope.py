"""What may change: patterns and rulings, as tables."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopd.domain.scope import (
    Change,
    Kind,
    Ruling,
    Scope,
    files_named_by,
    is_pinned,
    judge,
    leaves_tree,
    matches,
    scope_of,
    shadows_module,
)

NAMES = st.text(string.ascii_lowercase + "._-*?[]!^\\ \n", min_size=1, max_size=8).filter(
    lambda name: name not in (".", "..") and name.strip() == name
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("src/**", "src/a.py", True),
        ("src/**", "src/a/b.py", True),
        ("src/**", "src", False),
        ("src/**", "lib/src/a.py", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/a/b.py", False),
        ("src", "src/a/b.py", True),
        ("src/", "src/a", True),
        ("src/", "src", False),
        ("./src/**", "src/a", True),
        ("**", "a", True),
        ("**", "a/b/c", True),
        ("**/conftest.py", "conftest.py", True),
        ("**/conftest.py", "a/b/conftest.py", True),
        ("**/conftest.py", "a/myconftest.py", False),
        ("a/**/z", "a/z", True),
        ("a/**/z", "a/b/c/z", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("[ab].py", "a.py", True),
        ("[!ab].py", "c.py", True),
        ("[!ab].py", "a.py", False),
        ("[!a]b", "/b", False),
        ("[]].py", "].py", True),
        ("[a", "[a", True),
        ("a.c", "abc", False),
        ("new\nline", "new\nline", True),
        ("REPORT.md", "sub/REPORT.md", False),
    ],
)
def test_patterns_are_anchored_and_stars_stay_within_one_name(pattern: str, path: str, fits: bool) -> None:
    assert matches(path, (pattern,)) is fits


@given(PATHS)
def test_everything_fits_two_stars_and_nothing_fits_no_pattern(path: str) -> None:
    assert matches(path, ("**",))
    assert not matches(path, ())


@given(st.lists(st.text(string.ascii_lowercase + ". ", min_size=1, max_size=5), min_size=1, max_size=4))
def test_a_pattern_without_wildcards_fits_itself_and_what_lies_below(parts: list[str]) -> None:
    path = "/".join(part.replace(" ", "_").replace(".", "x") for part in parts)
    assert matches(path, (path,))
    assert matches(f"{path}/below", (path,))
    assert not matches(f"{path}beside", (path,))


@given(st.text(min_size=0, max_size=12), PATHS)
def test_no_pattern_is_an_error(pattern: str, path: str) -> None:
    matches(path, (pattern,))


@pytest.mark.parametrize(
    ("path", "target", "leaves"),
    [
        ("a", "b", False),
        ("a/b", "../c", False),
        ("a/b", "../../c", True),
        ("a", "..", True),
        ("a/b/c", "../..", False),
        ("a", "/etc/passwd", True),
        ("a", "", True),
        ("a", "./b/./c", False),
        ("a", "b/../c", True),
        ("a/b", "..//x", False),
        ("a", "b\0c", True),
    ],
)
def test_links_that_may_lead_out_are_found(path: str, target: str, leaves: bool) -> None:
    assert leaves_tree(path, target) is leaves


@given(st.lists(st.sampled_from(["..", ".", "a", "b", ""]), max_size=6), st.integers(0, 3))
def test_a_link_that_leaves_by_words_is_always_found(steps: list[str], depth: int) -> None:
    path, target = "d/" * depth + "link", "/".join(steps)
    level, lowest = depth, depth
    for step in steps:
        level += {"..": -1, ".": 0, "": 0}.get(step, 1)
        lowest = min(lowest, level)
    if lowest < 0:
        assert leaves_tree(path, target)


DEFAULT = scope_of()
NARROW = scope_of(allow=["src/**", "docs/**"], add=["tests/**"], protect=["src/secret.py", ".github/**"])


@pytest.mark.parametrize(
    ("scope", "path", "kind", "ruling"),
    [
        (DEFAULT, "src/a.py", Kind.CHANGED, Ruling.CARRIED),
        (DEFAULT, "a.py", Kind.DELETED, Ruling.CARRIED),
        (DEFAULT, "README.md", Kind.ADDED, Ruling.CARRIED),
        (DEFAULT, "tests/test_new.py", Kind.ADDED, Ruling.CARRIED),
        (DEFAULT, "tests/test_old.py", Kind.CHANGED, Ruling.RESTORED),
        (DEFAULT, "tests/test_old.py", Kind.DELETED, Ruling.RESTORED),
        (DEFAULT, "tests/data/expected.json", Kind.CHANGED, Ruling.RESTORED),
        (DEFAULT, "pkg/client_test.go", Kind.CHANGED, Ruling.RESTORED),
        (DEFAULT, "pkg/client_test.go", Kind.ADDED, Ruling.CARRIED),
        (DEFAULT, "web/app.test.ts", Kind.DELETED, Ruling.RESTORED),
        (DEFAULT, "conftest.py", Kind.ADDED, Ruling.RESTORED),
        (DEFAULT, "tests/deep/conftest.py", Kind.ADDED, Ruling.RESTORED),
        (DEFAULT, "pytest.ini", Kind.ADDED, Ruling.RESTORED),
        (DEFAULT, "tox.ini", Kind.CHANGED, Ruling.RESTORED),
        (DEFAULT, "sitecustomize.py", Kind.ADDED, Ruling.RESTORED),
        (DEFAULT, "src/evil.pth", Kind.ADDED, Ruling.RESTORED),
        (DEFAULT, "web/vitest.config.ts", Kind.CHANGED, Ruling.RESTORED),
        (DEFAULT, ".mocharc.json", Kind.ADDED, Ruling.RESTORED),
        (DEFAULT, ".npmrc", Kind.ADDED, Ruling.RESTORED),
        (DEFAULT, ".cargo/config.toml", Kind.ADDED, Ruling.RESTORED),
        (DEFAULT, ".github/workflows/ci.yml", Kind.CHANGED, Ruling.RESTORED),
        (DEFAULT, ".gitlab-ci.yml", Kind.DELETED, Ruling.RESTORED),
        (DEFAULT, "goals/retry.yaml", Kind.CHANGED, Ruling.RESTORED),
        (DEFAULT, "verifiers/own.py", Kind.CHANGED, Ruling.RESTORED),
        (DEFAULT, "pytest.py", Kind.ADDED, Ruling.RESTORED),
        (DEFAULT, "argparse.py", Kind.ADDED, Ruling.RESTORED),
        (DEFAULT, "json/__init__.py", Kind.ADDED, Ruling.RESTORED),
        (DEFAULT, "src/json/__init__.py", Kind.ADDED, Ruling.CARRIED),
        (DEFAULT, "types.py", Kind.CHANGED, Ruling.CARRIED),
        (DEFAULT, "uv.lock", Kind.CHANGED, Ruling.CARRIED),
        (DEFAULT, ".gitignore", Kind.CHANGED, Ruling.CARRIED),
        (NARROW, "src/a.py", Kind.CHANGED, Ruling.CARRIED),
        (NARROW, "src/secret.py", Kind.CHANGED, Ruling.RESTORED),
        (NARROW, "src/conftest.py", Kind.ADDED, Ruling.RESTORED),
        (NARROW, "tests/test_new.py", Kind.ADDED, Ruling.CARRIED),
        (NARROW, "tests/conftest.py", Kind.ADDED, Ruling.RESTORED),
        (NARROW, "tests/test_old.py", Kind.CHANGED, Ruling.RESTORED),
        (NARROW, "setup.py", Kind.CHANGED, Ruling.RESTORED),
        (NARROW, "setup.py", Kind.DELETED, Ruling.RESTORED),
        (NARROW, "scratch.txt", Kind.ADDED, Ruling.UNPROVEN),
        (scope_of(allow=["tests/**"]), "tests/test_old.py", Kind.CHANGED, Ruling.CARRIED),
        (scope_of(allow=["tests/**"]), "tests/conftest.py", Kind.ADDED, Ruling.RESTORED),
        (scope_of(allow=["src/**"]), "src/a_test.go", Kind.CHANGED, Ruling.RESTORED),
        (scope_of(allow=["src/**"]), "tests/test_new.py", Kind.ADDED, Ruling.CARRIED),
        (scope_of(allow=["**/conftest.py", "src/**"]), "tests/conftest.py", Kind.ADDED, Ruling.CARRIED),
        (scope_of(allow=["**", ".github/**"]), ".github/ci.yml", Kind.CHANGED, Ruling.CARRIED),
        (scope_of(allow=[".github/**"], protect=[".github/**"]), ".github/a", Kind.CHANGED, Ruling.RESTORED),
        (scope_of(allow=["**"], add=["api/**"]), "api/old.py", Kind.CHANGED, Ruling.RESTORED),
        (scope_of(allow=["**"], add=["api/**"]), "tests/test_old.py", Kind.CHANGED, Ruling.CARRIED),
        (scope_of(allow=[]), "a.py", Kind.CHANGED, Ruling.RESTORED),
        (scope_of(allow=[], add=[]), "tests/test_new.py", Kind.ADDED, Ruling.UNPROVEN),
        (scope_of(named=["bench.py"]), "bench.py", Kind.CHANGED, Ruling.RESTORED),
        (scope_of(named=["bench.py"], allow=["bench.py"]), "bench.py", Kind.CHANGED, Ruling.CARRIED),
        (scope_of(named=["src/x.py"], allow=["src/**"]), "src/x.py", Kind.CHANGED, Ruling.RESTORED),
        (Scope(submodules=("vendor/lib",)), "vendor/lib/a.c", Kind.CHANGED, Ruling.REFUSED),
        (Scope(submodules=("vendor/lib",)), "vendor/library.c", Kind.CHANGED, Ruling.CARRIED),
    ],
)
def test_rulings(scope: Scope, path: str, kind: Kind, ruling: Ruling) -> None:
    assert judge(Change(path, kind), scope) is ruling


@pytest.mark.parametrize(
    ("kept", "kind", "ruling"),
    [
        (True, Kind.CHANGED, Ruling.CARRIED),
        (False, Kind.CHANGED, Ruling.RESTORED),
        (True, Kind.ADDED, Ruling.CARRIED),
        (False, Kind.ADDED, Ruling.RESTORED),
    ],
)
def test_a_file_that_also_holds_runner_settings_may_change_while_these_stay(
    kept: bool, kind: Kind, ruling: Ruling
) -> None:
    change = Change("pyproject.toml", kind, settings_kept=kept)
    assert judge(change, DEFAULT) is ruling
    assert judge(change, scope_of(allow=["pyproject.toml"])) is Ruling.CARRIED
    assert judge(Change("src/pyproject.toml", kind, settings_kept=kept), scope_of(allow=["src/**"])) is ruling


def test_links_that_leave_the_tree_are_refused_whatever_the_scope_says() -> None:
    assert judge(Change("a", Kind.ADDED, link="../x"), scope_of(allow=["a"])) is Ruling.REFUSED
    assert judge(Change("a", Kind.ADDED, link="b"), DEFAULT) is Ruling.CARRIED


@given(PATHS, st.sampled_from(Kind))
def test_an_explicitly_protected_path_is_never_carried(path: str, kind: Kind) -> None:
    scope = Scope(allow=("**",), protect=("**",))
    assert judge(Change(path, kind), scope) is Ruling.RESTORED


@given(PATHS, st.sampled_from(Kind))
def test_only_additions_can_stay_unproven(path: str, kind: Kind) -> None:
    ruling = judge(Change(path, kind), NARROW)
    assert ruling is not Ruling.UNPROVEN or kind is Kind.ADDED


def test_what_would_be_restored_is_worth_keeping() -> None:
    assert is_pinned("tests/test_a.py", DEFAULT)
    assert not is_pinned("src/a.py", DEFAULT)


@pytest.mark.parametrize(
    ("path", "shadows"),
    [
        ("os.py", True),
        ("_pytest/__init__.py", True),
        ("json.cpython-311-x86_64-linux-gnu.so", True),
        ("json/data.json", False),
        ("test/__init__.py", False),
        ("src/os.py", False),
        ("client.py", False),
        ("os.md", False),
    ],
)
def test_new_modules_that_would_be_imported_first_are_known(path: str, shadows: bool) -> None:
    assert shadows_module(path) is shadows


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["pytest", "-q"], ()),
        (["pytest", "-q", "tests/test_a.py::test_b"], ("tests/test_a.py",)),
        (["python", "bench.py", "--out=/x/y.json"], ("bench.py",)),
        (["sh", "./ci/check.sh"], ("ci/check.sh",)),
        (["make", "test"], ("GNUmakefile", "Makefile", "makefile")),
        (["/usr/bin/make", "-f", "build.mk"], ("GNUmakefile", "Makefile", "build.mk", "makefile")),
        (["ruff", "check", "src"], ()),
        (["pytest", "--rootdir=sub/x", "../out"], ("sub/x",)),
        ([], ()),
    ],
)
def test_files_that_a_command_names_are_found(argv: list[str], named: tuple[str, ...]) -> None:
    assert files_named_by(argv) == named
