"""GIT: the owner's repository through a whole run."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

from cases import launches, notes, outcomes, picture, prepare, with_env
from running import Project

CHANGING = {"reset", "clean", "checkout", "stash", "restore", "switch", "commit", "add", "rm", "mv", "merge", "rebase"}
SHIM = """#!/bin/sh
printf '%s\\t%s\\t%s\\t' "$PWD" "$GIT_DIR" "$GIT_WORK_TREE" >> "$LOG"
echo "$*" >> "$LOG"
exec {git} "$@"
"""


def test_git_1_uncommitted_work_stays_and_loopd_runs_nothing_that_changes_the_repository(
    project: Project, tmp_path: Path
) -> None:
    """Three uncommitted files, an attempt that fails: every byte as before, and a git on the PATH saw only reading."""
    project = prepare(project, 'echo new > "part$N"; exit 1\n', more="budget: {attempts: 2}", files={"b.bin": "b\n"})
    (project.root / "readme.txt").write_text("edited\r\nby hand")
    (project.root / "b.bin").write_bytes(bytes(range(256)))
    project.git("add", "b.bin")
    (project.root / "untracked.txt").write_text("mine\n")
    log = tmp_path / "git.log"
    tools = tmp_path / "tools"
    tools.mkdir()
    real = shutil.which("git")
    # loopd clears the environment of its own git, so the place of the log is written into the shim.
    (tools / "git").write_text(SHIM.format(git=real).replace("$LOG", str(log)))
    (tools / "git").chmod(0o755)
    before = picture(project.root)
    project = with_env(project, {"PATH": f"{tools}:{project.environment()['PATH']}"})
    assert project.loopd("run", "goal.yaml").status == 1
    assert outcomes(project) == ["crashed", "crashed"]
    after = picture(project.root)
    assert {path: after[path] for path in before} == before
    assert set(after) - set(before) == {"part1", "part2"}
    calls = [line.split("\t") for line in log.read_text().splitlines()]
    assert len(calls) > 10
    for cwd, git_dir, _, words in calls:
        if not git_dir.startswith(str(project.state)):
            assert not CHANGING & set(shlex.split(words)), (cwd, git_dir, words)


def test_git_2_lock_of_a_killed_agent_is_removed(project: Project) -> None:
    """The agent holds index.lock and is ended by the limit: the lock is removed and noted, the next one commits."""
    hold = "exec 9> .git/index.lock; sleep 600"
    commit = "git add out.txt && git -c user.name=a -c user.email=a@b commit --quiet -m work"
    script = f'if [ $N = 1 ]; then {hold}; fi\necho done > out.txt\n{commit} || echo no > "$NOTES/failed"\n'
    project = prepare(project, script, more="budget: {attempt: {time: 1s}}")
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text
    assert not (notes(project) / "failed").exists()
    captured = project.of_kind("attempt.captured")
    assert [data["locks"] for data in captured] == [[".git/index.lock"], []]
    assert project.git("log", "-1", "--format=%s").strip() == "work"


def test_git_3_a_rebase_of_the_agents_is_never_disturbed(project: Project) -> None:
    """loopd looks at the silent workspace again and again while the agent rebases: no step fails."""
    identity = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b"
    script = f"""{identity}
git checkout --quiet -b topic
for n in 1 2 3 4 5 6; do echo $n >> topic.txt; git add topic.txt; git commit --quiet -m "topic $n"; done
git checkout --quiet main; echo m > main.txt; git add main.txt; git commit --quiet -m main; git checkout --quiet topic
for round in 1 2; do git rebase --quiet --force-rebase --exec 'sleep 0.7' main > "$NOTES/rebase" 2>&1 || exit 9; done
echo done > out.txt
"""
    project = prepare(project, script, more="budget: {attempts: 1, attempt: {idle: 1s}}")
    ran = project.loopd("run", "goal.yaml")
    assert ran.status == 0, ran.text + (notes(project) / "rebase").read_text()
    assert launches(project) == 1
    assert project.git("log", "--format=%s", "topic").splitlines()[:2] == ["topic 6", "topic 5"]


def test_git_4_destroyed_work_comes_back_by_the_command_that_show_names(project: Project, tmp_path: Path) -> None:
    """`reset --hard` and `clean -fdx` by the agent: the command of `loopd show` gives every uncommitted byte back."""
    script = "git reset --quiet --hard; git clean -fdxq; echo done > out.txt\n"
    project = prepare(project, script, files={"text.txt": "one\n", ".gitattributes": "*.txt text eol=crlf\n"})
    (project.root / "text.txt").write_bytes(b"edited\nby hand\r\n")
    (project.root / "with space").mkdir()
    (project.root / "with space" / "untracked").write_bytes(b"mine\x00\n")
    head = project.git("rev-parse", "HEAD")
    assert project.loopd("run", "goal.yaml").status == 0
    assert not (project.root / "with space").exists()
    shown = project.loopd("show", "last").out
    (command,) = re.findall(r"(?m)^ *(?:before attempt 1 +)?(mkdir .*git .*)$", shown)
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    subprocess.run(["sh", "-c", command], cwd=elsewhere, check=True, capture_output=True)
    (back,) = elsewhere.iterdir()
    assert (back / "text.txt").read_bytes() == b"edited\nby hand\r\n"
    assert (back / "with space" / "untracked").read_bytes() == b"mine\x00\n"
    assert (back / "readme.txt").read_bytes() == b"a project\n"
    assert project.git("rev-parse", "HEAD") == head
