"""One process at work on one run: signals in, an exit status out."""

import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import anyio

from loopd.domain.run import Ending
from loopd.engine.loop import pursue
from loopd.engine.run import Run
from loopd.engine.together import first_of

LEAVING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def supervise(run: Run) -> Ending:
    """Pursue the goal until it is over or a signal asks to leave."""
    gc.freeze()  # what was imported stays for good: walking over it again and again would cost every attempt
    gc.set_threshold(2_000, 10, 50)  # what an attempt makes is mostly freed by itself
    return anyio.run(first_of, partial(pursue, run), partial(_listen, run))


@contextmanager
def _deaf_afterwards() -> Iterator[None]:
    """Once a run is left, its exit status stands: a signal that comes late must not take its place."""
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, LEAVING)


async def _listen(run: Run) -> Ending:
    """The first Ctrl-C leaves at the next boundary; a second one, and every other signal, in the middle."""
    with anyio.open_signal_receiver(*LEAVING) as signals, _deaf_afterwards():
        async for number in signals:
            again = bool(run.signal)
            at_once = again or number is not signal.SIGINT
            name = signal.Signals(number).name
            run.note("interrupt.asked", durable=False, signal=name, at_once=at_once)
            run.interrupt(name, at_once=at_once)
    raise AssertionError("the signals ended")
