"""Input of the terminal: piped files and questions, and the lines of a chat with history."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import select
import stat
import sys
from collections.abc import AsyncIterator
from typing import Final

import prompt_toolkit
from prompt_toolkit import history

from interpreter_bot import errors
from interpreter_bot.platforms.console import stdout_writer

_GREETING: Final = "Ask, or run code with /py CODE. Ctrl-C stops an answer, Ctrl-D ends the chat."

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


def is_possible() -> bool:
    """Whether a person is at the terminal, to read and to write."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


async def lines(writer: stdout_writer.StdoutWriter) -> AsyncIterator[str]:
    """Iterate over the lines that a person enters, until they end the chat.

    Args:
        writer: what prints the answers; a prompt waits until it has.
    """
    session: prompt_toolkit.PromptSession[str] = prompt_toolkit.PromptSession(
        history=history.InMemoryHistory(), reserve_space_for_menu=0
    )
    print(_GREETING)
    while True:
        await writer.drain()
        try:
            # Its own handling of SIGINT would replace ours, which stops a turn.
            line = await session.prompt_async("> ", handle_sigint=False)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if line.strip():
            yield line


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
                raise PipeError("Standard input cannot be read.") from error


def opened() -> Piped | None:
    """Return the data in standard input, once some of it is there; None if there is none.

    Raises:
        PipeError: it cannot be read.
    """
    descriptor = _descriptor()
    if descriptor is None or stat.S_ISCHR(os.fstat(descriptor).st_mode):
        # A terminal is for answers, and /dev/null is no input.
        return None
    head = _read(descriptor, _HEAD_BYTES)
    return Piped(f"stdin.{_suffix(head)}", head, descriptor) if head else None


def text(*, most_characters: int) -> str:
    """Read a question to its end.

    Raises:
        PipeError: there is none, or it is no question.
    """
    descriptor = _descriptor()
    read = b""
    while descriptor is not None and (chunk := _read(descriptor, _CHUNK_BYTES)):
        read += chunk
        # A character takes four bytes at most.
        if len(read) > 4 * most_characters:
            raise PipeError(
                f"Standard input is longer than the {most_characters:,} characters that a question "
                "may have; give the question as an argument, and it becomes a file."
            )
    try:
        question = read.decode().strip()
    except UnicodeDecodeError as error:
        raise PipeError("Standard input is no text, so it is no question.") from error
    if not question:
        raise PipeError("There is nothing to ask; see interpreter-bot ask --help.")
    return question


def _descriptor() -> int | None:
    """Return the descriptor of standard input; a command may be started without any."""
    try:
        return sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return None


def _read(descriptor: int, most_bytes: int) -> bytes:
    try:
        if not select.select([descriptor], [], [], _SILENT_SECONDS)[0]:
            # A pipe without writer that is never closed would look like a command that hangs.
            sys.stderr.write("Waiting for standard input; </dev/null says that there is none.\n")
        return os.read(descriptor, most_bytes)
    except OSError as error:
        raise PipeError("Standard input cannot be read.") from error


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
