"""Runs of `ask` and `exec` in a terminal: signals, input files, and output that is read late.

Ctrl-C stops what runs and keeps its variables; a second one, or SIGTERM, ends everything in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Final, TypeAlias

from interpreter_bot.platforms.console import code_sources, saved_files, threaded_stdout
from interpreter_bot.wording import operator_words

FAILED: Final = 1
REFUSED: Final = 2

_LAST_WORDS_SECONDS: Final = 1.0
_TICK_SECONDS: Final = 1.0


class Interrupter:
    """Reaction to signals: stop what runs, or end the command.

    Attributes:
        stop_it: stops what runs now; None while there is nothing to stop.
    """

    def __init__(self) -> None:
        self.stop_it: Callable[[], Awaitable[object]] | None = None
        self._task = asyncio.current_task()
        self._stopping: asyncio.Future[object] | None = None

    def stop_by(self, stop: Callable[[], Awaitable[object]]) -> None:
        """Set how to stop what runs next; forgets earlier stops."""
        self.stop_it = stop
        self._stopping = None

    def stop(self) -> None:
        """Stop what runs; the second time, or if nothing runs, end everything."""
        if self.stop_it is None or self._stopping is not None:
            self.end()
        else:
            self._stopping = asyncio.ensure_future(self.stop_it())

    def end(self) -> None:
        """End everything in order."""
        if self._task is not None:
            self._task.cancel()


@contextlib.asynccontextmanager
async def ticking(tick: Callable[[], None]) -> AsyncIterator[None]:
    """Call `tick` each second."""

    async def call() -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            tick()

    task = asyncio.create_task(call(), name="terminal: elapsed time")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


Work: TypeAlias = Callable[[Interrupter], Awaitable[int]]
"""Command's work under an interrupter; returns the exit status."""


def check_files(paths: Iterable[pathlib.Path]) -> None:
    """Check that files exist, before anything is started.

    Raises:
        InputFileError: one does not.
    """
    for path in paths:
        if not path.exists() or path.is_dir():
            raise code_sources.InputFileError(operator_words.not_a_file(path))


def run(
    work: Work, writer: threaded_stdout.StdoutWriter, saver: saved_files.SavedFiles | None
) -> int:
    """Do the work; returns the exit status, which is a failure if a file could not be kept."""
    try:
        status = asyncio.run(_run_and_write(work, writer))
    except threaded_stdout.UnreadError as error:
        sys.stderr.write(f"interpreter-bot: {error}\n")
        return FAILED
    return FAILED if not status and saver is not None and saver.has_failed else status


async def _run_and_write(work: Work, writer: threaded_stdout.StdoutWriter) -> int:
    """Run everything, and wait for the readers only once nothing else is left."""
    with _interruptible() as interruption:
        try:
            status = await work(interruption)
        except BaseException as error:
            # Output so far is written out, if there is a reader.
            with contextlib.suppress(OSError):
                async with asyncio.timeout(_LAST_WORDS_SECONDS):
                    await writer.drain()
            if not isinstance(error, asyncio.CancelledError):
                raise
            return REFUSED if interruption.stop_it is None else FAILED
        # Nothing is left to stop: the next signal ends the wait.
        interruption.stop_it = None
        try:
            await writer.drain()
        except asyncio.CancelledError:
            return FAILED
        return status


@contextlib.contextmanager
def _interruptible() -> Iterator[Interrupter]:
    """Handle signals from the first moment, so that nothing is left behind."""
    loop = asyncio.get_running_loop()
    interruption = Interrupter()
    loop.add_signal_handler(signal.SIGINT, interruption.stop)
    loop.add_signal_handler(signal.SIGTERM, interruption.end)
    try:
        yield interruption
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)
