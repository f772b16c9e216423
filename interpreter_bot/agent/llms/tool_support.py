"""Detect whether a model can call tools, by its name and by its replies."""

from __future__ import annotations

import dataclasses
import logging
import time
from typing import Final

from interpreter_bot.agent import chat_messages, model_errors, ports
from interpreter_bot.agent.llms import chat_completions, code_block_llm

_log = logging.getLogger(__name__)

# A server may have got another model, or other settings, since.
_TRIAL_SECONDS: Final = 1800.0
_GONE_OVER: Final = (
    "This language model turned out not to call tools ({reason}). From now on it writes code as "
    "blocks in its words, and those are run."
)
_CAME_BACK: Final = (
    "This language model calls tools after all. From now on, code in its words is only shown."
)
_AS_TEXT: Final = (
    "[That call was written as text, and has not been run. Make it as a call, or answer the "
    "person in words.]"
)


class AdaptiveLlm:
    """A model with tools that falls back to code blocks if it cannot call.

    Proof of that is a server that refuses tools, or a call that is written as text; of a model that
    has made a native call, only a second one, after it was told. Code that is merely shown proves
    nothing and is never run. The listener of the turn gets a notice of a change. It is undone by a
    native call: tools are offered again now and then. This is remembered as long as the bot runs.

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
        self._has_called = False
        self._trial_at: float | None = None

    async def reply(
        self, prompt: chat_messages.Prompt, *, listener: ports.ModelReplyListener
    ) -> chat_messages.ModelReply:
        """Request a reply, with tools or without."""
        if self._is_small or not self._offers_tools(prompt):
            return await self._without.reply(prompt, listener=listener)
        try:
            reply = await self._with_tools.reply(prompt, listener=listener, finds_calls=True)
        except model_errors.ToolsRefusedError:
            self._go_over("its server refuses them", listener)
            return await self._without.reply(prompt, listener=listener)
        if reply.calls and reply.call_format is chat_messages.CallFormat.NATIVE:
            self._come_back(listener)
        elif reply.calls and self._has_called and self._trial_at is None:
            reply = await self._asked_again(prompt, reply, listener)
        elif reply.calls:
            self._go_over("it writes its calls as text", listener)
        elif self._trial_at is not None:
            # Words alone prove nothing; the code they hold is not run, so trials stay rare.
            self._trial_at = time.monotonic() + _TRIAL_SECONDS
        return reply

    def _offers_tools(self, prompt: chat_messages.Prompt) -> bool:
        if self._trial_at is None:
            return True
        last = prompt.messages[-1] if prompt.messages else None
        # No turn changes its way in the middle for a mere trial.
        begins = isinstance(last, chat_messages.UserMessage) and not last.is_ours
        return begins and prompt.may_call and time.monotonic() >= self._trial_at

    async def _asked_again(
        self,
        prompt: chat_messages.Prompt,
        reply: chat_messages.ModelReply,
        listener: ports.ModelReplyListener,
    ) -> chat_messages.ModelReply:
        """Give a model that can call a second chance; the call it wrote as text is not run."""
        written = (reply.text.strip(), *(call.arguments for call in reply.calls))
        told = (
            chat_messages.AssistantMessage("\n".join(filter(None, written))),
            chat_messages.UserMessage(_AS_TEXT, is_ours=True),
        )
        prompt = dataclasses.replace(prompt, messages=(*prompt.messages, *told))
        try:
            again = await self._with_tools.reply(prompt, listener=listener, finds_calls=True)
        except model_errors.CutError as error:
            error.partial = code_block_llm.with_both(reply, error.partial)
            raise
        if again.calls and again.call_format is not chat_messages.CallFormat.NATIVE:
            self._go_over("it writes its calls as text", listener)
        return code_block_llm.with_both(reply, again)

    def _go_over(self, reason: str, listener: ports.ModelReplyListener) -> None:
        if self._trial_at is None:
            _log.info("a model is used without tools from now on: %s", reason)
            listener.notice(_GONE_OVER.format(reason=reason))
        self._trial_at = time.monotonic() + _TRIAL_SECONDS

    def _come_back(self, listener: ports.ModelReplyListener) -> None:
        self._has_called = True
        if self._trial_at is not None:
            _log.info("a model is used with tools again: it called one")
            listener.notice(_CAME_BACK)
            self._trial_at = None
