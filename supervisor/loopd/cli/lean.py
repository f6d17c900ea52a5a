"""Imports without what they take along and loopd never uses; called before the heavy ones.

Measured: TLS for asyncio and the reading of package metadata for pydantic's plugins cost a quarter of the memory of a
run and a sixth of its start. Both are still there for whoever asks for them later.
"""

import importlib.util
import sys
from functools import partial
from types import ModuleType
from typing import Any


def prepare() -> None:
    """Import asyncio as in a Python without TLS, and package metadata only when somebody looks into it."""
    if "asyncio" not in sys.modules and "ssl" not in sys.modules:
        sys.modules["ssl"] = None  # type: ignore[assignment]  # asyncio takes an ImportError for "no TLS here"
        try:
            import asyncio  # noqa: F401
        finally:
            del sys.modules["ssl"]
    _import_when_used("ssl", types=("SSLContext",))
    _import_when_used("importlib.metadata", functions=("entry_points", "version"))
    from pydantic.plugin import _loader

    if getattr(_loader, "_plugins", ...) is None:
        _loader._plugins = {}  # no plugin of another package decides what a contract means


class _Late(ModuleType):
    """A module that is executed at the first look at one of its names, or the first call of a function given late."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by every import
            raise AttributeError(name)
        self.__class__ = ModuleType  # type: ignore[assignment]
        assert self.__spec__ is not None and self.__spec__.loader is not None
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def _import_when_used(name: str, functions: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> None:
    """Put a late module in its place. Functions and types are what others take from it when they are imported."""
    spec = importlib.util.find_spec(name)
    if name in sys.modules or spec is None:
        return
    module = importlib.util.module_from_spec(spec)
    module.__class__ = _Late
    for function in functions:
        setattr(module, function, partial(_call_late, module, function))
    for each in types:
        setattr(module, each, object)  # for annotations
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


def _call_late(module: ModuleType, function: str, /, *args: Any, **named: Any) -> Any:
    if isinstance(module, _Late):
        delattr(module, function)
    return getattr(module, function)(*args, **named)
