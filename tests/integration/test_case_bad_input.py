"""Bad input of every kind: one clear message, the right status, nothing changed, no traceback."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cases import DONE, attempts, launches, notes, outcomes, picture, prepare, with_env
from running import Project, Ran, contract

AGENT = "{command: [sh, agent.sh]}"
GOOD = contract("case", DONE, AGENT)
ONE_CRITERION = "goal: case\nobjective: x\nagent: {command: [sh]}\ncriteria:\n  - {name: a, run: 'false'}\n"

CONTRACTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "nothing is written here"),
    "blank": (b"\n\n# nothing\n", "nothing is written here"),
    "binary": (b"\x7fELF\0\0\1", "binary"),
    "not UTF-8": (GOOD.encode() + b"# \xff\n", "UTF-8"),
    "huge": (GOOD.encode() + b"# x\n" * 400_000, "larger than 1 MiB"),
    "a list": (b"- one\n- two\n", "mapping"),
    "a text": (b"make it so\n", "mapping"),
    "a broken line": (GOOD.encode() + b"scope: {allow: [src\n", "must be in quotes"),
    "a tab": (b"goal: case\n\tobjective: x\n", "YAML"),
    "criteria as text": (b"goal: case\nobjective: x\ncriteria: pytest\n", "criteria"),
    "criteria empty": (b"goal: case\nobjective: x\ncriteria: []\n", "criteria"),
    "criterion without verifier": (b"goal: case\nobjective: x\ncriteria:\n  - name: tests\n", "verifier"),
    "goal as number": (ONE_CRITERION.replace("goal: case", "goal: 5").encode(), "goal"),
    "goal with spaces": (ONE_CRITERION.replace("goal: case", "goal: a b").encode(), "goal"),
    "key twice": ((ONE_CRITERION + "agent: {command: [sh]}\n").encode(), "twice"),
    "unknown key": ((ONE_CRITERION + "crtieria: []\n").encode(), "did you mean criteria"),
    "two documents": (ONE_CRITERION.encode() + b"---\n" + ONE_CRITERION.encode(), "document"),
    "an alias bomb": (b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", ""),
    "a tag": (ONE_CRITERION.encode() + b"x: !!python/object/apply:os.system [touch pwned]\n", ""),
    "a shell operator": (ONE_CRITERION.replace("'false'", "'make && true'").encode(), "sh"),
}


def refused(ran: Ran, status: int) -> None:
    """One message on stderr, the status, no traceback."""
    assert ran.status == status, ran.text
    assert "Traceback" not in ran.text
    assert ran.err.startswith("loopd: ") or status == 5, ran.text
    assert len(ran.err.splitlines()) < 20, ran.err


@pytest.mark.parametrize("kind", CONTRACTS)
def test_contract_that_is_none_is_refused(project: Project, kind: str) -> None:
    """Whatever the file holds: status 2, a message that names the file and the fault, nothing started or written."""
    content, words = CONTRACTS[kind]
    (project.root / "goal.yaml").write_bytes(content)
    project.write({"agent.sh": "touch started\n"}).commit()
    before = picture(project.root)
    ran = project.loopd("run", "goal.yaml")
    refused(ran, 2)
    assert "goal.yaml" in ran.err
    assert words in ran.err
    assert picture(project.root) == before
    assert project.run_folders() == []


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo", "device", "unreadable"])
def test_contract_that_cannot_be_read_is_refused(project: Project, kind: str) -> None:
    """No file, a folder, a pipe that nobody writes, a device, no permission: status 2, at once, the path named."""
    path = project.root / "goal.yaml"
    match kind:
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "unreadable" if os.geteuid() == 0:
            path.symlink_to("/proc/1/mem")  # root reads every plain file; not this one from its beginning
        case "unreadable":
            path.write_text(GOOD)
            path.chmod(0)
        case "missing":
            pass
    ran = project.loopd("run", "goal.yaml", timeout_s=30)
    refused(ran, 2)
    assert "goal.yaml" in ran.err
    assert project.run_folders() == []


@pytest.mark.parametrize("role", ["agent", "verifier"])
def test_missing_program_is_blocked_before_attempt_1(project: Project, role: str) -> None:
    """A program that is nowhere: blocked, status 5, name and PATH said, no attempt used."""
    agent, checks = (AGENT, ["no-such-check"]) if role == "verifier" else ("{command: [no-such-agent]}", DONE)
    project = prepare(project, "true\n", checks=checks, agent=agent)
    ran = project.loopd("run", "goal.yaml")
    refused(ran, 5)
    assert ("no-such-check" if role == "verifier" else "no-such-agent") in ran.text
    assert project.environment()["PATH"] in ran.text
    assert attempts(project) == []


def test_git_missing_from_the_path_is_blocked(project: Project, tmp_path: Path) -> None:
    """Without git there is no private store: blocked with the mend, nothing changed."""
    project = prepare(project, "echo done > out.txt\n")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "grep", "cat"):
        (tools / name).symlink_to(shutil.which(name) or name)
    before = picture(project.root)
    ran = with_env(project, {"PATH": str(tools)}).loopd("run", "goal.yaml")
    refused(ran, 5)
    assert "git is not on the PATH" in ran.text
    assert picture(project.root) == before


def _detached(project: Project) -> None:
    project.git("checkout", "--quiet", "--detach")


def _merging(project: Project) -> None:
    project.git("checkout", "--quiet", "-b", "side")
    (project.root / "readme.txt").write_text("theirs\n")
    project.git("commit", "--quiet", "--all", "--message", "theirs")
    project.git("checkout", "--quiet", "main")
    (project.root / "readme.txt").write_text("ours\n")
    project.git("commit", "--quiet", "--all", "--message", "ours")
    with pytest.raises(subprocess.CalledProcessError):
        project.git("merge", "--quiet", "side")


def _submodule(project: Project) -> None:
    other = project.root.parent / "other"
    other.mkdir()
    inner = Project(other, project.state).write({"inside.txt": "inside\n"}).commit()
    project.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.root), "sub")
    project.git("commit", "--quiet", "--message", "submodule")


def _lfs(project: Project) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12345\n"
    project.git("config", "filter.lfs.smudge", "false")
    project.git("config", "filter.lfs.clean", "false")
    project.git("config", "filter.lfs.required", "false")
    (project.root / "model.bin").write_text(pointer)
    (project.root / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    project.git("add", "--all")
    project.git("commit", "--quiet", "--message", "lfs")


STATES = {"detached": _detached, "merging": _merging, "submodule": _submodule, "lfs": _lfs}


@pytest.mark.parametrize("state", STATES)
def test_unusual_repository_is_worked_in_and_left_as_it_was(project: Project, state: str) -> None:
    """Detached HEAD, a merge in progress, submodules, LFS pointers: met, and `.git` and every file stay."""
    project = prepare(project, "echo done > out.txt\n")
    STATES[state](project)
    before = picture(project.root)
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    after = picture(project.root)
    assert set(after) - set(before) == {"out.txt"}
    assert {path: after[path] for path in before} == before


def test_unborn_branch(project: Project) -> None:
    """A repository without a commit is worked in like a folder."""
    project = prepare(project, "echo done > out.txt\n")
    shutil.rmtree(project.root / ".git")
    project.git("init", "--quiet")
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    assert project.git("status", "--porcelain").splitlines()


def test_bare_repository_is_refused_or_a_folder_like_any_other(project: Project) -> None:
    """A contract inside a bare repository: nothing of the repository changes."""
    project = prepare(project, "echo done > out.txt\n")
    bare = project.root.parent / "bare.git"
    project.git("clone", "--quiet", "--bare", ".", str(bare))
    for name in ("goal.yaml", "agent.sh"):
        shutil.copy(project.root / name, bare / name)
    before = picture(bare)
    ran = Project(bare, project.state, project.env).loopd("run", "goal.yaml")
    assert "Traceback" not in ran.text
    assert ran.status in (0, 2), ran.text
    after = picture(bare)
    assert {path: after[path] for path in before} == before


def test_linked_worktree_of_the_owner(project: Project) -> None:
    """The owner's own worktree is a workspace like any other; the main one is not touched."""
    project = prepare(project, "echo done > out.txt\n")
    linked = project.root.parent / "linked"
    project.git("worktree", "add", "--quiet", "-b", "topic", str(linked))
    before = picture(project.root)
    ran = Project(linked, project.state, project.env).loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    assert (linked / "out.txt").read_text() == "done\n"
    assert picture(project.root) == before


def test_filters_hooks_and_autocrlf_of_the_owner_never_run(project: Project, tmp_path: Path) -> None:
    """Filters, hooks, fsmonitor and autocrlf in repository and user settings: none runs, no byte changes."""
    project = prepare(project, "echo done > out.txt\n")
    ran_file = tmp_path / "ran"
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "post-commit", "post-index-change", "reference-transaction", "pre-commit"):
        (hooks / name).write_text(f"#!/bin/sh\necho {name} >> {ran_file}\n")
        (hooks / name).chmod(0o755)
    noisy = f"sh -c 'echo filter >> {ran_file}; tr a-z A-Z'"
    home = tmp_path / "home"
    home.mkdir()
    settings = {"core.hooksPath": str(hooks), "core.autocrlf": "true", "core.fsmonitor": str(hooks / "pre-commit")}
    for name, value in {**settings, "filter.up.clean": noisy, "filter.up.smudge": noisy}.items():
        subprocess.run(["git", "config", "--file", str(home / ".gitconfig"), name, value], check=True)
        subprocess.run(["git", "config", name, value], cwd=project.root, check=True)
    (project.root / "mixed.txt").write_bytes(b"unix\nand dos\r\n")
    (project.root / ".gitattributes").write_text("*.txt filter=up text eol=crlf ident\n")
    before = picture(project.root)
    check = contract("case", ["grep -qx done out.txt", "sh -c 'test $(wc -c < mixed.txt) = 14'"], AGENT)
    (project.root / "goal.yaml").write_text(check)
    before["goal.yaml"] = picture(project.root)["goal.yaml"]
    ran_file.unlink(missing_ok=True)  # `git config` itself runs none, but let the count begin here
    ran = with_env(project, {"HOME": str(home)}).loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    assert not ran_file.exists(), ran_file.read_text()
    after = picture(project.root)
    assert {path: after[path] for path in before} == before


def test_read_only_state_folder(project: Project) -> None:
    """A state folder that cannot be written: one message that names it, nothing started."""
    project = prepare(project, "touch started\n")
    # Root may write everywhere but into /proc and /sys; for others a folder without the permission is the same.
    state = Path("/proc/loopd-state")
    ran = Project(project.root, state, project.env).loopd("run", "goal.yaml")
    assert ran.status in (5, 70, 2), ran.text
    assert "Traceback" not in ran.text
    assert str(state) in ran.err
    assert launches(project) == 0
    assert "an error in loopd itself" not in ran.err


@pytest.mark.parametrize("home", [None, "", "relative", "/nonexistent"])
def test_no_home(project: Project, home: str | None) -> None:
    """Without a usable HOME and with LOOPD_STATE set, a run works; without both, one message says what to set."""
    project = prepare(project, "echo done > out.txt\n")
    environment = {name: value for name, value in project.environment().items() if name != "HOME"}
    if home is not None:
        environment["HOME"] = home
    ran = _with_exactly(project, environment, "run", "goal.yaml")
    assert ran.status == 0, ran.text
    if home in (None, "", "relative"):
        del environment["LOOPD_STATE"]
        environment.pop("XDG_STATE_HOME", None)
        stateless = _with_exactly(project, environment, "run", "--new", "goal.yaml")
        refused(stateless, stateless.status)
        assert stateless.status in (2, 5, 70)
        assert "LOOPD_STATE" in stateless.err or "HOME" in stateless.err


@pytest.mark.skipif(os.geteuid() != 0, reason="is not root")
def test_running_as_root(project: Project) -> None:
    """As root a run works, and what it leaves is readable by its owner only."""
    project = prepare(project, 'id -u > "$NOTES/uid"; echo done > out.txt\n')
    assert project.loopd("run", "goal.yaml").status == 0
    assert (notes(project) / "uid").read_text() == "0\n"
    assert outcomes(project) == ["finished"]
    assert project.run_folders()[-1].stat().st_mode & 0o077 == 0


def _with_exactly(project: Project, environment: dict[str, str], *words: str) -> Ran:
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "loopd", *words],
        cwd=project.root,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
