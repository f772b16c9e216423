"""Errors of threads, tasks and callbacks, which end no cell: they are printed, and nothing more."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

from . import compact_tracebacks

# Code that awaits a task gets this long to take its error.
_GRACE_SECONDS = 0.05


def install_handlers(loop: asyncio.AbstractEventLoop) -> None:
    """Print errors of all threads, and of tasks that run in an event loop besides cells."""
    threading.excepthook = _print_thread_error
    loop.set_exception_handler(_print_loop_error)
    loop.set_task_factory(_make_task)


def _make_task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
    task: Any = asyncio.Task(coro, loop=loop, **options)
    task.add_done_callback(_schedule_check)
    return task


def _schedule_check(task: Any) -> None:
    if task._log_traceback:
        task.get_loop().call_later(_GRACE_SECONDS, _print_task_error, task)


def _print_task_error(task: Any) -> None:
    """Print an error that no code has taken; Python would only when the task is deleted."""
    if task._log_traceback:
        coroutine = task.get_coro()
        # An awaitable object of a library, such as a request of aiohttp, has no name of its own.
        name = getattr(coroutine, "__qualname__", type(coroutine).__qualname__)
        _print(f"Exception in the task {name}:", task.exception())


def _print_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Print an event loop's report of a callback or task that failed."""
    heading = str(context.get("message", "Exception in the event loop"))
    _print(heading.partition(" at <")[0], context.get("exception"))


def _print_thread_error(failure: Any) -> None:
    if not issubclass(failure.exc_type, SystemExit):
        name = failure.thread.name if failure.thread else "a thread"
        _print(f"Exception in {name}:", failure.exc_value)


def _print(heading: str, error: BaseException | None) -> None:
    lines = [heading]
    if error is not None:
        lines += compact_tracebacks.compact(type(error), error, error.__traceback__)
    sys.stderr.write("\n".join(lines) + "\n")
