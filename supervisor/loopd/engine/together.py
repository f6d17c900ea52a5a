"""Two things at a time: structured, with the first error as itself and not in a group."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

T = TypeVar("T")


async def first_of(*waits: Callable[[], Awaitable[T]]) -> T:
    """The result of whichever ends first; the others are cancelled. An error of any is raised as it is."""
    results: list[T] = []
    errors: list[Exception] = []
    async with anyio.create_task_group() as tasks:

        async def finish(wait: Callable[[], Awaitable[T]]) -> None:
            try:
                results.append(await wait())
            except Exception as error:
                errors.append(error)
            tasks.cancel_scope.cancel()

        for wait in waits:
            tasks.start_soon(finish, wait)
    if errors:
        raise errors[0]
    return results[0]
