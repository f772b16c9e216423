"""Lines that a person enters in a chat at the terminal, edited, completed and called back.

Importing it takes a while: who asks one question, or runs a cell, does not wait for it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeAlias

import prompt_toolkit
from prompt_toolkit import completion, document, history

from interpreter_bot.platforms.console import threaded_stdout
from interpreter_bot.wording import terminal_words

_MENU_LINES: Final = 6

Complete: TypeAlias = Callable[[str], Awaitable[Sequence[tuple[str, int, str]]]]
"""Says how a line may go on: words, how much of each is there already, and what it is."""


class _LineCompleter(completion.Completer):
    """Completes what a line may go on with."""

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
        for word, typed, about in await self._complete(document.text_before_cursor):
            if word.isprintable():
                yield completion.Completion(word, -typed, display_meta=about)


async def lines(writer: threaded_stdout.StdoutWriter, complete: Complete) -> AsyncIterator[str]:
    """Iterate over the lines that a person enters, until they end the chat.

    Args:
        writer: what prints the answers; a prompt waits until it has.
        complete: is asked with each Tab.
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
