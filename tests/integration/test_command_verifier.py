"""Criteria run as real processes: what ends in a pass, a fail or an error, and what is left afterwards."""

import json
import os
import sys
import time
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from loopd.adapters.clock import SystemClock
from loopd.adapters.containment.bubblewrap import find_bubblewrap
from loopd.adapters.containment.containers import OwnedContainers
from loopd.adapters.verifiers.command import CheckTerms, CommandVerifiers
from loopd.domain.contract import Criterion
from loopd.domain.errors import BlockedError
from loopd.domain.verdict import Status
from loopd.ports.processes import Bind, ProcessSpec, Sandbox
from loopd.ports.verifier import CheckContext
from loopd.ports.workspace import CheckTree

SEARCH_PATH = os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"])


@pytest.fixture
def verifiers():
    """The adapter over real containers; the helper is ended afterwards."""
    containers = OwnedContainers()
    yield CommandVerifiers(containers, SystemClock(), CheckTerms(SEARCH_PATH, os.environ, output_cap_bytes=2_000_000))
    containers.close()


@pytest.fixture
def context(tmp_path):
    """A tree without bubblewrap."""
    tree = tmp_path / "tree"
    tree.mkdir()
    return CheckContext(CheckTree(tree, tree, None), tmp_path / "check", f"test/{tmp_path.name}", attempt=3)


def criterion(run, **more):
    """A criterion as a contract gives it; text is python code."""
    command = [sys.executable, "-c", run] if isinstance(run, str) else run
    return Criterion.model_validate({"name": "c", "run": command, **more})


def check(verifiers, criterion, context):
    """One check, to its end."""
    return anyio.run(verifiers.check, criterion, context)


@pytest.mark.parametrize(
    ("code", "status", "exit_status", "reason"),
    [
        ("", Status.PASS, 0, ""),
        ("raise SystemExit(1)", Status.FAIL, 1, ""),
        ("raise SystemExit(2)", Status.FAIL, 2, ""),
        ("raise SystemExit(77)", Status.FAIL, 77, ""),
        ("import os; os.kill(os.getpid(), 11)", Status.ERROR, None, "killed by SIGSEGV"),
        ("import os; os.kill(os.getpid(), 9)", Status.ERROR, None, "killed by SIGKILL"),
        ("print('ALL TESTS PASS'); raise SystemExit(1)", Status.FAIL, 1, ""),
    ],
)
def test_h7_exit_0_passes_any_other_exit_fails_and_a_signal_is_an_error(
    verifiers, context, code, status, exit_status, reason
):
    """A plain command needs no convention of loopd's; its words are not read."""
    verdict = check(verifiers, criterion(code), context)
    assert (verdict.status, verdict.exit, verdict.reason) == (status, exit_status, reason)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (["no-such-program-4711"], "no-such-program-4711"),
        (["./not-executable"], "not executable"),
        (["./no-interpreter"], "interpreter"),
    ],
)
def test_h7_what_cannot_be_started_is_an_error_that_says_why(verifiers, context, run, reason):
    """A missing binary is not a failing test."""
    (context.tree.path / "not-executable").write_text("#!/bin/sh\n")
    script = context.tree.path / "no-interpreter"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    verdict = check(verifiers, criterion(run), context)
    assert verdict.status is Status.ERROR
    assert verdict.reason.startswith("could not be started: ")
    assert reason in verdict.reason


def test_h7_a_timeout_is_an_error_and_leaves_no_process(verifiers, context):
    """SIGTERM ignored, a grandchild in a session of its own: ended within the grace."""
    code = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    started = time.monotonic()
    verdict = check(verifiers, criterion(code, timeout="1s"), context)
    assert (verdict.status, verdict.reason) == (Status.ERROR, "timed out after 1 s")
    assert time.monotonic() - started < 30
    child = int((context.folder / "stdout.log").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_h7_huge_output_is_an_error_and_the_log_is_capped(verifiers, context):
    """A check that prints for ever is ended, and the disk is not filled."""
    flood = "import sys\nwhile True: sys.stdout.write('x' * 100000)"
    verdict = check(verifiers, criterion(flood), context)
    assert (verdict.status, verdict.reason) == (Status.ERROR, "too much output: more than 2,000,000 bytes")
    assert (context.folder / "stdout.log").stat().st_size <= 2_000_000
    quick = check(verifiers, criterion("import sys; sys.stderr.write('x' * 3000000)"), context)
    assert quick.reason == "too much output: more than 2,000,000 bytes"


def test_h7_empty_output_is_no_reason_for_anything(verifiers, context):
    """A silent check passes or fails by its exit."""
    assert check(verifiers, criterion(["true"]), context).status is Status.PASS
    assert check(verifiers, criterion(["false"]), context).summary == "exit 1"


def test_pipe_5_output_is_kept_raw_and_a_process_left_behind_is_ended_and_flagged(verifiers, context):
    """Bytes as they came; a daemon of the check does not outlive it."""
    code = (
        "import os, subprocess; os.write(1, b'\\x1b[31m\\xff\\n'); os.write(2, b'err')\n"
        "subprocess.Popen(['sleep', '600'], start_new_session=True)"
    )
    verdict = check(verifiers, criterion(code), context)
    assert verdict.status is Status.PASS
    assert verdict.flags == ("left 1 processes running",)
    assert (context.folder / "stdout.log").read_bytes() == b"\x1b[31m\xff\n"
    assert (context.folder / "stderr.log").read_bytes() == b"err"


def test_a_check_gets_its_tree_a_short_environment_and_a_private_home(verifiers, context, monkeypatch):
    """No token of the owner's, stdin at its end, HOME and TMPDIR empty and gone afterwards."""
    monkeypatch.setenv("OWNER_TOKEN", "secret")
    code = (
        "import json, os, sys; home = os.environ['HOME']; open(home + '/mark', 'w'); os.mkdir(home + '/ro')\n"
        "os.chmod(home + '/ro', 0o500)\n"
        "print(json.dumps([os.getcwd(), sorted(os.environ), home, sys.stdin.read(), sys.argv[1:]]))"
    )
    check(verifiers, criterion([sys.executable, "-c", code, "{out}/x", "{tree}", "{other}"]), context)
    cwd, names, home, stdin, argv = json.loads((context.folder / "stdout.log").read_text())
    assert cwd == str(context.tree.path)
    assert "OWNER_TOKEN" not in names
    assert stdin == ""
    assert argv == [f"{context.folder}/out/x", str(context.tree.path), "{other}"]
    assert not Path(home).exists()


def test_a_home_that_a_check_touched_is_not_the_next_one_s(verifiers, context):
    """An untouched one is: making a folder costs more than all else of a short check."""
    scripts = [
        "pass",
        "open(home + '/left', 'w')",
        "pass",
        "os.chmod(home, 0o755)",
        "os.setxattr(home, 'user.left', b'x')",
        "pass",
    ]
    told = "import os, stat; home = os.environ['HOME']; status = os.stat(home)\n"
    told += "print(status.st_ino, stat.S_IMODE(status.st_mode), os.listdir(home), os.listxattr(home))\n"
    lines = []
    for number, script in enumerate(scripts):
        apart = replace(context, folder=context.folder / str(number))
        assert check(verifiers, criterion(told + script), apart).status is Status.PASS
        lines.append((apart.folder / "stdout.log").read_text().split(maxsplit=1))
    assert {line[1] for line in lines} == {"448 [] []\n"}
    folders = [line[0] for line in lines]
    assert folders[0] == folders[1]
    assert folders[2] == folders[3]
    assert not any((context.folder / str(number) / "home").exists() for number in (0, 1, 2, 3, 4))


def test_variables_that_the_contract_names_are_handed_over(context):
    """They come last, so the contract can also replace a default."""
    containers = OwnedContainers()
    terms = CheckTerms(SEARCH_PATH, os.environ, extra_env={"DATABASE_URL": "sqlite://", "CI": "false"})
    code = "import os; raise SystemExit((os.environ['DATABASE_URL'], os.environ['CI']) != ('sqlite://', 'false'))"
    verdict = check(CommandVerifiers(containers, SystemClock(), terms), criterion(code), context)
    containers.close()
    assert verdict.status is Status.PASS


def test_baseline_and_sealed_are_filled_in_or_are_an_error(verifiers, context, tmp_path):
    """A placeholder that nothing stands for must not reach a program as text."""
    words = criterion(["echo", "{baseline}", "{sealed}"])
    assert check(verifiers, words, context).reason == (
        "could not be started: {baseline} stands in the command, but there is none"
    )
    full = replace(context, baseline=CheckTree(tmp_path, tmp_path, None), sealed=tmp_path / "sealed")
    assert check(verifiers, words, full).status is Status.PASS
    assert (context.folder / "stdout.log").read_text() == f"{tmp_path} {tmp_path}/sealed\n"


def writes(xml, exit_status):
    """Code that writes a report into {out} and leaves."""
    return f"import sys; open(sys.argv[1], 'w').write({xml!r}); raise SystemExit({exit_status})"


GREEN = (
    '<testsuite><testcase classname="t" name="a"/><testcase classname="t" name="s"><skipped/></testcase></testsuite>'
)
RED = '<testsuite><testcase classname="t" name="a"><failure message="1 != 2"/></testcase></testsuite>'
EMPTY = "<testsuite/>"


@pytest.mark.parametrize(
    ("xml", "exit_status", "status", "said"),
    [
        (GREEN, 0, Status.PASS, "1 tests passed, 1 skipped"),
        (RED, 1, Status.FAIL, "1 of 1 tests failed"),
        (EMPTY, 4, Status.FAIL, "exit 4"),  # pytest on a file that is not there yet
        (RED, 0, Status.ERROR, "exit 0, but the report tells of 1 failures"),
        (GREEN, 1, Status.ERROR, "exit 1, but the report shows no failure"),
        (EMPTY, 0, Status.ERROR, "exit 0, but the report names no test that ran"),
        ("<testsuite>", 0, Status.ERROR, "exit 0, but the report is not well-formed"),
    ],
)
def test_h7_a_report_that_contradicts_the_exit_is_an_error(verifiers, context, xml, exit_status, status, said):
    """Two witnesses must agree."""
    run = [sys.executable, "-c", writes(xml, exit_status), "{out}/junit.xml"]
    verdict = check(verifiers, criterion(run, report="{out}/junit.xml"), context)
    assert verdict.status is status
    assert (verdict.reason if status is Status.ERROR else verdict.summary).startswith(said)
    if xml is GREEN and status is Status.PASS:
        assert (verdict.tests, verdict.skipped) == (("t::a",), ("t::s",))
    if xml is RED and status is Status.FAIL:
        assert verdict.failed_tests == ("t::a",)


@pytest.mark.parametrize("code", ["", "raise SystemExit(1)"])
def test_h7_a_declared_report_that_is_missing_is_an_error(verifiers, context, code):
    """Also one that lies in the tree since before the check: it was not this check that wrote it."""
    verdict = check(verifiers, criterion(code, report="{out}/junit.xml"), context)
    assert verdict.status is Status.ERROR
    assert verdict.reason.endswith("but the report is missing")
    (context.tree.path / "junit.xml").write_text(GREEN)
    verdict = check(verifiers, criterion(code, report="junit.xml"), context)
    assert verdict.status is Status.ERROR
    assert verdict.reason.endswith("but the report was there before and was not written anew")


def answers(report, exit_status):
    """Code that speaks the protocol."""
    return (
        "import json, os; context = json.load(open(os.environ['LOOPD_CONTEXT'])); print(json.dumps(context))\n"
        f"report = {report!r}\n"
        "if report:\n"
        "    whole = {'schema': 'loopd.verifier/1', **report}\n"
        "    open(context['out'] + '/report.json', 'w').write(json.dumps(whole))\n"
        f"raise SystemExit({exit_status})"
    )


@pytest.mark.parametrize(
    ("report", "exit_status", "status", "reason"),
    [
        (None, 0, Status.PASS, ""),
        (None, 1, Status.FAIL, ""),
        (None, 2, Status.ERROR, "it says so itself"),
        (None, 77, Status.SKIP, ""),
        (None, 5, Status.ERROR, "exit 5 is not part of the protocol (0, 1, 2, 77)"),
        ({"status": "pass"}, 0, Status.PASS, ""),
        ({"status": "error", "summary": "no GPU"}, 2, Status.ERROR, "no GPU"),
        ({"status": "pass"}, 1, Status.ERROR, 'exit 1, but the report says "pass"'),
        ({"status": "fail"}, 0, Status.ERROR, 'exit 0, but the report says "fail"'),
        ({"status": "pass", "extra": 1}, 0, Status.ERROR, "exit 0, but the report does not follow loopd.verifier/1"),
    ],
)
def test_a_verifier_that_speaks_the_protocol(verifiers, context, report, exit_status, status, reason):
    """Exit 0, 1, 2, 77, and a report that may add to it but not contradict it."""
    verdict = check(verifiers, criterion(answers(report, exit_status), protocol="loopd"), context)
    assert verdict.status is status
    assert verdict.reason.startswith(reason)
    assert bool(verdict.reason) == bool(reason)


def test_a_protocol_verifier_is_told_its_context_and_its_report_becomes_the_verdict(verifiers, context):
    """Tree, attempt, parameters, baseline metrics; metrics, findings, summary, private evidence."""
    told = replace(context, parameters={"runs": 7}, baseline_metrics={"median_s": 1.5})
    report = {
        "status": "fail", "summary": "slower\x1b[2J" + "x" * 5_000, "evidence": "for the owner",
        "metrics": {"median_s": {"value": 2.5, "unit": "s"}}, "findings": [{"message": "slow", "rule": "speed"}],
    }  # fmt: skip
    verdict = check(verifiers, criterion(answers(report, 1), protocol="loopd"), told)
    seen = json.loads((context.folder / "stdout.log").read_text())
    assert (seen["tree"], seen["attempt"], seen["with"]) == (str(context.tree.path), 3, {"runs": 7})
    assert seen["baseline_metrics"] == {"median_s": 1.5}
    assert verdict.metrics["median_s"].value == 2.5
    assert verdict.failed_tests == ("speed",)
    assert verdict.evidence == "for the owner"
    assert len(verdict.summary.encode()) <= 2_000
    assert "\x1b" not in verdict.summary


def test_several_runs_that_disagree_are_flaky_and_the_deciding_output_is_kept(verifiers, context):
    """Every run in a folder of its own; two of three pass."""
    code = "import os; n = len(os.listdir('.')); open(f'{n}', 'w'); print('run', n)\nraise SystemExit(n == 1)"
    verdict = check(verifiers, criterion(code, runs=3, rule="all"), context)
    assert (verdict.status, verdict.flags, verdict.summary) == (Status.FAIL, ("flaky",), "2 of 3 runs passed")
    assert (context.folder / "stdout.log").read_text() == "run 1\n"


def test_a_check_left_by_a_dead_supervisor_is_ended_before_it_is_repeated(verifiers, context):
    """The same folder and marker: adopted, ended, made anew."""
    context.folder.mkdir()
    waits = ("/bin/sh", "-c", "echo $$ > pid.new && mv pid.new pid; exec sleep 600")
    spec = ProcessSpec(context.folder, waits, context.tree.path, {"PATH": SEARCH_PATH}, context.marker)
    pid = context.tree.path / "pid"

    async def repeated():
        await verifiers._containers.start(spec)
        with anyio.fail_after(30):
            while not pid.exists():
                await anyio.sleep(0.01)
        return await verifiers.check(criterion(["true"]), context)

    assert anyio.run(repeated).status is Status.PASS
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_a_check_that_is_repeated_starts_from_a_fresh_folder(verifiers, context):
    """Nothing of the check before is in {out}."""
    leave = criterion("import sys; open(sys.argv[1] + '/mark', 'w')".replace("sys.argv[1]", "'{out}'"))
    check(verifiers, leave, context)
    look = criterion("import os; raise SystemExit(len(os.listdir('{out}')))")
    assert check(verifiers, look, context).status is Status.PASS


def test_a_cancelled_check_leaves_no_process(verifiers, context):
    """An interrupt ends the check before loopd goes on."""

    async def cancelled():
        with anyio.move_on_after(1.0):
            await verifiers.check(
                criterion("import os, time; print(os.getpid(), flush=True); time.sleep(600)"), context
            )

    anyio.run(cancelled)
    with pytest.raises(ProcessLookupError):
        os.kill(int((context.folder / "stdout.log").read_text()), 0)


def test_locate_names_the_program_or_the_path_searched(verifiers):
    """Said before any attempt."""
    assert verifiers.locate(criterion(["sh", "-c", "true"])) in ("/bin/sh", "/usr/bin/sh")
    assert verifiers.locate(criterion(["./check.sh"])) == "./check.sh (in the tree)"
    with pytest.raises(BlockedError, match="/usr/bin"):
        verifiers.locate(criterion(["no-such-program-4711"]))
    with pytest.raises(BlockedError, match="coverage is not available"):
        verifiers.locate(Criterion.model_validate({"name": "c", "use": "coverage"}))


def test_under_bubblewrap_a_check_writes_its_folders_and_the_tree_and_nothing_else(verifiers, tmp_path):
    """A private /tmp, our folders bound back although all of /tmp is hidden, the report found outside."""
    if anyio.run(find_bubblewrap) is None:
        pytest.skip("bubblewrap does not work here")
    tree, seen = tmp_path / "tree", tmp_path / "workspace"
    tree.mkdir()
    seen.mkdir()
    view = Sandbox((Bind(tree, seen, writable=True),), (Path("/tmp"),), network=False)
    context = CheckContext(CheckTree(tree, seen, view), tmp_path / "check", "test/sandbox")
    code = (
        "import os\n"
        "for place in ('made', '{out}/made', '/tmp/made', os.environ['HOME'] + '/x'): open(place, 'w')\n"
        "open('report.xml', 'w').write('''" + GREEN + "''')\n"
        "print(os.getcwd(), sorted(os.listdir('{tree}/..')))\n"
        "open('{out}/../stdout.log', 'a').write('forged')\n"
    )
    verdict = check(verifiers, criterion(code, report="{tree}/report.xml"), context)
    assert verdict.status is Status.PASS, (context.folder / "stderr.log").read_text()
    assert (context.folder / "stdout.log").read_text() == f"{seen} ['check', 'workspace']\n"
    assert (tree / "made").exists()
    assert (context.folder / "out" / "made").exists()
    assert not Path("/tmp/made").exists()
