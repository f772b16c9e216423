"""Pauses garbage collection during a start, whose modules and objects are kept anyway.

It imports little, because the command line imports it first.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused(*, freezes: bool = True) -> Iterator[None]:
    """Collect no garbage in the block; with `freezes`, exempt all that exists at its end.

    A bot that starts would look through its modules three hundred times: a tenth of its start.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if freezes:
            gc.freeze()
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def frozen() -> Iterator[None]:
    """Exempt from garbage collection what exists now: modules, most of all.

    To look through it all, as Python does from time to time, holds the event loop for a tenth of a
    second. Enter it when all is imported and open; what is imported later is exempted by `paused`.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
