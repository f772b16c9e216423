"""Questions of a chat in the terminal, with editing and a history."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Final

import prompt_toolkit
from prompt_toolkit import history

from interpreter_bot.platforms.console import stdout_writer

_GREETING: Final = "Ask, or run code with /py CODE. Ctrl-C stops an answer, Ctrl-D ends the chat."


def is_possible() -> bool:
    """Whether a person is at the terminal, to read and to write."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


async def lines(writer: stdout_writer.StdoutWriter) -> AsyncIterator[str]:
    """Give what a person enters, line by line, until they end the chat.

    Args:
        writer: what prints the answers; a question waits until it has.
    """
    session: prompt_toolkit.PromptSession[str] = prompt_toolkit.PromptSession(
        history=history.InMemoryHistory(), reserve_space_for_menu=0
    )
    print(_GREETING)
    while True:
        await writer.drain()
        try:
            # Its own handling of SIGINT would take away ours, which stops a turn.
            line = await session.prompt_async("> ", handle_sigint=False)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if line.strip():
            yield line
