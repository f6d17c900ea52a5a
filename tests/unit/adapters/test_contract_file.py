"""Loading a contract: every problem in one go, each at its place, and never anything but a `ContractError`."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from contract_texts import SMALL, TRIAL_07, load, problems
from loopd.adapters.contract_file import load_contract, understand
from loopd.domain.errors import ContractError


def test_a_small_contract_is_loaded(tmp_path: Path) -> None:
    loaded = load(tmp_path, SMALL)
    assert (loaded.root, loaded.folder, loaded.text) == (tmp_path, tmp_path, SMALL)
    assert loaded.goal.criteria[0].name == "pytest"
    assert len(loaded.digest) == 64


@pytest.mark.parametrize(("line", "message"), TRIAL_07)
def test_trial_07_a_budget_line_that_removes_the_cap_is_refused(tmp_path: Path, line: str, message: str) -> None:
    """File, line, full name, value as written, and what would be right."""
    found = problems(tmp_path, f"{SMALL}budget:\n  {line}\n")
    assert len(found) == 1
    assert found[0].startswith("goal.yaml:7:")
    assert message in found[0]


def test_trial_07_a_key_given_twice_names_both_lines(tmp_path: Path) -> None:
    """The second of two budgets never wins in silence."""
    found = problems(tmp_path, f"{SMALL}budget:\n  attempts: 3\n  attempts: 300\n")
    assert found == ["goal.yaml:8:3: budget.attempts is given twice: in line 7 and in line 8"]


def test_trial_07_all_problems_are_told_in_one_go(tmp_path: Path) -> None:
    """Every line of the trial in one file gives every message."""
    lines = [line for line, _ in TRIAL_07]
    once = {line.split(":")[0]: line for line in lines}
    found = problems(tmp_path, SMALL + "budget:\n" + "".join(f"  {line}\n" for line in once.values()))
    assert [line.split(":")[1] for line in found] == [str(number) for number in range(7, 7 + len(once))]


def test_conf_2_a_boolean_is_no_number_anywhere(tmp_path: Path) -> None:
    """Neither for whole numbers, nor for metrics, nor for quantities."""
    text = SMALL + "    runs: true\n    baseline_metrics: {m: false}\n    timeout: yes\ntamper: true\n"
    found = "\n".join(problems(tmp_path, text))
    assert "criteria[0].runs is `true`: a whole number is needed, got a boolean" in found
    assert "criteria[0].baseline_metrics.m is `false`: a number is needed, got a boolean" in found
    assert "criteria[0].timeout is `yes`: a duration" in found
    assert "tamper is `true`: a whole number is needed, got a boolean" in found


def test_conf_3_a_number_that_is_not_finite_is_no_number_anywhere(tmp_path: Path) -> None:
    """Not only in the budget."""
    found = problems(tmp_path, SMALL + "    baseline_metrics: {m: .nan}\n    runs: .inf\ntamper: -.inf\n")
    assert ["a finite number" in line for line in found] == [True, True, True]


def test_conf_4_unknown_keys_are_told_with_what_was_meant(tmp_path: Path) -> None:
    """A near miss, a key of another place, or the keys there are."""
    found = problems(tmp_path, SMALL.replace("goal:", "gaol:") + "attempts: 3\nscope: {zzz: 1}\nprompt: x\n")
    assert found == [
        "goal.yaml:1:1: goal is missing (Names the run: a-z, 0-9 and hyphens.)",
        "goal.yaml:1:1: unknown key gaol; did you mean goal?",
        "goal.yaml:6:1: unknown key attempts; it belongs below budget or stages.budget",
        "goal.yaml:7:9: unknown key scope.zzz; the keys here are allow, add, protect, max_files",
        "goal.yaml:8:1: unknown key prompt; write objective: TEXT, or objective: {file: PROMPT.md}",
    ]


def test_faults_of_every_kind_are_told_together(tmp_path: Path) -> None:
    """Wrong values, contradictions, missing files, what is not built, keys given twice: one list, by line."""
    text = """\
goal: Not A Name
objective: {file: missing.md}
references: [nothing.md]
agent: {scripted: missing.yaml}
templates: nowhere
workspace: .
criteria:
  - run: pytest | tee log
  - name: lint
    run: ruff {output}
    needs: [lnt]
  - name: lint
    use: coverage
  - name: lint
    run: [ruff, 3]
sandbox: bubblewrap
scope:
goal: again
"""
    lines = [int(line.split(":")[1]) for line in problems(tmp_path, text)]
    assert lines == [1, 2, 3, 4, 5, 8, 10, 12, 13, 14, 15, 16, 17, 18]


def test_a_wrong_value_hides_no_other_fault_and_makes_none_up(tmp_path: Path) -> None:
    text = SMALL + "  - run: a && b\n    needs: [nobody]\n  - {}\n  - uze: coverage\n    with: {a: 1}\n"
    assert problems(tmp_path, text) == [
        "goal.yaml:6:10: criteria[1].run is `a && b`: `&&` needs a shell, and commands run without one; "
        "write [sh, -c, '…'] if it is meant",
        "goal.yaml:8:5: criteria[2]: a criterion needs a verifier: either run (a command) "
        "or use (one of the catalogue)",
        "goal.yaml:9:5: unknown key criteria[3].uze; did you mean use?",
    ]


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("env: {CI: true}", "environment.env.CI is `true`: text is needed, got a boolean; put it in quotes"),
        ("env: {PORT: 8080}", "environment.env.PORT is `8080`: text is needed, got a number; put it in quotes"),
        ("env: {V: 1.10}", "environment.env.V is `1.10`: text is needed"),
        ("env: {1A: x}", "the name of an environment variable is needed"),
        ("carry: .venv", "a list is needed, got text; write [first, second]"),
        ("carry: [1]", "environment.carry[0] is `1`: text is needed, got a number"),
        ("network: off", "none or host is needed; got a boolean: `off` is one to many readers"),
        ("network: hots", "did you mean host?"),
        ("network: [host]", "none or host is needed, got a list"),
        ("services: x", "a mapping of keys is needed, got text"),
        ("env:", "environment.env: nothing is written here"),
        ("env: ~", "environment.env: nothing is written here"),
        ("carry: [a, ]\n  carry: [b]", "environment.carry is given twice"),
    ],
)
def test_yaml_never_changes_a_meaning_in_silence(tmp_path: Path, yaml: str, message: str) -> None:
    assert message in "\n".join(problems(tmp_path, f"{SMALL}environment:\n  {yaml}\n"))


@pytest.mark.parametrize(
    "written", ["no", "0755", "1:30", "1_000", "on", "0x1F", "1e3", "2026-01-01", "null-ish", "~x", "'8080'"]
)
def test_a_text_is_what_is_written_whatever_yaml_readers_think_of_it(tmp_path: Path, written: str) -> None:
    loaded = load(tmp_path, f"{SMALL}environment: {{env: {{V: {written}}}}}\n")
    assert loaded.goal.environment.env == {"V": written.strip("'")}


@pytest.mark.parametrize("written", ["no", "0755", "1:30", "1_000", "yes", "0o17"])
def test_a_free_parameter_that_readers_of_yaml_read_differently_is_refused(tmp_path: Path, written: str) -> None:
    text = f"{SMALL}    protocol: loopd\n    with: {{a: [{written}], b: null, c: 3, d: 'no'}}\n"
    found = problems(tmp_path, text)
    assert len(found) == 1
    assert found[0].startswith(f"goal.yaml:7:16: criteria[0].with.a[0] is `{written}`")
    assert found[0].endswith("put it in quotes if text is meant")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "1:1: nothing is written here; a contract is a mapping that begins with `goal: NAME`"),
        (b"# only a comment\n", "1:1: nothing is written here"),
        (b"- a\n- b\n", "1:1: a list is written here"),
        (b"just text\n", "1:1: plain text is written here"),
        (b"\x7fELF\x00\x01", "is a binary file"),
        (b"goal: caf\xe9\n", "1:1: byte 0xE9 is not UTF-8; save the file as UTF-8"),
        (b"a: 1\nb: \x07\n", "2:4: the character U+0007 cannot stand in YAML"),
        (b"a:\n\tb: 1\n", "2:1: a tab stands where YAML needs spaces"),
        (b"a: b: c\n", "1:5: `: ` makes a mapping here; put the text in quotes"),
        (b"a: [x, .[y]]\n", "in quotes"),
        (b"a: 'open\n", "this is not YAML: while scanning a quoted scalar"),
        (b'a: "\\UFFFFFFFF"\n', "an escape after this place is no character"),
        (b'a: "\\ud800"\n', "half a character"),
        (b'a: "\\0"\n', "NUL"),
        (b"a: &x 1\nb: *x\n", "2:4: anchors and aliases are not used"),
        (
            b"a: !!python/object:os.system x\n",
            "1:4: tags such as tag:yaml.org,2002:python/object:os.system are not used",
        ),
        (b"a: 1\n---\nb: 1\n", "2:1: a second document begins here"),
        (b"%YAML 1.1\n---\na: 1\n", "% directives are not used"),
        (b"? [a]\n: 1\n", "1:3: a key must be a plain word"),
        (b"goal: a\n<<: {a: 1}\n", "2:1: unknown key <<"),
        (b"1: a\n", "1:1: unknown key 1"),
    ],
)
def test_a_file_that_is_no_contract_has_one_clear_message(tmp_path: Path, content: bytes, message: str) -> None:
    assert message in "\n".join(problems(tmp_path, content))


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 500_000,
        b"{a: " * 200_000,
        b"- " * 400_000,
        b"k: 1\n" * 200_000,
        b"a: [" + b"1," * 300_000 + b"]",
        b"&a " * 300_000,
    ],
)
def test_a_file_built_to_be_expensive_is_refused_in_seconds(tmp_path: Path, content: bytes) -> None:
    assert 1 <= len(problems(tmp_path, content)) <= 101


def test_a_file_that_cannot_be_read_has_one_clear_message(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"#" * (1024 * 1024 + 1))
    expected = {
        "missing.yaml": "does not exist",
        ".": "is a folder; name the contract in it",
        "pipe": "is not a regular file",
        "large": "is larger than 1 MiB",
        "large/x.yaml": "cannot be read: Not a directory",
        "x" * 300: "cannot be read: File name too long",
        "nul\0": "cannot be read",
    }
    for name, message in expected.items():
        with pytest.raises(ContractError, match=message):
            load_contract(tmp_path / name)


ODD_LINES = """
goal: [
objective: |
  text
criteria: {}
criteria:
  - run: [1, {a: b}]
  - {}
  - needs: 3
budget: {attempts: .nan, attempt: 3}
agent: {usage: {pattern: '('}}
? a
: b
scope: [1]
roles: {executor: 3}
environment: {env: {? x : y}, services: {up: [], down: 1}}
workspace: ../..
workspace: ~nobody/x
ladder: [x, {executor: {}}]
references: ['**', '[', /, '', '../*', '/etc/*']
deliver: {run: ''}
- x
'
"
%
---
...
<<: *a
templates: /dev/null
progress: {metric: a.b}
stages: [{name: a, budget: {}}]
notify: [{to: x, on: [met, no]}]
"""
odd_contracts = st.lists(st.sampled_from([*SMALL.splitlines(), *ODD_LINES.splitlines(), "\t"]), max_size=12).map(
    "\n".join
)
latin = st.binary().map(lambda raw: raw.decode("latin-1"))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(st.text(), odd_contracts, latin))
@example("goal: a\nobjective: {file: /dev/zero}\ncriteria: [{run: x}]")
@example("goal: a\nobjective: x\ntemplates: ~root\nworkspace: ''\ncriteria: [{run: x}]")
def test_no_text_raises_anything_but_a_contract_error(text: str) -> None:
    try:
        loaded = understand(text, Path("/nonexistent/goal.yaml"), home=Path("/root"))
    except ContractError as error:
        assert error.problems
        str(error).encode()
    else:
        assert loaded.goal.goal


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("templates: nowhere", "there is no folder"),
        ("references: ['*.none']", "there is no such file below the workspace"),
        ("references: ['/nonexistent/*']", "there is no such file below the workspace"),
        ("references: ['**x']", "there is no such file below the workspace"),
        ("references: ['many/*']", "this names more than 2000 files; name those that matter"),
        ("references: [/proc/self/mem]", "/proc/self/mem cannot be read: Input/output error"),
        ("workspace: loop/x", "there is no folder"),
        ("roles: {executor: {agent: {scripted: none.yaml}}}", "there is no file"),
        ("criteria: []", "the list is empty; at least one is needed"),
        ("criteria: [{run: x, runs: 1000}]", "at most 100 is possible"),
        ("criteria: [{run: 'x {sealed}', sealed: none}]", "there is no folder"),
        ("criteria: [{run: 'x {sealed}', sealed: many}]", "the folder lies in the workspace"),
        ("criteria: [{run: [loop/x, a=loop]}]\nscope: 3", "a mapping of keys is needed"),
    ],
)
def test_what_is_named_and_cannot_be_used_is_told(tmp_path: Path, yaml: str, message: str) -> None:
    (tmp_path / "many").mkdir()
    for number in range(2001 if "many/*" in yaml else 1):
        (tmp_path / "many" / str(number)).touch()
    (tmp_path / "loop").symlink_to("loop")
    text = "".join(line for line in SMALL.splitlines(keepends=True) if line.split(":")[0] != yaml.split(":")[0])
    if yaml.startswith("criteria"):
        text = text.replace("  - run: pytest -q\n", "")
    if yaml.startswith("roles"):
        text = text.replace("agent: {command: [sh, agent.sh]}\n", "")
    assert message in "\n".join(problems(tmp_path, f"{text}{yaml}\n"))
