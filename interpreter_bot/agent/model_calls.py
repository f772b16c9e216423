"""Call a model: fit the transcript into its window, check the budget, stream, record usage."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Final

from interpreter_bot import events, settings, values
from interpreter_bot.agent import (
    budgets,
    chat_messages,
    context_windows,
    model_errors,
    picture_selection,
    ports,
    prompt_texts,
    transcripts,
)

_ANSWER_NOW: Final = chat_messages.Note(
    "[No more code will be run. Answer the person now, in words, from the outputs above, and say "
    "what is missing.]"
)
_SUMMARY_TOKENS: Final = 500
_WINDOW_SHRINK_FACTOR: Final = 0.6
_MAX_ATTEMPTS: Final = 3
_MAX_TEMPERATURE: Final = 1.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompletedCall:
    """The result of a model call.

    Attributes:
        reply: the model's reply; a cut reply has only text.
        is_cut: the stream ended before the reply did.
        may_call: the model was allowed to call tools.
        is_last: the budget allows no further call.
    """

    reply: chat_messages.ModelReply
    is_cut: bool
    may_call: bool
    is_last: bool


class ModelCaller:
    """Calls one model during one turn.

    Attributes:
        text: all text received since the loop last emptied this attribute.
    """

    def __init__(
        self,
        llm: ports.Llm,
        model: settings.Model,
        *,
        budget: budgets.Budget,
        emit: events.Emit,
        offered_tools: Sequence[chat_messages.Tool],
        cache_key: str = "",
    ) -> None:
        self.text = ""
        self._cache_key = cache_key
        self._output_tokens = 0
        self._llm = llm
        self._model = model
        self._tools = tuple(offered_tools)
        self._budget = budget
        self._emit = emit
        self._window_share = 1.0
        self._token_ratio = 1.0
        self._fixed_tokens = 0
        self._has_drafted_code = False

    def _receive(self, event: events.TurnEvent) -> None:
        match event:
            case events.TextAdded(text=text):
                self.text += text
                self._output_tokens += context_windows.estimate_text_tokens(text)
            case events.CodeDrafted(text=text):
                self._has_drafted_code = True
                self._output_tokens += context_windows.estimate_text_tokens(text)
        self._emit(event)

    async def ask(
        self,
        system: str,
        transcript: transcripts.Transcript,
        *,
        must_answer: bool,
        continues_text: bool,
        setbacks: int,
    ) -> CompletedCall | budgets.Refusal:
        """Call the model; if it refuses the transcript as too long, shorten it and call again.

        Args:
            system: the system prompt.
            transcript: the messages; old turns may be summarised.
            must_answer: the model may not call tools any more.
            continues_text: the reply continues a text that was cut off, so it is no new step.
            setbacks: steps in a row without progress, which raise the temperature.

        Raises:
            ModelError: the model could not be used. An `IncompleteReplyError` is not
                raised: the partial reply is returned with `is_cut` set.
        """
        schema_tokens = sum(context_windows.estimate_text_tokens(f"{tool}") for tool in self._tools)
        self._fixed_tokens = context_windows.estimate_text_tokens(system) + schema_tokens
        for _ in range(_MAX_ATTEMPTS - 1):
            try:
                return await self._ask(system, transcript, must_answer, continues_text, setbacks)
            except model_errors.ContextTooLongError:
                self._window_share *= _WINDOW_SHRINK_FACTOR
        return await self._ask(system, transcript, must_answer, continues_text, setbacks)

    async def _ask(
        self,
        system: str,
        transcript: transcripts.Transcript,
        must_answer: bool,
        continues_text: bool,
        setbacks: int,
    ) -> CompletedCall | budgets.Refusal:
        fitted = await self._fit(transcript)
        messages = fitted.messages
        reasoning_tokens = context_windows.estimate_reasoning_tokens(messages)
        estimate = int((self._fixed_tokens + fitted.tokens + reasoning_tokens) * self._token_ratio)
        allotment = await self._budget.allot(estimate)
        if isinstance(allotment, budgets.Refusal):
            return allotment
        may_call = not (must_answer or allotment.is_last)
        if not may_call:
            messages = (*messages, chat_messages.UserMessage(_ANSWER_NOW.text, is_from_bot=True))
        prompt = chat_messages.Prompt(
            system=system,
            messages=messages,
            tools=self._tools,
            may_call=may_call,
            answer_tokens=min(allotment.answer_tokens, self._room_for_answer(estimate)),
            temperature=self._choose_temperature(setbacks),
            cache_key=self._cache_key,
        )
        if not continues_text or self._has_drafted_code:
            self._emit(events.StepStarted(self._budget.usage.steps + 1))
        self._has_drafted_code = False
        reply, is_cut = await self._stream_reply(prompt, estimate)
        return CompletedCall(
            reply=reply, is_cut=is_cut, may_call=may_call, is_last=allotment.is_last
        )

    async def _stream_reply(
        self, prompt: chat_messages.Prompt, estimate: int
    ) -> tuple[chat_messages.ModelReply, bool]:
        """Stream a reply; return it and whether it is cut. What arrived is charged even if the call
        fails."""
        is_cut = False
        self._output_tokens = 0
        try:
            reply = await self._llm.reply(prompt, emit=self._receive)
        except model_errors.IncompleteReplyError as error:
            reply, is_cut = error.partial, True
        except (asyncio.CancelledError, model_errors.ModelError) as error:
            # A content filter may stop a reply halfway; the part that arrived is charged.
            if self._output_tokens or isinstance(error, asyncio.CancelledError):
                self._charge(values.Usage(estimate, self._output_tokens, is_estimated=True))
            raise
        usage = _usage_or_estimate(reply, estimate, self._output_tokens)
        self._charge(usage)
        if not usage.is_estimated:
            # The server's count corrects later estimates for this model.
            self._token_ratio = max(
                self._token_ratio, self._token_ratio * usage.input_tokens / max(estimate, 1)
            )
        return reply, is_cut

    def _charge(self, usage: values.Usage, *, is_step: bool = True) -> None:
        self._emit(events.UsageChanged(self._budget.charge(usage, is_step=is_step)))

    def _room_for_answer(self, estimate: int) -> int:
        """Return how many tokens the window leaves for an answer; some servers refuse more."""
        window = self._model.context_tokens
        return max(window - estimate, window // 8)

    def _choose_temperature(self, setbacks: int) -> float | None:
        """Raise the temperature after setbacks, because at 0 a model repeats failed code."""
        if not setbacks:
            return self._model.temperature
        return min(max(self._model.temperature or 0.0, 0.4 + 0.2 * setbacks), _MAX_TEMPERATURE)

    async def _fit(self, transcript: transcripts.Transcript) -> context_windows.FittedTranscript:
        answer_tokens = min(self._model.answer_tokens, self._model.context_tokens // 4)
        available_tokens = (
            (self._model.context_tokens - answer_tokens) * self._window_share / self._token_ratio
        )
        limit = max(int(available_tokens) - self._fixed_tokens - _SUMMARY_TOKENS, _SUMMARY_TOKENS)
        fitted = context_windows.fit(self._select_pictures(transcript), limit)
        if not fitted.dropped_messages:
            return fitted
        summary = await self._summarise(fitted.dropped_messages, limit)
        transcript.replace(fitted, summary)
        return context_windows.fit(self._select_pictures(transcript), limit + _SUMMARY_TOKENS)

    def _select_pictures(
        self, transcript: transcripts.Transcript
    ) -> tuple[chat_messages.Message, ...]:
        """Keep only the newest pictures, or none if the model cannot see images."""
        if self._model.can_see_images:
            return picture_selection.keep_newest(transcript.entries)
        return picture_selection.drop_pictures(transcript.entries)

    async def _summarise(
        self, dropped_messages: tuple[chat_messages.Message, ...], max_tokens: int
    ) -> str:
        """Let the model summarise the dropped messages; a note replaces a failed summary."""
        if context_windows.estimate_tokens(dropped_messages) <= _SUMMARY_TOKENS:
            return transcripts.describe_dropped(dropped_messages)
        text = transcripts.format_as_text(dropped_messages, max_tokens)
        summary = await write_short_text(
            self._llm,
            self._budget,
            system=prompt_texts.read("summary"),
            text=text,
            answer_tokens=_SUMMARY_TOKENS - 100,
            charge=functools.partial(self._charge, is_step=False),
        )
        if not summary:
            # If the model is unreachable, the next call of the turn reports that.
            return transcripts.describe_dropped(dropped_messages)
        shortened = context_windows.shorten(summary, 3000)
        return f"[What was said before, in short:]\n{shortened}"


async def write_short_text(
    llm: ports.Llm,
    budget: budgets.Budget,
    *,
    system: str,
    text: str,
    answer_tokens: int,
    charge: Callable[[values.Usage], object],
) -> str:
    """Let a model write a short text, such as a title; empty if that fails or costs too much.

    Args:
        llm: the model.
        budget: must allow the call.
        system: the task.
        text: the input.
        answer_tokens: limit of the answer.
        charge: called with the cost, also if the text is cut or the call is cancelled.
    """
    estimate = context_windows.estimate_text_tokens(text) + context_windows.estimate_text_tokens(
        system
    )
    allotment = await budget.allot(estimate)
    if isinstance(allotment, budgets.Refusal) or allotment.is_last:
        return ""
    prompt = chat_messages.Prompt(
        system=system,
        messages=(chat_messages.UserMessage(text),),
        answer_tokens=min(answer_tokens, allotment.answer_tokens),
    )
    try:
        reply = await llm.reply(prompt, emit=events.discard)
    except model_errors.IncompleteReplyError as error:
        charge(_usage_or_estimate(error.partial, estimate, 0))
        return ""
    except asyncio.CancelledError:
        charge(values.Usage(estimate, is_estimated=True))
        raise
    except model_errors.ModelError:
        return ""
    charge(_usage_or_estimate(reply, estimate, 0))
    return reply.text.strip()


def _usage_or_estimate(
    reply: chat_messages.ModelReply, estimated_input_tokens: int, estimated_output_tokens: int
) -> values.Usage:
    """Return the usage that the server reported; if it reported none, or zero tokens, an estimate.

    Args:
        reply: the reply.
        estimated_input_tokens: the estimate of the prompt.
        estimated_output_tokens: the estimate of all that was streamed, also of calls that could not
            be read.
    """
    if reply.usage is not None and reply.usage.tokens:
        return reply.usage
    output_tokens = context_windows.estimate_text_tokens(reply.text)
    output_tokens += sum(
        context_windows.estimate_text_tokens(call.arguments) for call in reply.calls
    )
    return values.Usage(
        estimated_input_tokens, max(output_tokens, estimated_output_tokens), is_estimated=True
    )
