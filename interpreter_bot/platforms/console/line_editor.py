"""Lines that a person enters in a chat at the terminal, edited, completed and called back.

Importing it takes a while: who asks one question, or runs a cell, does not wait for it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeAlias

import prompt_toolkit
from prompt_toolkit import completion, document, history

from interpreter_bot.platforms import command_table
from interpreter_bot.platforms.console import threaded_stdout
from interpreter_bot.wording import terminal_words

_CODE: Final = "/py "
_MENU_LINES: Final = 6

Complete: TypeAlias = Callable[[str], Awaitable[Sequence[tuple[str, int, str]]]]
"""Says how code may go on: words, how much of each is there already, and what it is."""


class _LineCompleter(completion.Completer):
    """Completes commands, and code as its session's Python knows."""

    def __init__(self, complete: Complete) -> None:
        self._complete = complete

    def get_completions(
        self, document: document.Document, complete_event: completion.CompleteEvent
    ) -> Iterable[completion.Completion]:
        """Complete nothing: the other one is asked."""
        return ()

    async def get_completions_async(
        self, document: document.Document, complete_event: completion.CompleteEvent
    ) -> AsyncGenerator[completion.Completion, None]:
        """Complete what stands before the cursor."""
        text = document.text_before_cursor
        if text.startswith(_CODE):
            for word, typed, about in await self._complete(text.removeprefix(_CODE)):
                if word.isprintable():
                    yield completion.Completion(word, -typed, display_meta=about)
        elif text.startswith("/"):
            for name, command in command_table.offered("console").items():
                if name.startswith(text[1:].lower()):
                    completed = f"/{name} " if command.argument else f"/{name}"
                    yield completion.Completion(
                        completed, -len(text), display=command.usage, display_meta=command.help
                    )


async def lines(writer: threaded_stdout.StdoutWriter, complete: Complete) -> AsyncIterator[str]:
    """Iterate over the lines that a person enters, until they end the chat.

    Args:
        writer: what prints the answers; a prompt waits until it has.
        complete: is asked with each Tab in code.
    """
    session: prompt_toolkit.PromptSession[str] = prompt_toolkit.PromptSession(
        history=history.InMemoryHistory(),
        completer=_LineCompleter(complete),
        complete_while_typing=False,
        reserve_space_for_menu=_MENU_LINES,
    )
    print(terminal_words.GREETING)
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
