"""What holds for a run, and who said so: flag > environment > contract > loopd.toml > user file > default.

Every layer is checked by itself, so that a wrong value is told even where a stronger layer hides it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from pydantic import ValidationError

from loopd.adapters.contract_file import Loaded
from loopd.adapters.contract_problems import Places, problems_of
from loopd.adapters.contract_yaml import Place, dotted
from loopd.adapters.settings_model import (
    FLAGS,
    OWN_VARIABLES,
    PREFIX,
    PROJECT_FILE,
    Ceiling,
    Settings,
    UserSettings,
    said,
    setting_names,
    shown,
    variable,
)
from loopd.domain.consistency import nearest
from loopd.domain.contract import Goal
from loopd.domain.errors import ContractError, Problem
from loopd.domain.written import Loc


class Setting(Struct, frozen=True):
    """One value that holds, and who said so."""

    name: str
    value: Any
    source: str


class Effective(Struct, frozen=True):
    """Everything that holds for a run."""

    goal: Goal  # the contract, with the agent, isolation and budget that hold
    templates: Path | None  # the owner's instruction templates
    containment: str
    interrupt_s: float
    terminate_s: float
    final_grace_s: float
    back_off_s: float
    back_off_cap_s: float
    log_cap_bytes: int
    free_space_bytes: int
    settings: tuple[Setting, ...]

    def source(self, name: str) -> str:
        """Who set the value of this full name."""
        return next(setting.source for setting in self.settings if setting.name == name)


class _Layer(Struct, frozen=True):
    values: Mapping[str, Any]  # by full name, understood
    source: Mapping[str, str]


def resolve(
    loaded: Loaded, *, flags: Mapping[str, str] | None = None, environ: Mapping[str, str], user_file: Path | None = None
) -> Effective:
    """Lay all layers over each other for one contract.

    `flags` are texts by full name ("budget.attempts": "5"). Without `user_file` it is found from `environ`. Raises
    `ContractError` for every wrong or unknown setting of any layer, for a budget above the user's ceiling, and when
    nobody names an agent.
    """
    user_path = user_file or user_settings_file(environ)
    problems: list[Problem] = []
    user, user_layer = _file_layer(user_path, UserSettings, _short(user_path, environ), problems)
    layers = [
        _flag_layer(flags or {}, problems),
        _environment_layer(environ, problems),
        _contract_layer(loaded),
        _file_layer(loaded.root / PROJECT_FILE, Settings, PROJECT_FILE, problems)[1],
        user_layer,
    ]
    settings = {name: _strongest(name, layers) for name in _NAMES}
    if isinstance(user, UserSettings):
        settings |= _under_ceiling(settings, user.ceiling, _short(user_path, environ), problems)
    if settings["agent"].value is None and not problems:
        problems.append(_no_agent(loaded))
    if problems:
        raise ContractError(tuple(problems))
    return _effective(loaded, settings, user_path)


def user_settings_file(environ: Mapping[str, str]) -> Path:
    """`$XDG_CONFIG_HOME/loopd/config.toml`, else the same below `~/.config`. A relative XDG path is ignored."""
    xdg = Path(environ.get("XDG_CONFIG_HOME", ""))
    base = xdg if xdg.is_absolute() else Path(environ.get("HOME", "/nonexistent")) / ".config"
    return base / "loopd" / "config.toml"


def user_ceiling(environ: Mapping[str, str]) -> Ceiling:
    """What the user's own file allows at most. Raises `ContractError` when the file is wrong."""
    path = user_settings_file(environ)
    problems: list[Problem] = []
    user, _ = _file_layer(path, UserSettings, _short(path, environ), problems)
    if problems:
        raise ContractError(tuple(problems))
    return user.ceiling if isinstance(user, UserSettings) else Ceiling()


def render_effective(effective: Effective) -> list[tuple[str, str, str]]:
    """Name, value and source of everything that holds, as printed before attempt 1."""
    return [(setting.name, shown(setting.name, setting.value), setting.source) for setting in effective.settings]


_DEFAULTS = setting_names(Settings())
_NAMES = tuple(_DEFAULTS)


def _strongest(name: str, layers: list[_Layer]) -> Setting:
    for layer in layers:
        if name in layer.values:
            return Setting(name, layer.values[name], layer.source[name])
    return Setting(name, _DEFAULTS[name], "default")


def _contract_layer(loaded: Loaded) -> _Layer:
    goal = loaded.goal
    values = {name: value for name, value in said(goal) if name in _NAMES}
    if goal.executor.agent:
        values["agent"] = goal.executor.agent
    return _Layer(values, {name: contract_source(loaded, name) for name in values})


def contract_source(loaded: Loaded, name: str) -> str:
    """`contract goals/x.yaml:12`, or the flag that took the place of the line."""
    if name in loaded.overridden:
        return f"flag {FLAGS.get(name, name)}"
    loc: Loc = tuple(name.split("."))
    if name == "agent" and not loaded.goal.agent:
        loc = ("roles", "executor", "agent")
    return f"contract {loaded.places.file}:{loaded.places.place(loc).key_line}"


def _flag_layer(flags: Mapping[str, str], problems: list[Problem]) -> _Layer:
    data: dict[str, Any] = {}
    for name, text in flags.items():
        _put(data, tuple(name.split(".")), text)
    sources = {name: f"flag {FLAGS.get(name, name)}" for name in flags}
    return _layer(_typed(data), Settings, sources, problems)[1]


def _environment_layer(environ: Mapping[str, str], problems: list[Problem]) -> _Layer:
    known = {variable(name): name for name in _NAMES}
    given = {name: text for name, text in environ.items() if name.startswith(PREFIX) and name not in OWN_VARIABLES}
    for name in sorted(set(given) - set(known)):
        near = nearest(name.removeprefix(PREFIX), [setting.removeprefix(PREFIX) for setting in known])
        mend = f"did you mean {PREFIX}{near}?" if near else "unset it"
        problems.append(Problem(f"environment: there is no setting {name}; {mend}"))
    sources = {name: f"environment {variable(name)}" for name in _NAMES}
    return _layer(_typed(_of_variables(given, known)), Settings, sources, problems)[1]


def _of_variables(given: Mapping[str, str], known: Mapping[str, str]) -> dict[str, Any]:
    settings = {name: text for name, text in given.items() if name in known}
    if not settings:
        return {}
    from loopd.adapters.settings_environment import from_environment

    return from_environment(settings)


def _toml(content: bytes) -> dict[str, Any]:
    import tomllib  # most projects have no such file

    return tomllib.loads(content.decode("utf-8-sig"))


def _file_layer(
    path: Path, model: type[Settings], name: str, problems: list[Problem]
) -> tuple[Settings | None, _Layer]:
    try:
        data = _toml(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None, _Layer({}, {})
    except (ValueError, OSError) as error:
        problems.append(Problem(f"{name}: {getattr(error, 'strerror', None) or error}"))
        data = {}
    if agents := data.pop("agents", None):
        problems.append(Problem(f"{name}: agents ({', '.join(agents)}): not available yet"))
    return _layer(data, model, dict.fromkeys(setting_names(model()), name), problems)


def _layer(
    data: dict[str, Any], model: type[Settings], sources: Mapping[str, str], problems: list[Problem]
) -> tuple[Settings | None, _Layer]:
    try:
        settings = model(**data)
    except ValidationError as error:
        problems += _told(error, data, model, sources)
        return None, _Layer({}, {})
    return settings, _Layer(dict(said(settings)), sources)


def _told(
    error: ValidationError, data: dict[str, Any], model: type[Settings], sources: Mapping[str, str]
) -> Iterator[Problem]:
    """The faults of one layer, each with the place it came from."""
    places = Places("", dict(_places(data)))
    anywhere = next(iter(sources.values()), "")
    for loc, problem in problems_of(error, places, model):
        origin = sources.get(dotted(loc)) or sources.get(dotted(loc[:1])) or anywhere
        yield Problem(f"{origin}: {problem.message}")


def _places(value: Any, loc: Loc = ()) -> Iterator[tuple[Loc, Place]]:
    scalar = not isinstance(value, dict | list)
    if loc:
        yield (
            loc,
            Place(0, 0, 0, 0, raw=str(value).lower() if isinstance(value, bool) else str(value) if scalar else ""),
        )
    for key, item in value.items() if isinstance(value, dict) else ():
        yield from _places(item, (*loc, key))


def _typed(data: dict[str, Any]) -> dict[str, Any]:
    """Texts of flags and variables, with the one number among them as a number."""
    budget = data.get("budget")
    if isinstance(budget, dict) and str(budget.get("attempts", "")).lstrip("-").isdecimal():
        return data | {"budget": budget | {"attempts": int(budget["attempts"])}}
    return data


def _put(data: dict[str, Any], loc: tuple[str, ...], value: Any) -> None:
    *parents, last = loc
    for parent in parents:
        data = data.setdefault(parent, {})
    data[last] = value


def _under_ceiling(
    settings: Mapping[str, Setting], ceiling: Ceiling, file: str, problems: list[Problem]
) -> dict[str, Setting]:
    """What the ceiling changes: a default gives way to it, and a budget that somebody asked for is refused."""
    changed = {}
    for name, limit in (("budget.cost", ceiling.cost_usd), ("budget.time", ceiling.time_s)):
        setting = settings[name]
        if limit is None or (setting.value is not None and setting.value <= limit):
            continue
        if setting.source == "default":
            changed[name] = Setting(name, limit, f"ceiling in {file}")
            continue
        problems.append(
            Problem(
                f"{name} is {shown(name, setting.value)} ({setting.source}), above the ceiling of "
                f"{shown(name, limit)} ({file}); lower it, or raise the ceiling there"
            )
        )
    return changed


def _no_agent(loaded: Loaded) -> Problem:
    message = (
        "no agent is named; write agent: {command: [PROGRAM, ARG]} here, or agent = … in loopd.toml, "
        "or run with --agent NAME"
    )
    place = loaded.places.place(("goal",))
    return Problem(message, loaded.places.file, place.key_line, place.key_column)


def _templates(loaded: Loaded, setting: Setting, user_path: Path) -> Path | None:
    """The folder, found from where it was written; what flags and variables name is found from here."""
    if setting.value is None:
        return None
    base = Path.cwd()
    if setting.source.startswith("contract"):
        base = loaded.folder
    elif setting.source == PROJECT_FILE:
        base = loaded.root
    elif not setting.source.startswith(("environment", "flag")):
        base = user_path.parent
    return base / Path(setting.value).expanduser()


def _effective(loaded: Loaded, settings: Mapping[str, Setting], user_path: Path) -> Effective:
    value = {name: setting.value for name, setting in settings.items()}
    goal = _with(loaded.goal, value)
    return Effective(
        goal=goal,
        templates=_templates(loaded, settings["templates"], user_path),
        containment=value["containment"],
        interrupt_s=value["grace.interrupt"],
        terminate_s=value["grace.terminate"],
        final_grace_s=value["grace.final"],
        back_off_s=value["back_off.base"],
        back_off_cap_s=value["back_off.cap"],
        log_cap_bytes=value["disk.log_cap"],
        free_space_bytes=value["disk.free"],
        settings=(*settings.values(), *_of_the_contract(loaded, goal)),
    )


def _with(goal: Goal, value: Mapping[str, Any]) -> Goal:
    """The goal with the agent, isolation and budget that hold."""
    attempt = {key: value[f"budget.attempt.{name}"] for key, name in _ATTEMPT_FIELDS}
    terms = {key: value[f"budget.{name}"] for key, name in _BUDGET_FIELDS}
    terms["attempt"] = goal.budget.attempt.model_copy(update=attempt)
    executor = goal.roles.executor.model_copy(update={"agent": None})
    return goal.model_copy(
        update={
            "agent": value["agent"],
            "roles": goal.roles.model_copy(update={"executor": executor}),
            "isolation": value["isolation"],
            "budget": goal.budget.model_copy(update=terms),
        }
    )


_ATTEMPT_FIELDS = (("time_s", "time"), ("idle_s", "idle"), ("cost_usd", "cost"))
_BUDGET_FIELDS = (("attempts", "attempts"), ("time_s", "time"), ("cost_usd", "cost"), ("tokens", "tokens"))


def _of_the_contract(loaded: Loaded, goal: Goal) -> Iterator[Setting]:
    """What only a contract can say, with its default where it does not."""
    written = dict(said(loaded.goal))
    values = {
        "budget.waiting": goal.budget.waiting_s,
        "tamper": goal.tamper,
        "ladder": tuple(rung.name or "executor" for rung in goal.ladder),
        "verification": goal.verification,
        "sandbox": goal.sandbox.mode,
        "environment.network": goal.environment.network,
        "deliver": goal.delivery.to or "",
    }
    for name, value in values.items():
        given = any(key == name or key.startswith(f"{name}.") for key in written)
        yield Setting(name, value, contract_source(loaded, name) if given else "default")
    for index, criterion in enumerate(goal.criteria):
        given = "timeout_s" in criterion.model_fields_set
        line = loaded.places.place(("criteria", index, "timeout")).key_line
        source = f"contract {loaded.places.file}:{line}" if given else "default"
        yield Setting(f"{criterion.name}.timeout", criterion.timeout_s, source)


def _short(path: Path, environ: Mapping[str, str]) -> str:
    home = environ.get("HOME", "")
    return f"~/{path.relative_to(home)}" if home and path.is_relative_to(home) else str(path)
