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
# File types by their first bytes; text files are distinguished by their first line.
_SIGNATURES: Final = (
    (b"PAR1", "parquet"),
    (b"SQLite format 3\0", "sqlite"),
    (b"%PDF-", "pdf"),
    (b"\x89PNG\r\n", "png"),
    (b"\xff\xd8\xff", "jpg"),
    (b"\x1f\x8b", "gz"),
    # Office documents are zip files, too, with the same first bytes.
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
        self._buffer = b""

    async def read_answer(self, *, is_password: bool = False) -> str:
        """Wait for the next line; the wait can be cancelled.

        Args:
            is_password: a terminal does not show what is typed.

        Raises:
            NoAnswerError: standard input has ended.
        """
        if not self._has_reached_end and b"\n" not in self._buffer:
            await self._read_line(is_password=is_password)
        line, end, self._buffer = self._buffer.partition(b"\n")
        if not line and not end:
            raise NoAnswerError(terminal_words.NO_INPUT)
        return line.decode("utf-8", "replace").removesuffix("\r")

    async def read_approval(self, choices: Sequence[str]) -> events.Approved | events.Declined:
        """Wait for an approval, see `events.parse_approval`; the end of standard input declines."""
        try:
            return events.parse_approval(await self.read_answer(), choices)
        except NoAnswerError:
            return events.Declined()

    @property
    def has_ended(self) -> bool:
        """Whether there are no more lines."""
        return self._has_reached_end and b"\n" not in self._buffer

    def discard_typed_input(self) -> None:
        """Discard what was typed at a terminal before the question was shown."""
        descriptor = _stdin_descriptor() if self._descriptor is None else self._descriptor
        if descriptor is not None and os.isatty(descriptor):
            termios.tcflush(descriptor, termios.TCIFLUSH)
            self._buffer = b""

    async def _read_line(self, *, is_password: bool) -> None:
        """Read until a line is complete or standard input ends."""
        descriptor = _stdin_descriptor() if self._descriptor is None else self._descriptor
        if descriptor is None:
            self._has_reached_end = True
            return
        with _without_echo(descriptor) if is_password else contextlib.nullcontext():
            while not self._has_reached_end and b"\n" not in self._buffer:
                await _wait_readable(descriptor)
                chunk = os.read(descriptor, _ANSWER_CHUNK_BYTES)
                self._buffer += chunk
                self._has_reached_end = not chunk


def _stdin_descriptor() -> int | None:
    """Return the descriptor of standard input; a command may be started without any."""
    try:
        return sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return None


async def _wait_readable(descriptor: int) -> None:
    """Wait until reading does not block.

    A thread blocked in a read could not be stopped: it would keep the command from ending, and
    consume the line meant for the next question.
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
def _without_echo(descriptor: int) -> Iterator[None]:
    """Turn off the echo of a terminal, so that it does not show what is typed."""
    if not os.isatty(descriptor):
        yield
        return
    former_attributes = termios.tcgetattr(descriptor)
    new_attributes = termios.tcgetattr(descriptor)
    # The line end is still shown, so that the next output begins on its own line.
    new_attributes[3] = new_attributes[3] & ~termios.ECHO | termios.ECHONL
    termios.tcsetattr(descriptor, termios.TCSADRAIN, new_attributes)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, former_attributes)


def is_interactive() -> bool:
    """Return whether standard input and standard output are a terminal."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def is_regular_file() -> bool:
    """Return whether standard input is a regular file, which never blocks."""
    descriptor = _stdin_descriptor()
    return descriptor is not None and stat.S_ISREG(os.fstat(descriptor).st_mode)


class PipeError(errors.BotError):
    """Standard input cannot be used."""


@dataclasses.dataclass(frozen=True, slots=True)
class PipedFile:
    """A piped file of which only the beginning has been read.

    Attributes:
        name: derived from its first bytes, such as `stdin.csv`.
        head: its first bytes.
        descriptor: the rest is read from it.
    """

    name: str
    head: bytes
    descriptor: int

    async def read_chunks(self) -> AsyncIterator[bytes]:
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


def wait_for_piped_file() -> PipedFile | None:
    """Wait for data on standard input, and return it as a file; None if there is no data.

    Raises:
        PipeError: it cannot be read.
    """
    descriptor = _stdin_descriptor()
    if descriptor is None or stat.S_ISCHR(os.fstat(descriptor).st_mode):
        # Terminals are for answers, and /dev/null has no input.
        return None
    head = _read_chunk(descriptor, _HEAD_BYTES)
    return PipedFile(f"stdin.{_guess_suffix(head)}", head, descriptor) if head else None


def read_question(*, max_characters: int) -> str:
    """Read a question from standard input, to its end.

    Raises:
        PipeError: there is no question, or it is too long or no text.
    """
    descriptor = _stdin_descriptor()
    data = b""
    while descriptor is not None and (chunk := _read_chunk(descriptor, _CHUNK_BYTES)):
        data += chunk
        # A character takes four bytes at most.
        if len(data) > 4 * max_characters:
            raise PipeError(terminal_words.question_too_long(max_characters))
    try:
        question = data.decode().strip()
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


def _guess_suffix(head: bytes) -> str:
    for signature, suffix in _SIGNATURES:
        if head.startswith(signature):
            return suffix
    first_line, line_end, other_lines = (
        head.decode("utf-8", "replace").lstrip("\ufeff").partition("\n")
    )
    if first_line[:1] in ("{", "["):
        is_by_line = first_line.rstrip().endswith("}") and other_lines.startswith("{")
        return "jsonl" if is_by_line else "json"
    if "\t" in first_line:
        return "tsv"
    return "csv" if line_end and ("," in first_line or ";" in first_line) else "txt"
