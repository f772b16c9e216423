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

_ANSWER_BYTES = 4096

_CHUNK_BYTES: Final = 1024 * 1024
_HEAD_BYTES: Final = 4096
_SILENT_SECONDS: Final = 2.0
# Kinds of files by their first bytes; other kinds are told apart by their first line.
_SIGNATURES: Final = (
    (b"PAR1", "parquet"),
    (b"SQLite format 3\0", "sqlite"),
    (b"%PDF-", "pdf"),
    (b"\x89PNG\r\n", "png"),
    (b"\xff\xd8\xff", "jpg"),
    (b"\x1f\x8b", "gz"),
    # An office document is one, too, but nothing at its beginning says which.
    (b"PK\x03\x04", "zip"),
)


class NoAnswerError(errors.BotError):
    """Nobody answers: standard input has ended."""


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
            NoAnswerError: there is none.
        """
        if not self._is_over and b"\n" not in self._read:
            await self._fill(is_password=is_password)
        line, end, self._read = self._read.partition(b"\n")
        if not line and not end:
            raise NoAnswerError(terminal_words.NO_INPUT)
        return line.decode("utf-8", "replace").removesuffix("\r")

    async def approval(self, choices: Sequence[str]) -> events.Approved | events.Declined:
        """Wait for a yes, or a choice or its first letter; all else, and the end of it, is a no."""
        try:
            return approval_of(await self.next(), choices)
        except NoAnswerError:
            return events.Declined()

    @property
    def has_ended(self) -> bool:
        """Whether no further line will come."""
        return self._is_over and b"\n" not in self._read

    def forget_typed(self) -> None:
        """Forget what was typed at a terminal before a question was there to be read."""
        descriptor = _stdin() if self._descriptor is None else self._descriptor
        if descriptor is not None and os.isatty(descriptor):
            termios.tcflush(descriptor, termios.TCIFLUSH)
            self._read = b""

    async def _fill(self, *, is_password: bool) -> None:
        """Read until a line is complete or nothing more comes."""
        descriptor = _stdin() if self._descriptor is None else self._descriptor
        if descriptor is None:
            self._is_over = True
            return
        with _echo(descriptor, is_on=not is_password):
            while not self._is_over and b"\n" not in self._read:
                await _readable(descriptor)
                chunk = os.read(descriptor, _ANSWER_BYTES)
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
def _echo(descriptor: int, *, is_on: bool) -> Iterator[None]:
    """Let a terminal show what is typed, or not."""
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    # The line end is shown all the same, or the next output would stand beside the prompt.
    echo = termios.ECHO if is_on else termios.ECHONL
    after = [*before[:3], before[3] & ~(termios.ECHO | termios.ECHONL) | echo, *before[4:]]
    termios.tcsetattr(descriptor, termios.TCSADRAIN, after)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what a person types while nothing is asked out of what is shown; prompts read it."""
    descriptor = _stdin()
    if descriptor is None or not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    quiet_mode = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(descriptor, termios.TCSADRAIN, quiet_mode)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def approval_of(line: str, choices: Sequence[str]) -> events.Approved | events.Declined:
    """Return what a line says: a yes, a choice or its first letter, else a no."""
    word = line.strip().lower()
    if word in ("y", "yes"):
        return events.Approved()
    scope = next((choice for choice in choices if word in (choice, choice[0])), None)
    return events.Declined() if scope is None else events.Approved(scope=scope)


def is_interactive() -> bool:
    """Whether a person is at the terminal, to read and to write."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def is_file() -> bool:
    """Whether standard input is a file, whose content is all there."""
    descriptor = _stdin()
    return descriptor is not None and stat.S_ISREG(os.fstat(descriptor).st_mode)


class PipeError(errors.BotError):
    """Standard input cannot be used."""


@dataclasses.dataclass(frozen=True, slots=True)
class Piped:
    """A piped file that is still to be read.

    Attributes:
        name: derived from its first bytes, such as `stdin.csv`.
        head: the bytes read for that.
        descriptor: where the rest comes from.
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


def piped_file() -> Piped | None:
    """Return the data in standard input, once some of it is there; None if there is none.

    Raises:
        PipeError: it cannot be read.
    """
    descriptor = _stdin()
    if descriptor is None or stat.S_ISCHR(os.fstat(descriptor).st_mode):
        # A terminal is for answers, and /dev/null is no input.
        return None
    head = _read(descriptor, _HEAD_BYTES)
    return Piped(f"stdin.{_suffix(head)}", head, descriptor) if head else None


def read_question(*, max_characters: int) -> str:
    """Read a question to its end.

    Raises:
        PipeError: there is none, or it is no question.
    """
    descriptor = _stdin()
    read = b""
    while descriptor is not None and (chunk := _read(descriptor, _CHUNK_BYTES)):
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


def _read(descriptor: int, max_bytes: int) -> bytes:
    try:
        if not select.select([descriptor], [], [], _SILENT_SECONDS)[0]:
            # A pipe without writer that is never closed would look like a command that hangs.
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
