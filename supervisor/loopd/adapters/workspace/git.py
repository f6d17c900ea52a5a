"""The git command, made deaf to everything a user or an agent can configure."""

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from loopd.domain.errors import BlockedError, StateError

# On the command line, because that outranks the configuration of any repository that is only read.
_SETTINGS = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.attributesFile=/dev/null"),
    *("core.excludesFile=/dev/null", "core.autocrlf=false", "core.safecrlf=false", "core.eol=lf"),
    *("core.fileMode=true", "core.symlinks=true", "core.ignoreCase=false", "core.precomposeUnicode=false"),
    *(
        "core.quotePath=false",
        "core.untrackedCache=false",
        "core.splitIndex=false",
        "core.sparseCheckout=false",
    ),
    *("gc.auto=0", "maintenance.auto=false", "safe.directory=*", "protocol.file.allow=always"),
    *(
        "submodule.recurse=false",
        "diff.external=",
        "diff.renames=false",
        "commit.gpgSign=false",
        "log.showSignature=false",
    ),
)
SETTINGS = tuple(word for setting in _SETTINGS for word in ("-c", setting))


class Completed(Protocol):
    """How a helper program left."""

    @property
    def status(self) -> int:
        """Exit status; negative for a signal."""
        ...

    @property
    def stdout(self) -> bytes:
        """All of it."""
        ...

    @property
    def stderr(self) -> bytes:
        """All of it."""
        ...


class RunProgram(Protocol):
    """The door to short helper programs."""

    async def __call__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: bytes | None,
        timeout_s: float,
    ) -> Completed:
        """Run to the end; `env` is complete. Raises `BlockedError` when it cannot start, `StateError` when
        late.
        """
        ...


class GitError(StateError):
    """git said no where loopd's own state is at stake."""


class Git(Struct, frozen=True):
    """Where git works, and with what. Nothing of the environment is inherited but what is named here."""

    run_program: RunProgram
    program: str
    search_path: str
    cwd: Path
    git_dir: Path | None = None  # None: discovered from `cwd`
    work_tree: Path | None = None
    index: Path | None = None
    timeout_s: float = 1800.0

    def at(
        self,
        *,
        cwd: Path | None = None,
        git_dir: Path | None = None,
        work_tree: Path | None = None,
        index: Path | None = None,
    ) -> "Git":
        """The same git, looking somewhere else; what is not named stays."""
        return replace(
            self,
            cwd=cwd or work_tree or self.cwd,
            git_dir=git_dir or self.git_dir,
            work_tree=work_tree or self.work_tree,
            index=index or self.index,
        )

    async def __call__(
        self,
        *args: str | Path,
        stdin: bytes | None = None,
        ok: Iterable[int] = (0,),
        env: Mapping[str, str] = {},
    ) -> bytes:
        """Standard output. Raises `GitError` with git's own words for an exit status not in `ok`."""
        done = await self.run(*args, stdin=stdin, env=env)
        if done.status not in ok:
            words = done.stderr.decode(errors="backslashreplace").strip()
            raise GitError(f"git {args[0]} failed with status {done.status} in {self.cwd}: {words}")
        return done.stdout

    async def run(self, *args: str | Path, stdin: bytes | None = None, env: Mapping[str, str] = {}) -> Completed:
        """The whole outcome, whatever it is."""
        argv = [self.program, *SETTINGS, *(str(word) for word in args)]
        environment = {**self._environment(), **env}
        return await self.run_program(argv, cwd=self.cwd, env=environment, stdin=stdin, timeout_s=self.timeout_s)

    def _environment(self) -> dict[str, str]:
        places = {"GIT_DIR": self.git_dir, "GIT_WORK_TREE": self.work_tree, "GIT_INDEX_FILE": self.index}
        return {
            "PATH": self.search_path,
            "HOME": "/nonexistent",
            "LC_ALL": "C",
            "TZ": "UTC",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_PAGER": "cat",
            **{name: str(place) for name, place in places.items() if place},
        }


def find_git(run_program: RunProgram, search_path: str, cwd: Path) -> Git:
    """git on the trusted PATH. Raises `BlockedError` when there is none."""
    program = shutil.which("git", path=search_path)
    if program is None:
        raise BlockedError(
            f"git is not on the PATH ({search_path})",
            "Install git, or write `verification: workspace` into the contract (a weaker boundary).",
        )
    return Git(run_program, program, search_path, cwd)


def fields(output: bytes) -> list[bytes]:
    """The parts of NUL-terminated output."""
    return output.split(b"\0")[:-1]


def text(path: bytes) -> str:
    """A path as text: undecodable bytes become surrogates, and come back with `raw`."""
    return os.fsdecode(path)


def raw(path: str) -> bytes:
    """The bytes of a path."""
    return os.fsencode(path)
