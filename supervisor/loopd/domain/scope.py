"""What an agent may change: path patterns, and the ruling on every single change. Pure."""

import re
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

EVERYTHING = ("**",)

# Baseline tests: more may be added beside them, the ones there stay as they are.
BASELINE_TESTS = (
    *(
        "tests/**",
        "test/**",
        "spec/**",
        "e2e/**",
        "**/tests/**",
        "**/test/**",
        "**/__tests__/**",
        "**/testdata/**",
    ),
    *("**/test_*.py", "**/*_test.py", "**/*_test.go", "**/*_test.rs", "**/*_spec.rb", "**/*_test.rb"),
    *("**/*.test.*", "**/*.spec.*", "**/*Test.java", "**/*Tests.java", "**/*Test.kt", "**/*Tests.cs"),
)

# What the owner keeps in a project for loopd itself.
OWN_FOLDERS = ("goals/**", "verifiers/**", "tasks/**", "journal/**", "lessons/**")

CI_FILES = (
    *(
        ".ci/**",
        ".github/**",
        ".gitlab/**",
        ".gitlab-ci.yml",
        ".circleci/**",
        ".buildkite/**",
        ".woodpecker/**",
    ),
    *(".woodpecker.yml", ".travis.yml", ".drone.yml", "azure-pipelines*.yml", "bitbucket-pipelines.yml"),
    *("appveyor.yml", ".appveyor.yml", "Jenkinsfile", ".pre-commit-config.yaml"),
)

# Files that decide which tests run and what a red one means. Files that hold such settings beside others
# (pyproject.toml, package.json, setup.cfg) are judged by their content instead: see `runner_settings`.
RUNNER_FILES = (
    *("**/conftest.py", "**/pytest.ini", "**/.pytest.ini", "**/pytest.toml", "**/tox.ini", "**/tox.toml"),
    *("**/noxfile.py", "**/.coveragerc", "**/.coveragerc.toml", "**/*.pth"),
    *("**/sitecustomize.py", "**/usercustomize.py", "**/pyvenv.cfg"),
    *(
        "**/jest.config.*",
        "**/vitest.config.*",
        "**/vitest.workspace.*",
        "**/karma.conf.*",
        "**/cypress.config.*",
    ),
    *("**/playwright*.config.*", "**/ava.config.*", "**/.mocharc*", "**/.nycrc*", "**/.c8rc*", "**/.taprc"),
    *("**/.npmrc", "**/.yarnrc", "**/.yarnrc.yml", "**/phpunit.xml*", "**/.rspec"),
    *("**/.cargo/config", "**/.cargo/config.toml", "**/.config/nextest.toml"),
)

DEFAULT_PROTECT = (*OWN_FOLDERS, *CI_FILES, *RUNNER_FILES)

# `python -m pytest` puts the working folder first on sys.path: a new `argparse.py` there runs before any
# test does.
# `test` is left out: no runner imports it, and many projects have such a folder.
_SHADOWED = (sys.stdlib_module_names | {"pytest", "_pytest", "pluggy", "iniconfig", "coverage", "xdist"}) - {"test"}

# Programs whose orders lie in files that their command line does not name.
_FILES_OF_PROGRAM = {
    "make": ("Makefile", "makefile", "GNUmakefile"),
    "gmake": ("Makefile", "makefile", "GNUmakefile"),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "rake": ("Rakefile",),
    "invoke": ("tasks.py",),
}


# Programs that only look at the files they are given: `grep -q done out.txt` judges out.txt, which is the work itself.
_INSPECTORS = frozenset(
    {"[", "awk", "cat", "cmp", "diff", "egrep", "fgrep", "file", "find", "gawk", "grep", "head", "jq", "ls", "md5sum"}
    | {"rg", "sed", "sha1sum", "sha256sum", "sort", "stat", "tail", "test", "uniq", "wc", "xmllint", "yq"}
)


class Kind(StrEnum):
    """What happened to a path between two trees; a changed mode or type is `CHANGED`."""

    ADDED = "added"
    CHANGED = "changed"
    DELETED = "deleted"


class Ruling(StrEnum):
    """What becomes of a change."""

    CARRIED = "carried"  # part of the composed tree
    RESTORED = "restored"  # baseline content is used, in the workspace too; a new protected file is taken away
    UNPROVEN = "unproven"  # a file added outside the scope: it stays, and is no part of the proof
    REFUSED = "refused"  # cannot be carried safely, whatever the scope says


class Change(Struct, frozen=True):
    """One path that differs between the base and the agent's tree."""

    path: str  # relative, POSIX separators
    kind: Kind
    link: str | None = None  # the target, when the path is a symbolic link now
    settings_kept: bool | None = None  # None: the file is not one that is judged by its settings


class Scope(Struct, frozen=True):
    """The contract's scope with its defaults filled in. Patterns: see `matches`."""

    allow: tuple[str, ...] = EVERYTHING
    add: tuple[str, ...] = ()  # stated by the contract: outranks `allow`
    protect: tuple[str, ...] = ()  # stated by the contract, and the contract itself: outranks everything
    named: tuple[str, ...] = ()  # exact paths that criteria name
    default_add: tuple[str, ...] = BASELINE_TESTS  # gives way to an `allow` that names the same thing
    default_protect: tuple[str, ...] = DEFAULT_PROTECT  # the same
    submodules: tuple[str, ...] = ()  # folders whose content another repository owns


def scope_of(
    *,
    allow: Iterable[str] | None = None,
    add: Iterable[str] | None = None,
    protect: Iterable[str] = (),
    named: Iterable[str] = (),
) -> Scope:
    """A scope as a contract states it; None is the documented default, an empty list means nothing."""
    return Scope(
        allow=EVERYTHING if allow is None else tuple(allow),
        add=() if add is None else tuple(add),
        protect=tuple(protect),
        named=tuple(named),
        default_add=BASELINE_TESTS if add is None else (),
    )


def judge(change: Change, scope: Scope) -> Ruling:
    """What becomes of one change. The order of the questions is the order of the ranks."""
    if _within(change.path, scope.submodules):
        return Ruling.REFUSED
    if change.link is not None and leaves_tree(change.path, change.link):
        return Ruling.REFUSED
    if is_protected(change, scope):
        return Ruling.RESTORED
    if change.kind is not Kind.ADDED and _only_add(change.path, scope):
        return Ruling.RESTORED
    if matches(change.path, scope.allow):
        return Ruling.CARRIED
    if change.kind is not Kind.ADDED:
        return Ruling.RESTORED
    return Ruling.CARRIED if matches(change.path, (*scope.add, *scope.default_add)) else Ruling.UNPROVEN


def is_protected(change: Change, scope: Scope) -> bool:
    """Whether the baseline version of this path, or its absence, always holds."""
    path = change.path
    if matches(path, scope.protect):
        return True
    told = path in scope.named or change.settings_kept is False
    if told and not _named_by(scope.allow, path, path.rpartition("/")[2]):
        return True
    if change.kind is Kind.ADDED and shadows_module(path) and not _named_by(scope.allow, path, path):
        return True
    if not matches(path, scope.default_protect):
        return False
    fitting = (pattern for pattern in scope.default_protect if matches(path, (pattern,)))
    return not all(_named_by(scope.allow, path, pattern) for pattern in fitting)


def is_pinned(path: str, scope: Scope) -> bool:
    """Whether the baseline content of this path is worth keeping: a change to it would be restored."""
    return judge(Change(path, Kind.CHANGED), scope) is Ruling.RESTORED


def matches(path: str, patterns: tuple[str, ...]) -> bool:
    """Whether `path` fits one of the patterns, which are anchored at the root of the tree.

    `*` and `?` and `[…]` stay within one name, `**` spans folders. A pattern that names a folder holds for
    everything below it.
    """
    return bool(patterns) and _compiled(patterns).match(path) is not None


def leaves_tree(path: str, target: str) -> bool:
    """Whether a link at `path` may lead out of the tree.

    A target that climbs after it descended (`a/../..`) counts as leaving: `a` may itself be a link.
    """
    if not target or target.startswith("/") or "\0" in target:
        return True
    steps = [step for step in target.split("/") if step not in ("", ".")]
    climbs = next((i for i, step in enumerate(steps) if step != ".."), len(steps))
    return ".." in steps[climbs:] or climbs > path.count("/")


def shadows_module(path: str) -> bool:
    """Whether a file at the root would be imported instead of the standard library or a test runner."""
    name, _, rest = path.partition("/")
    if rest:
        return rest == "__init__.py" and name in _SHADOWED
    stem, _, suffix = name.partition(".")
    return stem in _SHADOWED and (suffix == "py" or suffix.endswith("so"))


def only_inspects(argv: Sequence[str]) -> bool:
    """Whether a command only looks at the files it names, so that they are the work and not the check."""
    return bool(argv) and argv[0].rpartition("/")[2] in _INSPECTORS


def files_named_by(argv: Iterable[str]) -> tuple[str, ...]:
    """Relative paths that a command line runs, and the order files of well-known programs, sorted.

    What a program like grep or test looks at is the work and not the check. A folder it names protects nothing by
    itself: the paths are compared whole.
    """
    words = list(argv)
    if only_inspects(words):
        return ()
    found = set(_FILES_OF_PROGRAM.get(words[0].rpartition("/")[2], ())) if words else set()
    for word in words:
        value = word.partition("=")[2] if word.startswith("-") else word
        value = value.partition("::")[0].removeprefix("./")
        if value and not value.startswith(("/", "-", "../")) and re.search(r"[./]", value):
            found.add(value)
    return tuple(sorted(found))


def _only_add(path: str, scope: Scope) -> bool:
    if matches(path, scope.add):
        return True
    if not matches(path, scope.default_add):
        return False
    fitting = (pattern for pattern in scope.default_add if matches(path, (pattern,)))
    return not any(_named_by(scope.allow, path, pattern) for pattern in fitting)


def _named_by(allow: tuple[str, ...], path: str, pattern: str) -> bool:
    """Whether the owner allowed this on purpose: an `allow` that fits and repeats a name of the default."""
    names = {part for part in pattern.split("/") if part not in ("*", "**")}
    return any(names & set(wish.rstrip("/").split("/")) and matches(path, (wish,)) for wish in allow)


def _within(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


@lru_cache(maxsize=512)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{_regex(pattern)})" for pattern in patterns), re.DOTALL)


def _regex(pattern: str) -> str:
    parts = [part for part in pattern.strip().split("/") if part not in ("", ".")]
    if pattern.endswith("/"):
        parts.append("**")
    text = "".join("(?:[^/]+/)*" if part == "**" else _name_regex(part) + "/" for part in parts)
    if parts and parts[-1] == "**":
        return text + r"[^/]+\Z"
    return text.removesuffix("/") + r"(?:/.*)?\Z"


def _name_regex(part: str) -> str:
    text, at = "", 0
    while at < len(part):
        close = part.find("]", at + 2) if part[at] == "[" else -1
        if close > 0:
            inner = part[at + 1 : close].replace("\\", r"\\").replace("[", r"\[")
            text += f"(?!/)[^{inner[1:]}]" if inner[0] in "!^" else f"(?!/)[{inner}]"
            at = close
        else:
            text += {"*": "[^/]*", "?": "[^/]"}.get(part[at], re.escape(part[at]))
        at += 1
    return text
