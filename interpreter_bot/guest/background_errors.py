"""Errors of threads, tasks and callbacks, which end no cell: they are printed, and nothing more."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

from . import compact_tracebacks

# Code that awaits a task gets its error first.
_WAITER_SECONDS = 0.05


def watch(loop: asyncio.AbstractEventLoop) -> None:
    """Print errors of all threads, and of tasks that run in an event loop besides cells."""
    threading.excepthook = _show_thread_error
    loop.set_exception_handler(_show_loop_error)
    loop.set_task_factory(_make_task)


def _make_task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
    task: Any = asyncio.Task(coro, loop=loop, **options)
    task.add_done_callback(_check_task_later)
    return task


def _check_task_later(task: Any) -> None:
    if task._log_traceback:
        task.get_loop().call_later(_WAITER_SECONDS, _show_task_error, task)


def _show_task_error(task: Any) -> None:
    """Print an error that nobody has asked for; Python does when the task is deleted, if ever."""
    if task._log_traceback:
        _print(f"Exception in the task {task.get_coro().__qualname__}:", task.exception())


def _show_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Print what an event loop says of a callback or task that failed."""
    heading = str(context.get("message", "Exception in the event loop"))
    _print(heading.partition(" at <")[0], context.get("exception"))


def _show_thread_error(failure: Any) -> None:
    if not issubclass(failure.exc_type, SystemExit):
        name = failure.thread.name if failure.thread else "a thread"
        _print(f"Exception in {name}:", failure.exc_value)


def _print(heading: str, error: BaseException | None) -> None:
    lines = [heading]
    if error is not None:
        lines += compact_tracebacks.compact(type(error), error, error.__traceback__)
    sys.stderr.write("\n".join(lines) + "\n")
