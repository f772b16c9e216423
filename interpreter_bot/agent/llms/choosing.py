"""Finding out whether a model can call tools, by what it does."""

from __future__ import annotations

import logging
from typing import Final

from interpreter_bot.agent import failures, messages, ports
from interpreter_bot.agent.llms import chat, fenced

_log = logging.getLogger(__name__)

# A capable model may once show code that is only meant to be read.
_BLOCKS: Final = 2


class Choosing:
    """Starts with tools, and goes over to fenced blocks for good where the model needs it.

    A call written as JSON text is proof at once, and so is a server that refuses tools; blocks of
    Python are run, and are proof when they come twice. A model that has made one native call has
    proved the opposite. This is remembered as long as the bot runs.
    """

    def __init__(self, with_tools: chat.Chat, without: fenced.Fenced) -> None:
        self._with_tools = with_tools
        self._without = without
        self._is_fenced = False
        self._has_called = False
        self._blocks = 0

    @property
    def is_fenced(self) -> bool:
        """Whether this model is spoken to without tools."""
        return self._is_fenced

    async def reply(self, prompt: messages.Prompt, *, hearing: ports.Hearing) -> messages.Reply:
        """Answer, one way or the other."""
        if not self._is_fenced:
            try:
                reply = await self._with_tools.reply(
                    prompt, hearing=hearing, takes_python=not self._has_called
                )
            except failures.ToolsRefusedError:
                self._go_over("its server refuses tools")
            else:
                self._learn(reply)
                return reply
        return await self._without.reply(prompt, hearing=hearing)

    def _learn(self, reply: messages.Reply) -> None:
        if not reply.calls or self._has_called:
            return
        if reply.manner is messages.Manner.NATIVE:
            self._has_called = True
            return
        self._blocks += 1
        if reply.manner is messages.Manner.JSON or self._blocks >= _BLOCKS:
            self._go_over("it writes its calls as text")

    def _go_over(self, reason: str) -> None:
        _log.info("a model is used without tools from now on: %s", reason)
        self._is_fenced = True
