"""`asyncio.run()` and similar calls in a cell, although the kernel's event loop runs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any

# ipykernel requires this library.
_NESTING_LIBRARY = "nest_asyncio2"


def install() -> None:
    """Let scripts run coroutines as if no event loop ran."""
    asyncio.run = asyncio.runners.run = _hide_running_loop(asyncio.run)
    asyncio.Runner.run = _hide_running_loop(asyncio.Runner.run)  # type: ignore[method-assign]
    loop: Any = asyncio.BaseEventLoop
    loop.run_forever = _hide_running_loop(loop.run_forever)
    run_until_complete = _hide_running_loop(loop.run_until_complete)

    @functools.wraps(run_until_complete)
    def run_nested(self: Any, future: Any) -> Any:
        if self.is_running():
            # The future belongs to this loop, so another loop cannot run it.
            importlib.import_module(_NESTING_LIBRARY).apply(self)
            return self.run_until_complete(future)
        return run_until_complete(self, future)

    loop.run_until_complete = run_nested
    former_name = _NESTING_LIBRARY.removesuffix("2")
    if importlib.util.find_spec(former_name) is None and importlib.util.find_spec(_NESTING_LIBRARY):
        # Scripts import the library by its former name.
        sys.modules[former_name] = importlib.import_module(_NESTING_LIBRARY)


def _hide_running_loop(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def run_with_hidden_loop(*arguments: Any, **options: Any) -> Any:
        with _without_running_loop():
            return run(*arguments, **options)

    return run_with_hidden_loop


@contextlib.contextmanager
def _without_running_loop() -> Iterator[None]:
    """Let another loop run in this thread."""
    loop = asyncio._get_running_loop()
    if loop is None:
        yield
        return
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)
        asyncio.set_event_loop(loop)
