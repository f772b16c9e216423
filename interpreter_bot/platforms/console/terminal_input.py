"""Input of the terminal: piped files and questions, answers to `input()`."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import select
import stat
import sys
import termios
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

from interpreter_bot import errors, events
from interpreter_bot.wording import terminal_words

_ANSWER_CHUNK_BYTES = 4096

_CHUNK_BYTES: Final = 1024 * 1024
_HEAD_BYTES: Final = 4096
_HINT_SECONDS: Final = 2.0
# Kinds of files by their first bytes; other kinds are told apart by their first line.
_SIGNATURES: Final = (
    (b"PAR1", "parquet"),
    (b"SQLite format 3\0", "sqlite"),
    (b"%PDF-", "pdf"),
    (b"\x89PNG\r\n", "png"),
    (b"\xff\xd8\xff", "jpg"),
    (b"\x1f\x8b", "gz"),
    # Office documents are zip files, too, and their first bytes do not tell them apart.
    (b"PK\x03\x04", "zip"),
)


class NoAnswerError(errors.BotError):
    """Nobody can answer, as standard input has ended."""


class StdinAnswers:
    """Lines of standard input, one for each question."""

    def __init__(self, *, is_script: bool, descriptor: int | None = None) -> None:
        """Read from standard input by default.

        Args:
            is_script: standard input was read to its end as the code to run.
            descriptor: what to read from instead.
        """
        self._has_reached_end = is_script
        self._descriptor = descriptor
        self._unconsumed = b""

    async def next(self, *, is_password: bool = False) -> str:
        """Wait for the next line; the wait can be cancelled.

        Args:
            is_password: a terminal does not show what is typed.

        Raises:
            NoAnswerError: standard input has ended.
        """
        if not self._has_reached_end and b"\n" not in self._unconsumed:
            await self._read_line(is_password=is_password)
        line, end, self._unconsumed = self._unconsumed.partition(b"\n")
        if not line and not end:
            raise NoAnswerError(terminal_words.NO_INPUT)
        return line.decode("utf-8", "replace").removesuffix("\r")

    async def approval(self, choices: Sequence[str]) -> events.Approved | events.Declined:
        """Wait for an approval; see `events.parse_approval`. The end of standard input is a no."""
        try:
            return events.parse_approval(await self.next(), choices)
        except NoAnswerError:
            return events.Declined()

    @property
    def has_ended(self) -> bool:
        """Whether there are no more lines."""
        return self._has_reached_end and b"\n" not in self._unconsumed

    def forget_typed(self) -> None:
        """Forget what was typed at a terminal before the question was shown."""
        descriptor = _stdin_descriptor() if self._descriptor is None else self._descriptor
        if descriptor is not None and os.isatty(descriptor):
            termios.tcflush(descriptor, termios.TCIFLUSH)
            self._unconsumed = b""

    async def _read_line(self, *, is_password: bool) -> None:
        """Read until a line is complete or standard input ends."""
        descriptor = _stdin_descriptor() if self._descriptor is None else self._descriptor
        if descriptor is None:
            self._has_reached_end = True
            return
        with _echo(descriptor, is_on=not is_password):
            while not self._has_reached_end and b"\n" not in self._unconsumed:
                await _wait_readable(descriptor)
                chunk = os.read(descriptor, _ANSWER_CHUNK_BYTES)
                self._unconsumed += chunk
                self._has_reached_end = not chunk


def _stdin_descriptor() -> int | None:
    """Return the descriptor of standard input; a command may be started without any."""
    try:
        return sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return None


async def _wait_readable(descriptor: int) -> None:
    """Wait until reading does not block.

    A thread that reads could not be stopped: it would keep the command from ending, and consume
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
def _echo(descriptor: int, *, is_on: bool) -> Iterator[None]:
    """Choose whether a terminal shows what is typed."""
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    # The line end is shown even then: the next output must not follow the prompt on its line.
    echo = termios.ECHO if is_on else termios.ECHONL
    after = [*before[:3], before[3] & ~(termios.ECHO | termios.ECHONL) | echo, *before[4:]]
    termios.tcsetattr(descriptor, termios.TCSADRAIN, after)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextlib.contextmanager
def without_echo() -> Iterator[None]:
    """Hide what a person types while no question is shown; a later prompt reads it."""
    descriptor = _stdin_descriptor()
    if descriptor is None or not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    changed = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(descriptor, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def is_interactive() -> bool:
    """Return whether standard input and standard output are a terminal."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def is_file() -> bool:
    """Return whether standard input is a regular file, which never blocks."""
    descriptor = _stdin_descriptor()
    return descriptor is not None and stat.S_ISREG(os.fstat(descriptor).st_mode)


class PipeError(errors.BotError):
    """Standard input cannot be used."""


@dataclasses.dataclass(frozen=True, slots=True)
class PipedFile:
    """A piped file of which only the beginning is read.

    Attributes:
        name: derived from its first bytes, such as `stdin.csv`.
        head: its first bytes.
        descriptor: the rest is read from it.
    """

    name: str
    head: bytes
    descriptor: int

    async def chunks(self) -> AsyncIterator[bytes]:
        """Iterate over the whole file, in pieces.

        Raises:
            PipeError: it cannot be read to its end.
        """
        chunk = self.head
        while chunk:
            yield chunk
            try:
                chunk = await asyncio.to_thread(os.read, self.descriptor, _CHUNK_BYTES)
            except OSError as error:
                raise PipeError(terminal_words.STDIN_UNREADABLE) from error


def piped_file() -> PipedFile | None:
    """Wait for data in standard input and return it; None if there is none.

    Raises:
        PipeError: it cannot be read.
    """
    descriptor = _stdin_descriptor()
    if descriptor is None or stat.S_ISCHR(os.fstat(descriptor).st_mode):
        # A terminal is for answers, and /dev/null is no input.
        return None
    head = _read_chunk(descriptor, _HEAD_BYTES)
    return PipedFile(f"stdin.{_suffix(head)}", head, descriptor) if head else None


def read_question(*, max_characters: int) -> str:
    """Read a question to its end.

    Raises:
        PipeError: there is no question, or it is too long or no text.
    """
    descriptor = _stdin_descriptor()
    read = b""
    while descriptor is not None and (chunk := _read_chunk(descriptor, _CHUNK_BYTES)):
        read += chunk
        # A character takes four bytes at most.
        if len(read) > 4 * max_characters:
            raise PipeError(terminal_words.question_too_long(max_characters))
    try:
        question = read.decode().strip()
    except UnicodeDecodeError as error:
        raise PipeError(terminal_words.STDIN_NOT_TEXT) from error
    if not question:
        raise PipeError(terminal_words.NO_QUESTION)
    return question


def _read_chunk(descriptor: int, max_bytes: int) -> bytes:
    try:
        if not select.select([descriptor], [], [], _HINT_SECONDS)[0]:
            # Without this hint, a pipe that nobody writes to would look like a command that hangs.
            sys.stderr.write(f"{terminal_words.STDIN_WAITED_FOR}\n")
        return os.read(descriptor, max_bytes)
    except OSError as error:
        raise PipeError(terminal_words.STDIN_UNREADABLE) from error


def _suffix(head: bytes) -> str:
    for signature, suffix in _SIGNATURES:
        if head.startswith(signature):
            return suffix
    first, end, rest = head.decode("utf-8", "replace").lstrip("\ufeff").partition("\n")
    if first[:1] in ("{", "["):
        is_by_line = first.rstrip().endswith("}") and rest.startswith("{")
        return "jsonl" if is_by_line else "json"
    if "\t" in first:
        return "tsv"
    return "csv" if end and ("," in first or ";" in first) else "txt"
