"""Garbage collection during a start, whose modules and all that it opens are kept anyway.

Light, as the command line imports it before all else.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused(*, freezes: bool = True) -> Iterator[None]:
    """Collect no garbage meanwhile; with `freezes`, exempt afterwards all that exists then.

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
