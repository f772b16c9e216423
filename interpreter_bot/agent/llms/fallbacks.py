"""Repeat a refused request with less content, a bounded number of times.

Servers word refusals differently, so their words are not read. Instead, the first request that the
server accepts shows which content it had refused.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Iterator
from typing import Final

from interpreter_bot import events
from interpreter_bot.agent import chat_messages, model_errors, picture_selection, ports
from interpreter_bot.wording import model_words

_log = logging.getLogger(__name__)

# After this time, complete requests are tried again: the server may have another model or other
# settings by then, or its refusal may have had a temporary reason.
_FALLBACK_SECONDS: Final = 1800.0
# A server whose keys changed refuses its old reasoning once; other servers refuse it always.
_MAX_REASONING_REFUSALS: Final = 2


class FallbackLlm:
    """A model that gets smaller requests after its server refused one.

    Pictures are left out in one conversation only. Otherwise one person's unreadable picture would
    end the use of pictures for all people.

    Args:
        llm: the model.
        fenced: the same model without tools, for a server that refuses tools; None if there is
            no such model.
    """

    def __init__(self, llm: ports.Llm, fenced: ports.Llm | None = None) -> None:
        self._llm = llm
        self._fenced = fenced
        self._omit_optional_until = -math.inf
        self._omit_reasoning_until = -math.inf
        self._reasoning_refusals = 0
        self._use_fenced_until = -math.inf

    async def reply(
        self, prompt: chat_messages.Prompt, *, emit: events.Emit
    ) -> chat_messages.ModelReply:
        refusal: model_errors.RequestRefusedError | None = None
        for llm, attempt in self._attempts(prompt):
            try:
                reply = await llm.reply(attempt, emit=emit)
            except model_errors.RequestRefusedError as error:
                refusal = refusal or error
                continue
            if prompt.tools:
                self._record_tool_support(llm, emit)
            self._record_optional_parameters(llm, attempt)
            return self._mark_refused_content(prompt, attempt, reply, emit)
        raise refusal or model_errors.RequestRefusedError

    def _attempts(
        self, prompt: chat_messages.Prompt
    ) -> Iterator[tuple[ports.Llm, chat_messages.Prompt]]:
        """Yield at most six variants of a request, each with less content than the one before."""
        if time.monotonic() < self._omit_reasoning_until:
            prompt = _drop_reasoning(prompt)
        complete = dataclasses.replace(
            prompt, omits_optional_parameters=time.monotonic() < self._omit_optional_until
        )
        reduced = dataclasses.replace(prompt, omits_optional_parameters=True)
        minimal = _drop_reasoning(_drop_pictures(reduced))
        llm = self._llm
        if self._fenced is not None and time.monotonic() < self._use_fenced_until:
            llm = self._fenced
        variants = [complete, _drop_pictures(complete), _drop_reasoning(complete), reduced, minimal]
        for number, variant in enumerate(variants):
            if variant not in variants[:number]:
                yield llm, variant
        if self._fenced is not None and llm is not self._fenced and prompt.tools:
            yield self._fenced, minimal

    def _record_tool_support(self, llm: ports.Llm, emit: events.Emit) -> None:
        """Record whether the server accepted tools, and show people a notice if it did not."""
        if llm is self._llm:
            self._use_fenced_until = -math.inf
        elif time.monotonic() >= self._use_fenced_until:
            if self._use_fenced_until == -math.inf:
                emit(events.NoticeShown(model_words.TOOLS_REFUSED))
            self._use_fenced_until = time.monotonic() + _FALLBACK_SECONDS

    def _record_optional_parameters(self, llm: ports.Llm, attempt: chat_messages.Prompt) -> None:
        """If the server accepts no optional parameters, leave them out for a while."""
        # The first request without tools never has optional parameters, so it proves nothing.
        if (
            not attempt.omits_optional_parameters
            or llm is self._fenced
            or time.monotonic() < self._omit_optional_until
        ):
            return
        _log.warning("a model's server refuses optional parameters: declare which it refuses")
        self._omit_optional_until = time.monotonic() + _FALLBACK_SECONDS

    def _mark_refused_content(
        self,
        prompt: chat_messages.Prompt,
        attempt: chat_messages.Prompt,
        reply: chat_messages.ModelReply,
        emit: events.Emit,
    ) -> chat_messages.ModelReply:
        """Mark a reply with the content that the server refused."""
        had_pictures, has_pictures = (
            picture_selection.has_pictures(candidate.messages) for candidate in (prompt, attempt)
        )
        had_reasoning, has_reasoning = map(_has_reasoning, (prompt, attempt))
        lacks_pictures = had_pictures and not has_pictures
        lacks_reasoning = had_reasoning and not has_reasoning
        if lacks_pictures:
            emit(events.NoticeShown(model_words.PICTURES_REFUSED))
        if lacks_reasoning:
            self._reasoning_refusals += 1
            if self._reasoning_refusals == _MAX_REASONING_REFUSALS:
                self._omit_reasoning_until = time.monotonic() + _FALLBACK_SECONDS
                self._reasoning_refusals = 0
        elif had_reasoning:
            self._reasoning_refusals = 0
        return dataclasses.replace(
            reply, are_pictures_refused=lacks_pictures, is_reasoning_refused=lacks_reasoning
        )


def _drop_pictures(prompt: chat_messages.Prompt) -> chat_messages.Prompt:
    return dataclasses.replace(prompt, messages=picture_selection.drop_pictures(prompt.messages))


def _has_reasoning(prompt: chat_messages.Prompt) -> bool:
    return any(
        isinstance(message, chat_messages.AssistantMessage) and message.reasoning is not None
        for message in prompt.messages
    )


def _drop_reasoning(prompt: chat_messages.Prompt) -> chat_messages.Prompt:
    messages = tuple(
        dataclasses.replace(message, reasoning=None)
        if isinstance(message, chat_messages.AssistantMessage)
        else message
        for message in prompt.messages
    )
    return dataclasses.replace(prompt, messages=messages)
