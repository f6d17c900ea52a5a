"""Real projects with real bugs, from broken to mended.

`-k without_loopd`: the facts of packages.toml by plain commands; `-k through_loopd`: the run by loopd.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from e2e.packages import (
    PACKAGES,
    Package,
    apply_fix,
    apply_wrong,
    archives,
    commit,
    content,
    environment,
    keep,
    must,
    prepare,
    require,
    run,
    unpack,
    workspace,
    write,
)

pytestmark = pytest.mark.timeout(300)
SUPERVISOR = Path(__file__).resolve().parents[2] / "supervisor"
RUN_TIMEOUT_S = 240
ENDINGS = (pytest.fail.Exception, pytest.skip.Exception)  # a skip would hide that a failure was due


@pytest.fixture(params=sorted(PACKAGES))
def package(request: pytest.FixtureRequest) -> Package:
    """Each project in turn; skipped by name where its toolchain is missing."""
    chosen = PACKAGES[request.param]
    require(chosen)
    return chosen


def test_the_facts_of_a_package_hold_without_loopd(package: Package, tmp_path: Path) -> None:
    """Old: criterion red for the named reason, suite green. Wrong change: suite red. Fix: both green."""
    tree, fixed_tree = workspace(package, tmp_path)
    prepare(package, tree)

    status, output = run(package.criterion, tree)
    assert status != 0 and package.fails_with in output, output
    assert package.passes_with in must(package.suite, tree)

    apply_wrong(package, tree)
    status, output = run(package.suite, tree)
    assert status != 0, output
    status, output = run(package.criterion, tree)
    assert status != 0, output

    apply_fix(package, tree, fixed_tree)
    must(package.criterion, tree)
    assert package.passes_with in must(package.suite, tree)


def test_a_package_is_mended_in_the_third_attempt_through_loopd(package: Package, tmp_path: Path) -> None:
    """An idle attempt, a harmful one, the fix: met after exactly three, with the old release plus the fix."""
    tree, fixed_tree = workspace(package, tmp_path)
    contract = tree / "goals" / f"{package.key}.yaml"
    write(contract, _yaml(_contract(package, _script(package, fixed_tree, tmp_path / "agent"))))
    commit(tree, "Add the goal")
    if package.venv == "owner":
        prepare(package, tree)
    expected = _expected(package, tree, fixed_tree, tmp_path / "expected")
    head = must(["git", "rev-parse", "HEAD"], tree)

    done = _loopd("run", f"goals/{package.key}.yaml", "--json", folder=tree, state=tmp_path / "state")

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert (events[-1]["kind"], events[-1]["data"]["state"]) == ("run.ended", "met")
    assert sum(event["kind"] == "attempt.ended" for event in events) == 3
    assert _verdicts(tmp_path / "state", fresh=False) == {
        1: {"fixed": "fail", "suite": "pass"},  # nothing was done
        2: {"fixed": "fail", "suite": "fail"},  # rejected: worse than before
        3: {"fixed": "pass", "suite": "pass"},
    }
    assert _verdicts(tmp_path / "state", fresh=True) == {3: {"fixed": "pass", "suite": "pass"}}
    assert content(tree) == expected
    assert must(["git", "rev-parse", "HEAD"], tree) == head


def test_a_missing_program_skips_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has no such toolchain still gets a green suite, and is told."""
    monkeypatch.delenv("LOOPD_NO_SKIP", raising=False)
    with pytest.raises(pytest.skip.Exception, match="needs no-such-program"):
        require(replace(PACKAGES["jwt-go"], needs=("no-such-program",)))


def test_a_missing_program_is_a_failure_where_nothing_may_be_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """CI cannot lose a test by losing a toolchain."""
    monkeypatch.setenv("LOOPD_NO_SKIP", "1")
    with pytest.raises(ENDINGS, match="needs no-such-program") as ended:
        require(replace(PACKAGES["jwt-go"], needs=("no-such-program",)))
    assert ended.type is pytest.fail.Exception


def test_a_fetch_that_finds_nothing_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network and an empty cache fail with the command and the client's words, never skip."""
    monkeypatch.setenv("LOOPD_TEST_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ENDINGS, match=r"cannot fetch.*pip download") as ended:
        archives(PACKAGES["pathspec"])
    assert ended.type is pytest.fail.Exception
    assert list(tmp_path.iterdir()) == []


def test_an_archive_with_another_hash_is_not_kept(tmp_path: Path) -> None:
    """What a registry serves is used only if it is what was pinned."""
    package = PACKAGES["pathspec"]
    served = tmp_path / "served" / package.old.file
    write(served, "something else")
    with pytest.raises(pytest.fail.Exception, match=f"pinned is {package.old.sha256}"):
        keep(package, package.old, served, tmp_path)
    assert not (tmp_path / package.old.file).exists()


def test_an_archive_cannot_write_outside_its_folder(tmp_path: Path) -> None:
    """A member that climbs out is refused, by name."""
    with tarfile.open(tmp_path / "evil.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("../climbed"))
    with pytest.raises(AssertionError, match=r"contains '\.\.'"):
        unpack(tmp_path / "evil.tar", tmp_path / "inside")
    assert not (tmp_path / "climbed").exists()


def test_an_archive_s_files_belong_to_whoever_unpacks(tmp_path: Path) -> None:
    """A packager's user id would make git refuse the tree, where tests run as root."""
    with tarfile.open(tmp_path / "packed.tar", "w") as tar:
        for name, kind in (("top", tarfile.DIRTYPE), ("top/file", tarfile.REGTYPE)):
            member = tarfile.TarInfo(name)
            member.uid, member.gid, member.type, member.mode = 4242, 4242, kind, 0o755
            tar.addfile(member)
    top = unpack(tmp_path / "packed.tar", tmp_path / "inside")
    assert {path.stat().st_uid for path in (top, top / "file")} == {os.getuid()}


def _contract(package: Package, script: Path) -> dict[str, Any]:
    """What the owner of such a project would write."""
    contract: dict[str, Any] = {
        "goal": package.key,
        "objective": f"{package.name} no longer has this bug: {package.bug}\n",
        "agent": {"scripted": str(script)},
        "criteria": [
            {"name": "fixed", "run": list(package.criterion), "baseline": "fail", "timeout": "2m"},
            {"name": "suite", "run": list(package.suite), "baseline": "pass", "timeout": "2m"},
        ],
        "budget": {"attempts": 5, "time": "10m"},
    }
    if package.venv == "setup":
        contract["setup"] = list(package.preparation)
    if package.venv == "owner":
        contract["environment"] = {"carry": [".venv"]}
    return contract


def _script(package: Package, fixed_tree: Path, folder: Path) -> Path:
    """Three attempts; the files of the fix lie beside the script, outside the workspace."""
    for path in package.fix:
        (folder / "fix" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(fixed_tree / path, folder / "fix" / path)
    wrong = package.wrong
    attempts: list[list[dict[str, Any]]] = [
        [{"print": "I looked around and all is well."}],
        [
            {"replace": {"path": wrong.path, "old": wrong.old, "new": wrong.new}},
            {"print": "Done, all tests pass."},
        ],
        [
            *({"copy": {"from": f"fix/{path}", "to": path}} for path in package.fix),
            {"print": "This time it is done."},
        ],
    ]
    write(folder / "script.yaml", _yaml(attempts))
    return folder / "script.yaml"


def _expected(package: Package, tree: Path, fixed_tree: Path, folder: Path) -> list[str]:
    """What the workspace must hold in the end: the tree as it is now plus the fix."""
    shutil.copytree(tree, folder, symlinks=True, ignore=shutil.ignore_patterns(".venv"))
    apply_fix(package, folder, fixed_tree)
    return content(folder)


def _loopd(*arguments: str, folder: Path, state: Path) -> subprocess.CompletedProcess[str]:
    """The program as a user starts it, with a state folder of its own."""
    return subprocess.run(
        [sys.executable, "-m", "loopd", *arguments],
        cwd=folder,
        env=environment(PYTHONPATH=str(SUPERVISOR), LOOPD_STATE=str(state)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )


def _verdicts(state: Path, *, fresh: bool) -> dict[int, dict[str, str]]:
    """Attempt -> criterion -> status in the ledger of the only run; `fresh`: of the final confirmation."""
    (ledger,) = state.glob("runs/*/ledger.ndjson")
    found: dict[int, dict[str, str]] = {}
    for event in map(json.loads, ledger.read_text(encoding="ascii").splitlines()):
        data = event["data"]
        if event["kind"] == "verdict" and data["fresh"] == fresh:
            verdict = data["verdict"]
            found.setdefault(data["attempt"], {})[verdict["criterion"]] = verdict["status"]
    found.pop(0, None)  # the baseline
    return found


def _yaml(value: object) -> str:
    text = io.StringIO()
    YAML(typ="safe", pure=True).dump(value, text)
    return text.getvalue()
