"""Answers to `input()` from standard input, unless that is the script itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
from collections.abc import Iterator

from interpreter_bot import errors

_CHUNK_BYTES = 4096


class StdinAnswers:
    """Lines of standard input, one for each question."""

    def __init__(self, *, is_script: bool, descriptor: int | None = None) -> None:
        """Read from standard input by default.

        Args:
            is_script: standard input was read to its end as the code to run.
            descriptor: what to read from instead.
        """
        self._is_over = is_script
        self._descriptor = descriptor
        self._read = b""

    async def next(self, *, is_password: bool = False) -> str:
        """Wait for the next line. A wait that is cancelled leaves nothing behind.

        Args:
            is_password: a terminal does not show what is typed.

        Raises:
            BotError: there is none.
        """
        if not self._is_over and b"\n" not in self._read:
            await self._fill(is_password=is_password)
        line, end, self._read = self._read.partition(b"\n")
        if not line and not end:
            raise errors.BotError("The code asked for input, and there is none to give.")
        return line.decode("utf-8", "replace").removesuffix("\r")

    async def agrees(self) -> bool:
        """Wait for a yes; anything else, and the end of the input, is a no."""
        try:
            answer = await self.next()
        except errors.BotError:
            return False
        return answer.strip().lower() in ("y", "yes")

    async def _fill(self, *, is_password: bool) -> None:
        """Read until a line is complete or nothing more comes."""
        descriptor = _stdin() if self._descriptor is None else self._descriptor
        if descriptor is None:
            self._is_over = True
            return
        with _silent(descriptor) if is_password else contextlib.nullcontext():
            while not self._is_over and b"\n" not in self._read:
                await _readable(descriptor)
                chunk = os.read(descriptor, _CHUNK_BYTES)
                self._read += chunk
                self._is_over = not chunk


def _stdin() -> int | None:
    """Return the descriptor of standard input; a command may be started without any."""
    try:
        return sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return None


async def _readable(descriptor: int) -> None:
    """Wait until reading does not block.

    A thread that reads could not be told to stop: it would keep the command from ending, and eat
    the line meant for the next question.
    """
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    try:
        loop.add_reader(descriptor, event.set)
    except PermissionError:
        return  # A regular file, which is always readable.
    try:
        await event.wait()
    finally:
        loop.remove_reader(descriptor)


@contextlib.contextmanager
def _silent(descriptor: int) -> Iterator[None]:
    """Keep a terminal from showing what is typed."""
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    # The line end is shown all the same, or the next output would stand beside the prompt.
    after = [*before[:3], before[3] & ~termios.ECHO | termios.ECHONL, *before[4:]]
    termios.tcsetattr(descriptor, termios.TCSADRAIN, after)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
