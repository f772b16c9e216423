"""Runs of `ask` and `exec` in a terminal: signals, input files, and slow readers of output.

Ctrl-C stops the running code and keeps its variables; a second one, or SIGTERM, ends the command.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Final, TypeAlias

from interpreter_bot.commands import exit_statuses
from interpreter_bot.platforms.console import code_sources, saved_files, threaded_output
from interpreter_bot.wording import operator_words

_MAX_LAST_OUTPUT_SECONDS: Final = 1.0
_TICK_SECONDS: Final = 1.0


class Interrupter:
    """Handles signals: stops the running code, or ends the command.

    Attributes:
        stop_current: stops the running code; None if nothing runs.
    """

    def __init__(self) -> None:
        self.stop_current: Callable[[], Awaitable[object]] | None = None
        self._task = asyncio.current_task()
        self._stop_task: asyncio.Future[object] | None = None

    def set_stop(self, stop: Callable[[], Awaitable[object]]) -> None:
        """Set how to stop the next code; earlier stops are forgotten."""
        self.stop_current = stop
        self._stop_task = None

    def stop(self) -> None:
        """Stop the running code; the second time, or if nothing runs, end the command."""
        if self.stop_current is None or self._stop_task is not None:
            self.end()
        else:
            self._stop_task = asyncio.ensure_future(self.stop_current())

    def end(self) -> None:
        """End the command."""
        if self._task is not None:
            self._task.cancel()


@contextlib.asynccontextmanager
async def ticking(tick: Callable[[], None]) -> AsyncIterator[None]:
    """Call `tick` each second."""

    async def tick_each_second() -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            tick()

    task = asyncio.create_task(tick_each_second(), name="terminal: elapsed time")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


Work: TypeAlias = Callable[[Interrupter], Awaitable[int]]
"""The work of a command; returns the exit status."""


def require_files(paths: Iterable[pathlib.Path]) -> None:
    """Check that files exist, before anything is started.

    Raises:
        InputFileError: a file does not exist.
    """
    for path in paths:
        if not path.exists() or path.is_dir():
            raise code_sources.InputFileError(operator_words.not_a_file(path))


def run(
    work: Work, writer: threaded_output.OutputWriter, saver: saved_files.SavedFiles | None
) -> int:
    """Do the work; return the exit status, which is a failure if a file could not be saved."""
    try:
        status = asyncio.run(_run_and_write(work, writer))
    except threaded_output.OutputQueueFullError as error:
        sys.stderr.write(f"interpreter-bot: {error}\n")
        return exit_statuses.FAILED
    return exit_statuses.FAILED if not status and saver is not None and saver.has_failed else status


async def _run_and_write(work: Work, writer: threaded_output.OutputWriter) -> int:
    """Do the work, then wait for the readers of its output."""
    with _interruptible() as interrupter:
        try:
            status = await work(interrupter)
        except BaseException as error:
            # Write the output so far, if there is a reader.
            with contextlib.suppress(OSError):
                async with asyncio.timeout(_MAX_LAST_OUTPUT_SECONDS):
                    await writer.drain()
            if not isinstance(error, asyncio.CancelledError):
                raise
            return (
                exit_statuses.REFUSED if interrupter.stop_current is None else exit_statuses.FAILED
            )
        # Nothing is left to stop: the next signal ends the wait.
        interrupter.stop_current = None
        try:
            await writer.drain()
        except asyncio.CancelledError:
            return exit_statuses.FAILED
        return status


@contextlib.contextmanager
def _interruptible() -> Iterator[Interrupter]:
    """Handle signals from the beginning, so that the work can always clean up."""
    loop = asyncio.get_running_loop()
    interrupter = Interrupter()
    loop.add_signal_handler(signal.SIGINT, interrupter.stop)
    loop.add_signal_handler(signal.SIGTERM, interrupter.end)
    try:
        yield interrupter
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)
