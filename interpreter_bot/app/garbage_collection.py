"""Pauses garbage collection during a start, which creates objects that stay, such as modules.

It imports little, because the command line imports it first.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused(*, freezes: bool = True) -> Iterator[None]:
    """Collect no garbage in the block; with `freezes`, exempt all objects that exist at its end.

    Otherwise a start runs the collector three hundred times, which takes a tenth of its time.
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
    """Exempt all present objects, mostly modules, from garbage collection in the block.

    A full collection would block the event loop for a tenth of a second. Enter it when everything
    is imported and open; `paused` exempts later imports.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
