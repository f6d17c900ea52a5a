"""The smaller parts of the trees, one by one."""

import os
from pathlib import Path

import pytest

from loopd.adapters.workspace.content_log import ContentLog
from loopd.adapters.workspace.ignore import anchored, inherited
from loopd.adapters.workspace.plan import WorkspacePlan
from loopd.adapters.workspace.record import load
from loopd.adapters.workspace.repository import same_but_for_form
from loopd.adapters.workspace.toolchains import needed_folders
from loopd.adapters.workspace.view import sandbox
from loopd.domain.errors import StateError
from loopd.ports.processes import Bind
from trees import write


@pytest.mark.parametrize(
    ("rule", "at_root"),
    [
        (b"*.log", b"/a/b/**/*.log"),
        (b"/local", b"/a/b/local"),
        (b"x/y", b"/a/b/x/y"),
        (b"build/", b"/a/b/**/build/"),
        (b"!keep", b"!/a/b/**/keep"),
        (b"# comment", b""),
        (b"  ", b""),
        (b"\\#name", b"/a/b/**/\\#name"),
        (b"**/deep/x", b"/a/b/**/deep/x"),
        (b"*.tmp\r", b"/a/b/**/*.tmp"),
    ],
)
def test_rules_of_a_folder_are_anchored_at_the_root(rule: bytes, at_root: bytes) -> None:
    assert anchored(rule, "a/b") == at_root


def test_names_of_folders_are_no_patterns() -> None:
    assert anchored(b"x", "we[i]rd*/ !") == b"/we\\[i\\]rd\\*/\\ \\!/**/x"
    assert anchored(b"x\n\ny/", "") == b"x\ny/"


@pytest.mark.parametrize(
    ("rule", "inside"),
    [
        (b"*.log", b"*.log"),
        (b"/sub/in/x", b"/x"),
        (b"sub/in/x", b"/x"),
        (b"/other/x", b""),
        (b"**/x/y", b"**/x/y"),
    ],
)
def test_rules_above_the_workspace_hold_where_they_reach_into_it(rule: bytes, inside: bytes) -> None:
    assert inherited(rule, "sub/in") == inside


@pytest.mark.parametrize(
    ("committed", "on_disk", "same"),
    [
        (b"a\nb\n", b"a\r\nb\r\n", True),
        (b"a\n", b"b\r\n", False),
        (
            b"version https://git-lfs.github.com/spec/v1\n"
            b"oid sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae\nsize 3\n",
            b"foo",
            True,
        ),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n", b"foo", False),
    ],
)
def test_line_ends_and_pointers_are_another_form_of_the_same_file(committed: bytes, on_disk: bytes, same: bool) -> None:
    assert same_but_for_form(committed, on_disk) is same


def test_contents_survive_a_torn_last_record(tmp_path: Path) -> None:
    log = ContentLog(tmp_path / "log")
    log.add("a", b"one\n")
    log.add("b", b"")
    log.add("a", b"ignored: known")
    with (tmp_path / "log").open("ab") as file:
        file.write(b"c 100\nonly a part")
    again = ContentLog(tmp_path / "log")
    assert (again.get("a"), again.get("b"), "c" in again) == (b"one\n", b"", False)
    again.add("c", b"three")
    assert ContentLog(tmp_path / "log").get("c") == b"three"
    with pytest.raises(StateError, match="not known"):
        again.get("d")


def test_record_of_another_version_or_torn_is_refused(tmp_path: Path) -> None:
    assert load(tmp_path / "none") is None
    write(tmp_path, {"old": '{"format": "loopd.trees/99"}', "torn": '{"form'})
    for name in ("old", "torn"):
        with pytest.raises(StateError):
            load(tmp_path / name)


def test_programs_below_home_bring_what_they_need_and_nothing_private(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "home/work"
    write(
        home,
        {
            "python/bin/python3": "ELF",
            "venv/pyvenv.cfg": f"home = {home}/python/bin\n",
            "venv/bin/pytest": f"#!{home}/venv/bin/python\n",
            "pipx/tool/bin/python": "ELF",
            ".local/bin/tool": f"#!{home}/pipx/tool/bin/python\n",
            ".local/lib/x": "",
            ".local/share/secret": "",
            "bin/mine": "ELF",
            ".ssh/id": "",
            ".cargo/bin/cargo": "ELF",
            "work/.venv/bin/python": "ELF",
            "state/bin/x": "ELF",
        },
    )
    os.symlink(home / "python/bin/python3", home / "venv/bin/python")
    folders = ["venv/bin", ".local/bin", "bin", "work/.venv/bin", ".cargo/bin", "missing/bin"]
    path = ":".join(["/usr/bin", *(f"{home}/{folder}" for folder in folders), "relative"])
    found = needed_folders(path, [home], {"HOME": str(home)}, [work, home / "state"])
    names = [str(folder.relative_to(home)) for folder in found]
    assert names == [".cargo", ".local/bin", ".local/lib", "bin", "pipx/tool", "python", "venv"]


def test_view_hides_outer_folders_first_and_shows_mounts_and_no_secrets(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write(home, {".cargo/credentials.toml": "token", "data/set": "x"})
    write(tmp_path, {"agent.sock": "", "state/tree/.venv/x": "", "p/x": ""})
    plan = WorkspacePlan(tmp_path / "p", tmp_path / "state", "r", "g", "/usr/bin", mounts=(home / "data",))
    host = {"HOME": str(home), "SSH_AUTH_SOCK": str(tmp_path / "agent.sock")}
    tree = tmp_path / "state/tree"
    view = sandbox(plan, tree, [plan.root], read_only=[".venv"], network=False, host=host)
    assert [path for path in view.hidden if path.is_relative_to(tmp_path)] == [
        tmp_path / "agent.sock",
        home,
        tmp_path / "state",
    ]
    assert view.hidden.index(Path("/tmp")) < view.hidden.index(home)
    credentials = Bind(Path("/dev/null"), home / ".cargo/credentials.toml")
    assert view.binds.index(Bind(home / ".cargo", home / ".cargo")) < view.binds.index(credentials)
    assert Bind(home / "data", home / "data") in view.binds
    assert view.binds[-2:] == (
        Bind(tree, plan.root, writable=True),
        Bind(tree / ".venv", plan.root / ".venv"),
    )
    assert view.network is False


def test_a_link_the_agent_made_moves_no_mount(tmp_path: Path) -> None:
    """A mount point is resolved on the host, where the agent's tree lies at that path."""
    write(tmp_path, {"state/tree/.venv/x": "", "p/x": ""})
    os.symlink("/usr", tmp_path / "p/.venv")
    plan = WorkspacePlan(tmp_path / "p", tmp_path / "state", "r", "g", "/usr/bin")
    view = sandbox(plan, tmp_path / "state/tree", [plan.root], read_only=[".venv"], network=False, host={})
    assert view.binds[-1] == Bind(tmp_path / "state/tree", plan.root, writable=True)
