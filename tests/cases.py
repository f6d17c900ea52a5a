"""What the tests of the public cases share: agents as shell scripts, their notes outside the tree, quick timers."""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from running import Project, contract, is_running

DATA = Path(__file__).parent / "data"
# Every timer that a run of one minute would feel.
QUICK = {
    "LOOPD_BACK_OFF__BASE": "0.1s",
    "LOOPD_BACK_OFF__CAP": "0.2s",
    "LOOPD_GRACE__INTERRUPT": "0.5s",
    "LOOPD_GRACE__TERMINATE": "0.5s",
    "LOOPD_GRACE__FINAL": "0.5s",
}
DONE = ["grep -qx done out.txt"]
# Counts its own starts in $N, outside the tree.
COUNTING = 'N=$(($(cat "$NOTES/count" 2>/dev/null || echo 0) + 1)); echo "$N" > "$NOTES/count"\n'


def notes(project: Project) -> Path:
    """A folder beside the project, which agents know as $NOTES: what they tell the test, not loopd."""
    folder = project.root.parent / f"{project.root.name}-notes"
    folder.mkdir(exist_ok=True)
    return folder


def told(project: Project, name: str) -> str:
    """What an agent wrote to $NOTES/name; empty before that."""
    path = notes(project) / name
    return path.read_text(errors="replace") if path.exists() else ""


def launches(project: Project) -> int:
    """How often an agent that starts with `COUNTING` was started."""
    return int(told(project, "count") or 0)


def with_env(project: Project, env: Mapping[str, str]) -> Project:
    """The project with more in the environment of its loopd."""
    return replace(project, env={**project.env, **env})


def prepare(
    project: Project,
    script: str,
    checks: list[str] | None = None,
    more: str = "",
    agent: str = "{command: [sh, agent.sh]}",
    goal: str = "case",
    files: Mapping[str, str] | None = None,
) -> Project:
    """A committed project with `agent.sh`, a contract `goal.yaml` and quick timers. `script` sees $NOTES and $N."""
    project = with_env(project, {**QUICK, "NOTES": str(notes(project))})
    project.write({"readme.txt": "a project\n", **(files or {})})
    (project.root / "agent.sh").write_text(COUNTING + script)
    (project.root / "goal.yaml").write_text(contract(goal, DONE if checks is None else checks, agent, more))
    return project.commit()


def before_attempt_1(out: str) -> str:
    """What a run printed before its first attempt, without times of day, as one line."""
    said = out.partition("attempt 1 ")[0]
    return " ".join(re.sub(r"(?m)^\d\d:\d\d:\d\d +", "", said).split("\n"))


def attempts(project: Project) -> list[dict[str, Any]]:
    """What the ledger says of the ends of all attempts."""
    return project.of_kind("attempt.ended")


def outcomes(project: Project) -> list[str]:
    """Outcomes of all attempts after their capture."""
    return [data["outcome"] for data in project.of_kind("attempt.captured")]


def last_state(project: Project) -> str:
    """The state that the last ending in the ledger names."""
    return str(project.of_kind("run.ended")[-1]["state"])


def marked(project: Project) -> list[int]:
    """Live processes that carry the marker of one of this project's runs, whoever their parent is."""
    runs = {folder.name.encode() for folder in project.run_folders()}
    found = []
    for pid, environ in _environments():
        marker = re.search(rb"(?:^|\0)LOOPD_MARKER=([^/\0]*)", environ)
        if marker and marker[1] in runs and is_running(pid):
            found.append(pid)
    return found


def leftovers(project: Project) -> list[int]:
    """Live processes of this project: of its attempts and checks, its supervisors, and their helpers."""
    state = f"LOOPD_STATE={project.state}".encode()
    own = [pid for pid, environ in _environments() if state in environ.split(b"\0") and is_running(pid)]
    return sorted({*marked(project), *own})


def _environments() -> Iterator[tuple[int, bytes]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                yield int(name), Path(f"/proc/{name}/environ").read_bytes()
            except OSError:
                continue


def picture(root: Path) -> dict[str, tuple[str, bytes]]:
    """Every file below a folder with its kind, mode and bytes; `.git` included."""
    seen = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        kind = stat.filemode(status.st_mode)
        content = os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        seen[str(path.relative_to(root))] = (kind, content)
    return seen
