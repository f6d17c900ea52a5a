"""The models of the contract as data: which keys there are, where, and what each holds."""

from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

from msgspec import Struct
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from loopd.domain.contract import Goal
from loopd.domain.written import Written


class Key(Struct, frozen=True):
    """One key: `path` without list positions, `below` the model of its value when it has keys of its own."""

    path: tuple[str, ...]
    info: FieldInfo
    below: type[Written] | None
    listed: bool  # its value is a list (or a mapping with free names) of such models

    @property
    def name(self) -> str:
        """As written in a contract."""
        return self.path[-1]


def keys(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[Key]:
    """The keys of one model, in the order of its definition."""
    for attribute, info in model.model_fields.items():
        below, listed = _model_in(info.annotation)
        yield Key((*path, info.alias or attribute), info, below, listed)


def all_keys(model: type[BaseModel] = Goal, path: tuple[str, ...] = ()) -> Iterator[Key]:
    """Every key of the contract, parents first."""
    for key in keys(model, path):
        yield key
        if key.below:
            yield from all_keys(key.below, key.path)


@cache
def homes(model: type[BaseModel] = Goal) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Where each key name belongs: the paths of its parents."""
    found: dict[str, tuple[tuple[str, ...], ...]] = {}
    for key in all_keys(model):
        found[key.name] = (*found.get(key.name, ()), key.path[:-1])
    return found


def key_at(path: tuple[str, ...]) -> Key | None:
    """The key at a path without list positions."""
    return next((key for key in all_keys() if key.path == path), None)


def _model_in(annotation: Any, listed: bool = False) -> tuple[type[Written] | None, bool]:
    """The model inside `Many[Annotated[Model, …]] | None` and the like."""
    if isinstance(annotation, type) and issubclass(annotation, Written):
        return annotation, listed
    within = listed or getattr(annotation, "__origin__", None) in (tuple, dict)
    for part in get_args(annotation):
        model, found = _model_in(part, within)
        if model:
            return model, found
    return None, listed
