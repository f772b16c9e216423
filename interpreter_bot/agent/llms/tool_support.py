"""Detect whether a model can call tools, by its name and by what its server says."""

from __future__ import annotations

import logging
import time
from typing import Final

from interpreter_bot import events
from interpreter_bot.agent import chat_messages, model_errors
from interpreter_bot.agent.llms import chat_completions, code_block_llm
from interpreter_bot.wording import model_words

_log = logging.getLogger(__name__)

# A server may have got another model, or other settings, since.
_TRIAL_SECONDS: Final = 1800.0


class AdaptiveLlm:
    """A model with tools that writes code blocks while its server refuses tools.

    Tools are offered again now and then. Code that a model with tools merely shows is never run.

    Args:
        with_tools: the model with tools.
        without: the same model without.
        is_small: it is called without tools from the start, and that stays so.
    """

    def __init__(
        self,
        with_tools: chat_completions.ChatCompletionsLlm,
        without: code_block_llm.FencedLlm,
        *,
        is_small: bool,
    ) -> None:
        self._with_tools = with_tools
        self._without = without
        self._is_small = is_small
        self._trial_at: float | None = None

    async def reply(
        self, prompt: chat_messages.Prompt, *, emit: events.Emit
    ) -> chat_messages.ModelReply:
        """Request a reply, with tools or without."""
        if self._is_small or not self._offers_tools(prompt):
            return await self._without.reply(prompt, emit=emit)
        try:
            reply = await self._with_tools.reply(prompt, emit=emit)
        except model_errors.ToolsRefusedError:
            if self._trial_at is None:
                _log.info("a model is used without tools: its server refuses them")
                emit(events.NoticeShown(model_words.TOOLS_REFUSED))
            self._trial_at = time.monotonic() + _TRIAL_SECONDS
            return await self._without.reply(prompt, emit=emit)
        if self._trial_at is not None:
            _log.info("a model is used with tools again: its server takes them")
            emit(events.NoticeShown(model_words.TOOLS_BACK))
            self._trial_at = None
        return reply

    def _offers_tools(self, prompt: chat_messages.Prompt) -> bool:
        if self._trial_at is None:
            return True
        last = prompt.messages[-1] if prompt.messages else None
        # No turn changes its way in the middle for a mere trial.
        begins = isinstance(last, chat_messages.UserMessage) and not last.is_ours
        return begins and prompt.may_call and time.monotonic() >= self._trial_at
