"""Imports without what they take along and loopd never uses; called before the heavy ones.

Measured: TLS for asyncio, OpenSSL's digests for a template loader, the reading of package metadata for pydantic's
plugins and the time zones it has a type for cost a quarter of the memory of a run and a sixth of its start. All are
still there for whoever asks for them later.
"""

import importlib
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
    _import_when_used("zoneinfo", types=("ZoneInfo", "ZoneInfoNotFoundError"))
    _import_when_used("fractions", types=("Fraction",))
    for name in ("bz2", "lzma", "secrets"):  # shutil asks whether the first two are there, pydantic compares secrets
        _import_when_used(name)
    _import_when_used("hashlib", functions=("sha1",))  # with OpenSSL
    _import_when_used("importlib.resources.abc", types=("Traversable",))
    _import_when_used("importlib.metadata", functions=("entry_points", "version"))
    from pydantic.plugin import _loader

    if getattr(_loader, "_plugins", ...) is None:
        _loader._plugins = {}  # no plugin of another package decides what a contract means


def settle() -> None:
    """What was to be imported is: from now on every type is the real one, loaded when it is asked for."""
    if "anyio" in sys.modules:
        import anyio.streams.tls  # noqa: F401  # anyio's loop imports it late, for a type
    while _stand_ins:
        module, name = _stand_ins.pop()
        if isinstance(module, _Late):
            delattr(module, name)


_stand_ins: list[tuple[ModuleType, str]] = []


class _Late(ModuleType):
    """A module that is imported at the first look at one of its names, or the first call of a function given late."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by every import
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = importlib.import_module(self.__name__)
        self.__dict__.update(module.__dict__)  # for those who hold this one
        self.__class__ = ModuleType  # type: ignore[assignment]
        return getattr(module, name)


def _import_when_used(name: str, functions: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> None:
    """Put a late module in its place. Functions and types are what others take from it when they are imported."""
    if name in sys.modules:
        return
    module = _Late(name)
    for function in functions:
        setattr(module, function, partial(_call_late, module, function))
    for each in types:
        setattr(module, each, type(each, (), {}))  # for annotations and look-ups by type
        _stand_ins.append((module, each))
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], child, module)


def _call_late(module: ModuleType, function: str, /, *args: Any, **named: Any) -> Any:
    if isinstance(module, _Late):
        delattr(module, function)
    return getattr(module, function)(*args, **named)
