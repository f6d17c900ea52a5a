"""The JSON Schema of a contract as it is written, so that editors complete and check it."""

import json
from typing import Any

from loopd.domain.contract import Goal
from loopd.domain.quantities import DURATION_PATTERN, format_duration


def contract_schema() -> dict[str, Any]:
    """The schema, made from the models. It describes the text: durations are strings, short forms are allowed."""
    schema: dict[str, Any] = _as_written(Goal.model_json_schema(by_alias=True))
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "loopd goal contract"}
    return head | {key: value for key, value in schema.items() if key != "title"}


def schema_text() -> str:
    """The content of `goals/schema.json`."""
    return json.dumps(contract_schema(), indent=2, ensure_ascii=False) + "\n"


def _as_written(value: Any) -> Any:
    """Without what only the models know: titles, null, defaults in seconds or as objects."""
    if isinstance(value, list):
        return [_as_written(item) for item in value]
    if not isinstance(value, dict):
        return value
    described = {
        key: _as_written(item) for key, item in value.items() if not (key == "title" and isinstance(item, str))
    }
    if "anyOf" in described:
        described = _without_null(described)
    if "default" in described:
        described = _with_default(described)
    return described


def _without_null(described: dict[str, Any]) -> dict[str, Any]:
    """An empty value is an error in a contract, so null is no choice."""
    choices = [choice for choice in described["anyOf"] if choice != {"type": "null"}]
    rest = {key: item for key, item in described.items() if key != "anyOf"}
    return choices[0] | rest if len(choices) == 1 else {"anyOf": choices} | rest


def _with_default(described: dict[str, Any]) -> dict[str, Any]:
    default = described.pop("default")
    if isinstance(default, float) and DURATION_PATTERN in json.dumps(described).replace("\\\\", "\\"):
        default = format_duration(default)
    if default in (None, ""):
        return described
    return described if isinstance(default, dict | list) else described | {"default": default}
