"""Who says what holds: flag, environment, contract, project file, user file, default."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from loopd.adapters.contract_file import load_contract
from loopd.adapters.settings import Effective, render_effective, resolve, user_ceiling, user_settings_file
from loopd.adapters.settings_model import Settings, setting_names, variable
from loopd.domain.errors import ContractError
from loopd.domain.roles import AgentChoice

CONTRACT = """\
goal: small
objective: The end.
criteria:
  - run: pytest -q
"""


@dataclass
class Machine:
    """A user with a home, a project and a contract."""

    home: Path
    project: Path
    environ: dict[str, str]

    def contract(self, text: str = "") -> None:
        (self.project / "goal.yaml").write_text(CONTRACT + text)

    def project_file(self, text: str) -> None:
        (self.project / "loopd.toml").write_text(text)

    def user_file(self, text: str) -> None:
        path = user_settings_file(self.environ)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def resolve(self, overrides: Mapping[str, object] | None = None, **flags: str) -> Effective:
        loaded = load_contract(self.project / "goal.yaml", overrides=overrides, home=self.home)
        named = {name.replace("__", "."): text for name, text in flags.items()}
        return resolve(loaded, flags=named, environ=self.environ)

    def refused(self, **flags: str) -> list[str]:
        with pytest.raises(ContractError) as caught:
            self.resolve(**flags)
        return [str(problem).replace(f"{self.project}/", "") for problem in caught.value.problems]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    home, project = tmp_path / "home", tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    home.mkdir()
    made = Machine(home, project, {"HOME": str(home), "PATH": "/bin", "LOOPD_AGENT": "some-agent"})
    made.contract()
    return made


@pytest.mark.parametrize("layers", range(6))
def test_conf_1_the_strongest_layer_wins_and_is_named(machine: Machine, layers: int) -> None:
    """Flag, environment, contract, project file, user file, default; each with one layer less."""
    set_layer: list[tuple[str, Callable[[], object]]] = [
        ("~/.config/loopd/config.toml", lambda: machine.user_file("[budget]\nattempts = 11\n")),
        ("loopd.toml", lambda: machine.project_file("[budget]\nattempts = 12\n")),
        (f"contract {machine.project}/goal.yaml:5", lambda: machine.contract("budget: {attempts: 13}\n")),
        ("environment LOOPD_BUDGET__ATTEMPTS", lambda: machine.environ.update(LOOPD_BUDGET__ATTEMPTS="14")),
    ]
    for _, make in set_layer[: min(layers, 4)]:
        make()
    effective = machine.resolve(**({"budget__attempts": "15"} if layers == 5 else {}))
    expected = ["default", *(name for name, _ in set_layer), "flag --attempts"][layers]
    assert effective.source("budget.attempts") == expected
    assert effective.goal.budget.attempts == [20, 11, 12, 13, 14, 15][layers]


def test_conf_1_every_value_is_printed_with_its_source(machine: Machine) -> None:
    """Nothing that bounds a run is silent."""
    machine.contract("tamper: 1\nbudget: {time: 8h}\nladder: [fresh, stop]\n")
    lines = render_effective(machine.resolve(budget__cost="20 USD"))
    assert lines == [
        ("agent", "some-agent", "environment LOOPD_AGENT"),
        ("isolation", "inplace", "default"),
        ("budget.attempts", "20", "default"),
        ("budget.time", "8h", f"contract {machine.project}/goal.yaml:6"),
        ("budget.cost", "20 USD", "flag --cost"),
        ("budget.tokens", "unlimited", "default"),
        ("budget.attempt.time", "45m", "default"),
        ("budget.attempt.idle", "20m", "default"),
        ("budget.attempt.cost", "unlimited", "default"),
        ("templates", "loopd's own", "default"),
        ("containment", "auto", "default"),
        ("grace.interrupt", "5s", "default"),
        ("grace.terminate", "5s", "default"),
        ("grace.final", "10s", "default"),
        ("back_off.base", "30s", "default"),
        ("back_off.cap", "10m", "default"),
        ("disk.log_cap", "256 MiB", "default"),
        ("disk.free", "500 MB", "default"),
        ("budget.waiting", "12h", "default"),
        ("tamper", "1", f"contract {machine.project}/goal.yaml:5"),
        ("ladder", "fresh, stop", f"contract {machine.project}/goal.yaml:7"),
        ("verification", "clean", "default"),
        ("sandbox", "auto", "default"),
        ("environment.network", "none", "default"),
        ("deliver", "tree", "default"),
        ("pytest.timeout", "10m", "default"),
    ]


def test_bud_2_the_finite_defaults_are_printed_when_nobody_names_a_budget(machine: Machine) -> None:
    """A contract without a budget is bounded, and says by what."""
    shown = {name: (value, source) for name, value, source in render_effective(machine.resolve())}
    assert shown["budget.attempts"] == ("20", "default")
    assert shown["budget.time"] == ("4h", "default")
    assert shown["budget.attempt.time"] == ("45m", "default")


@pytest.mark.parametrize("value", ["0", "none", "off", "unlimited", "inf", "nan", "true", "-1", ""])
def test_bud_2_no_layer_can_lift_the_limits_of_attempts_and_time(machine: Machine, value: str) -> None:
    """Neither a variable, nor a file, nor a flag."""
    for name in ("budget.attempts", "budget.time"):
        machine.environ[variable(name)] = value
        assert len(machine.refused()) == 1
        del machine.environ[variable(name)]
        assert len(machine.refused(**{name.replace(".", "__"): value})) == 1
        machine.project_file(f'[budget]\n{name.partition(".")[2]} = "{value}"\n')
        assert len(machine.refused()) == 1
        machine.project_file("")


def test_conf_2_and_trial_07_hold_in_files_as_well(machine: Machine) -> None:
    machine.project_file("[budget]\nattempts = true\ntime = 30\ncost = nan\n[budget.attempt]\nidle = '5'\n")
    assert machine.refused() == [
        "loopd.toml: budget.attempts is `true`: a whole number is needed, got a boolean",
        "loopd.toml: budget.time is `30`: the unit is missing; write 30s, 30m or 30h",
        "loopd.toml: budget.cost is `nan`: a finite number is needed",
        "loopd.toml: budget.attempt.idle is `5`: the unit is missing; write 5s, 5m or 5h",
    ]


def test_conf_4_unknown_settings_are_errors_in_every_layer(machine: Machine) -> None:
    """All of them are told at once."""
    machine.project_file("agnt = 'x'\n[budget]\nattemps = 3\nturns = 3\n")
    machine.user_file("[ceiling]\ncosts = '3 USD'\n")
    machine.environ |= {"LOOPD_BUDGET__ATEMPTS": "3", "LOOPD_ZZZ": "1", "LOOPD_CEILING__COST": "9 USD"}
    found = machine.refused()
    assert found == [
        "~/.config/loopd/config.toml: unknown key ceiling.costs; did you mean cost?",
        "environment: there is no setting LOOPD_BUDGET__ATEMPTS; did you mean LOOPD_BUDGET__ATTEMPTS?",
        found[2],
        "environment: there is no setting LOOPD_ZZZ; unset it",
        "loopd.toml: unknown key budget.attemps; did you mean attempts?",
        found[5],
        "loopd.toml: unknown key agnt; did you mean agent?",
    ]
    assert found[2].startswith("environment: there is no setting LOOPD_CEILING__COST")
    assert found[5].startswith("loopd.toml: unknown key budget.turns; write attempts: N")


def test_conf_4_a_ceiling_in_a_project_is_an_error(machine: Machine) -> None:
    """A project cannot raise what its user set."""
    machine.project_file("[ceiling]\ncost = '3 USD'\n")
    assert "loopd.toml: unknown key ceiling" in machine.refused()[0]


@pytest.mark.parametrize("name", ["LOOPD_STATE", "LOOPD_MARKER", "LOOPD_CONTEXT", "LOOPD_USAGE_FILE"])
def test_loopds_own_variables_are_no_settings(machine: Machine, name: str) -> None:
    machine.environ[name] = "x"
    assert machine.resolve().containment == "auto"


def test_a_wrong_setting_is_told_even_where_a_stronger_layer_hides_it(machine: Machine) -> None:
    machine.project_file("[budget]\nattempts = 0\n")
    assert machine.refused(budget__attempts="5") == ["loopd.toml: budget.attempts is `0`: at least 1 is needed"]


def test_a_wrong_flag_is_told_by_its_name(machine: Machine) -> None:
    assert machine.refused(budget__time="8") == [
        "flag --time: budget.time is `8`: the unit is missing; write 8s, 8m or 8h"
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a = = 1\n", "loopd.toml: Invalid value"), (b"\xff", "loopd.toml: 'utf-8' codec can't decode")],
)
def test_a_file_that_cannot_be_read_is_told(machine: Machine, content: bytes, message: str) -> None:
    (machine.project / "loopd.toml").write_bytes(content)
    assert machine.refused()[0].startswith(message)


def test_a_project_file_that_is_a_folder_is_told(machine: Machine) -> None:
    (machine.project / "loopd.toml").mkdir()
    assert machine.refused() == ["loopd.toml: Is a directory"]


def test_nobody_names_an_agent(machine: Machine) -> None:
    del machine.environ["LOOPD_AGENT"]
    assert machine.refused() == [
        "goal.yaml:1:1: no agent is named; write agent: {command: [PROGRAM, ARG]} here, or agent = … in loopd.toml, "
        "or run with --agent NAME"
    ]


def test_an_agent_of_a_file_may_be_a_command(machine: Machine) -> None:
    del machine.environ["LOOPD_AGENT"]
    machine.project_file('agent = {command = ["sh", "agent.sh"], prompt = "file"}\n')
    effective = machine.resolve()
    assert effective.goal.executor.agent == AgentChoice(command=("sh", "agent.sh"), prompt="file")
    assert effective.source("agent") == "loopd.toml"


def test_a_flag_takes_the_place_of_the_contracts_executor(machine: Machine) -> None:
    machine.contract("roles: {executor: {agent: {command: [sh, a.sh]}, args: [-v]}}\n")
    del machine.environ["LOOPD_AGENT"]
    assert machine.resolve().source("agent") == f"contract {machine.project}/goal.yaml:5"
    goal = machine.resolve(agent="other").goal
    assert (goal.executor.agent, goal.executor.args) == (AgentChoice(name="other"), ("-v",))


def test_values_given_over_the_contract_have_the_flag_as_their_source(machine: Machine) -> None:
    machine.contract("budget: {attempts: 3}\n")
    effective = machine.resolve({"budget.attempts": 4})
    assert (effective.goal.budget.attempts, effective.source("budget.attempts")) == (4, "flag --attempts")


def test_isolation_from_a_flag_changes_what_is_delivered(machine: Machine) -> None:
    effective = machine.resolve(isolation="clone")
    assert effective.goal.delivery.to == "branch"
    assert ("deliver", "branch", "default") in render_effective(effective)


def test_a_budget_above_the_ceiling_names_both_values_and_their_sources(machine: Machine) -> None:
    machine.user_file("[ceiling]\ncost = '2 USD'\ntime = '1h'\n")
    machine.contract("budget: {cost: 3 USD, time: 2h}\n")
    assert machine.refused() == [
        f"budget.cost is 3 USD (contract {machine.project}/goal.yaml:5), above the ceiling of 2 USD "
        "(~/.config/loopd/config.toml); lower it, or raise the ceiling there".replace(f"{machine.project}/", ""),
        f"budget.time is 2h (contract {machine.project}/goal.yaml:5), above the ceiling of 1h "
        "(~/.config/loopd/config.toml); lower it, or raise the ceiling there".replace(f"{machine.project}/", ""),
    ]


def test_what_nobody_asked_for_gives_way_to_the_ceiling(machine: Machine) -> None:
    machine.user_file("[ceiling]\ncost = '2 USD'\ntime = '1h'\n")
    effective = machine.resolve()
    assert (effective.goal.budget.cost_usd, effective.goal.budget.time_s) == (2.0, 3600.0)
    assert effective.source("budget.cost") == "ceiling in ~/.config/loopd/config.toml"


def test_the_ceiling_can_be_asked_for_alone(machine: Machine) -> None:
    machine.user_file("[ceiling]\ncost = '2 USD'\n")
    assert (user_ceiling(machine.environ).cost_usd, user_ceiling(machine.environ).time_s) == (2.0, None)
    machine.user_file("[ceiling]\ncost = 2\n")
    with pytest.raises(ContractError, match="write 2 USD"):
        user_ceiling(machine.environ)


def test_a_budget_below_the_ceiling_stands(machine: Machine) -> None:
    machine.user_file("[ceiling]\ncost = '2 USD'\ntime = '9h'\n")
    effective = machine.resolve(budget__cost="1 USD")
    assert (effective.goal.budget.cost_usd, effective.goal.budget.time_s) == (1.0, 14400.0)


def test_every_setting_can_be_given_by_a_variable(machine: Machine) -> None:
    given = {
        "agent": "x",
        "isolation": "clone",
        "budget.attempts": "3",
        "budget.time": "1h",
        "budget.cost": "3 USD",
        "budget.tokens": "20M",
        "budget.attempt.time": "3m",
        "budget.attempt.idle": "off",
        "budget.attempt.cost": "1 USD",
        "templates": "prompts",
        "containment": "cgroup",
        "grace.interrupt": "1s",
        "grace.terminate": "2s",
        "grace.final": "3s",
        "back_off.base": "4s",
        "back_off.cap": "5s",
        "disk.log_cap": "1 MiB",
        "disk.free": "1 GB",
    }
    assert list(given) == list(setting_names(Settings()))
    machine.environ |= {variable(name): text for name, text in given.items()}
    effective = machine.resolve()
    assert {name: value for name, value, source in render_effective(effective) if source != "default"} == given | {
        "disk.free": "1000 MB"
    }
    assert (effective.interrupt_s, effective.terminate_s, effective.final_grace_s) == (1, 2, 3)
    assert (effective.back_off_s, effective.back_off_cap_s) == (4, 5)
    assert (effective.log_cap_bytes, effective.free_space_bytes, effective.containment) == (2**20, 10**9, "cgroup")
    assert effective.goal.budget.attempt.idle_s is None


def test_the_variables_of_the_process_are_not_read(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPD_BUDGET__ATTEMPTS", "99")
    monkeypatch.setenv("LOOPD_CONTAINMENT", "cgroup")
    effective = machine.resolve()
    assert (effective.goal.budget.attempts, effective.containment) == (20, "auto")


def test_what_is_not_built_is_said_in_the_users_file(machine: Machine) -> None:
    machine.user_file("[agents.claude]\nslots = 4\n")
    assert machine.refused() == ["~/.config/loopd/config.toml: agents (claude): not available yet"]


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"HOME": "/h"}, "/h/.config/loopd/config.toml"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}, "/x/loopd/config.toml"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "relative"}, "/h/.config/loopd/config.toml"),
    ],
)
def test_the_users_file_is_found_as_xdg_says(environ: dict[str, str], path: str) -> None:
    assert user_settings_file(environ) == Path(path)
