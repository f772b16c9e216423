"""Lines that a person enters in a chat at the terminal, with editing, completion and history.

The import takes a while, so only a chat imports this module, not a single question or cell.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeAlias

import prompt_toolkit
from prompt_toolkit import completion, document, history

from interpreter_bot.platforms.console import threaded_output
from interpreter_bot.wording import terminal_words

_MENU_LINES: Final = 6

Complete: TypeAlias = Callable[[str], Awaitable[Sequence[tuple[str, int, str]]]]
"""Completes a line; returns each word, how many of its letters are typed, and a description."""


class _LineCompleter(completion.Completer):
    """Completes the line before the cursor."""

    def __init__(self, complete: Complete) -> None:
        self._complete = complete

    def get_completions(
        self, document: document.Document, complete_event: completion.CompleteEvent
    ) -> Iterable[completion.Completion]:
        """Return nothing, as `get_completions_async` is called."""
        return ()

    async def get_completions_async(
        self, document: document.Document, complete_event: completion.CompleteEvent
    ) -> AsyncGenerator[completion.Completion, None]:
        for word, typed_length, description in await self._complete(document.text_before_cursor):
            if word.isprintable():
                yield completion.Completion(word, -typed_length, display_meta=description)


async def read_lines(
    writer: threaded_output.OutputWriter, complete: Complete
) -> AsyncIterator[str]:
    """Iterate over the lines that a person enters, until they end the chat.

    A prompt waits until `writer` has printed everything; `complete` is called with each Tab.
    """
    session: prompt_toolkit.PromptSession[str] = prompt_toolkit.PromptSession(
        history=history.InMemoryHistory(),
        completer=_LineCompleter(complete),
        complete_while_typing=False,
        reserve_space_for_menu=_MENU_LINES,
    )
    print(terminal_words.CHAT_GREETING)
    while True:
        await writer.drain()
        try:
            # Handling SIGINT here would replace our handler, which stops a turn.
            line = await session.prompt_async("> ", handle_sigint=False)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if line.strip():
            yield line
