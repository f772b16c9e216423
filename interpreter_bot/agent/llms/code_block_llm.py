"""Models without tool calling: code blocks in plain chat are run, and the output goes back."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

from interpreter_bot import events, values
from interpreter_bot.agent import (
    chat_messages,
    context_windows,
    lenient_json,
    model_errors,
    prompt_texts,
    tool_execution,
    tools,
)
from interpreter_bot.agent.llms import chat_completions, model_reply_assembly, small_model_remedies

_Content: TypeAlias = str | list[dict[str, Any]]


class BufferedModelReply:
    """Holds a reply's text back until code begins or it is released.

    For answers that may be replaced: their text is not shown before it is known to stand. If the
    turn is stopped before that, it shows what there was, as every turn does.
    """

    def __init__(self, emit: events.Emit) -> None:
        self._emit = emit
        self._held: list[str] | None = []

    def emit(self, event: events.TurnEvent) -> None:
        """Hold text back, or pass an event on."""
        if isinstance(event, events.TextAdded) and self._held is not None:
            self._held.append(event.text)
            return
        if isinstance(event, events.CodeDrafted):
            self.release()
        self._emit(event)

    def drop(self) -> None:
        """Discard the text held back, and start again."""
        self._held = []

    def release(self) -> None:
        """Pass on the text held back, and all that follows."""
        held, self._held = self._held, None
        if held:
            self._emit(events.TextAdded("".join(held)))


class FencedLlm:
    """A model without tools, over `chat_completions`; text after a code block is invented.

    Args:
        through: sends and receives.
        is_small: a long prompt would make its code worse.
    """

    def __init__(
        self, through: chat_completions.ChatCompletionsLlm, *, is_small: bool = False
    ) -> None:
        self._chat = through
        self._is_small = is_small

    async def reply(
        self, prompt: chat_messages.Prompt, *, emit: events.Emit
    ) -> chat_messages.ModelReply:
        """Request a reply; a block of Python is a call of `run_code`."""
        if self._is_small and (bare := small_model_remedies.bare_answer(prompt.messages)):
            emit(events.TextAdded(bare))
            written = values.Usage(0, context_windows.text_tokens(bare), is_estimated=True)
            return chat_messages.ModelReply(text=bare, usage=written)
        system = prompt.system
        if rules := self._rules(prompt):
            system = f"{system}\n\n{rules}"
        said: list[dict[str, Any]] = [{"role": "system", "content": system}]
        may_call = bool(prompt.tools) and prompt.may_call
        # The model has to see the output it is to answer from.
        for message in (
            small_model_remedies.without_dead_ends(prompt.messages) if may_call else prompt.messages
        ):
            _append(said, message)
        reminder = (
            small_model_remedies.reminder(
                prompt.messages,
                is_small=self._is_small,
                query=small_model_remedies.query_example(prompt),
            )
            if may_call
            else ""
        )
        if not reminder:
            return await self._converse(said, prompt, emit)
        _append(said, chat_messages.UserMessage(reminder, is_ours=True))
        buffered = BufferedModelReply(emit)
        try:
            reply = await self._converse(said, prompt, buffered.emit, buffered)
            objection = small_model_remedies.objection(reply, prompt, is_small=self._is_small)
            if not objection:
                return reply
            buffered.drop()
            _append(said, chat_messages.AssistantMessage(reply.text))
            _append(said, chat_messages.UserMessage(objection, is_ours=True))
            try:
                again = await self._converse(said, prompt, buffered.emit, buffered)
            except model_errors.CutError as error:
                error.partial = with_both(reply, error.partial)
                raise
            return with_both(reply, again)
        finally:
            buffered.release()

    def _rules(self, prompt: chat_messages.Prompt) -> str:
        """Return the rules for running code; a small model with data gets them with the question
        instead."""
        if not prompt.tools or (self._is_small and small_model_remedies.has_data(prompt.messages)):
            return ""
        return prompt_texts.read("fenced_small" if self._is_small else "fenced")

    async def _converse(
        self,
        said: list[dict[str, Any]],
        prompt: chat_messages.Prompt,
        emit: events.Emit,
        buffered: BufferedModelReply | None = None,
    ) -> chat_messages.ModelReply:
        assembler = model_reply_assembly.ModelReplyAssembler(
            emit, prompt, takes_python=True, habit=self._chat.habit
        )
        reply = await self._chat.converse(
            said, prompt, assembler=assembler, extra={}, stops_at_block=True
        )
        if not reply.calls or not isinstance(wish := tools.read(reply.calls[0]), tools.RunCode):
            return reply
        words = wish.code if lenient_json.is_prose(wish.code) else ""
        if self._is_small and isinstance(prompt.messages[-1], chat_messages.ToolResult):
            words = words or lenient_json.printed_text(wish.code)
        if not words:
            return reply
        # It copies the shape of its earlier replies, and believes it answers.
        if buffered is not None:
            buffered.drop()
        emit(events.TextAdded(words))
        return dataclasses.replace(reply, text=f"{reply.text}{words}", calls=())


def with_both(
    guess: chat_messages.ModelReply, reply: chat_messages.ModelReply
) -> chat_messages.ModelReply:
    """Add the cost of a discarded guess to a reply.

    The sum is an estimate even if the server counted both: it measures no single prompt.
    """
    if guess.usage is None:
        return dataclasses.replace(reply, usage=None, is_second_try=True)
    written = context_windows.message_tokens(
        chat_messages.AssistantMessage(reply.text, reply.calls)
    )
    known = reply.usage or values.Usage(guess.usage.tokens, written)
    both = guess.usage + known
    usage = dataclasses.replace(both, is_estimated=True)
    return dataclasses.replace(reply, usage=usage, is_second_try=True)


def _append(said: list[dict[str, Any]], message: chat_messages.Message) -> None:
    role, text = _role_and_text(message)
    pictures = () if isinstance(message, chat_messages.AssistantMessage) else message.pictures
    content = chat_completions.wire_content(text, pictures)
    last = said[-1]
    # Many of these models accept only a strict alternation of roles.
    if last["role"] == role:
        last["content"] = _joined(last["content"], content)
    else:
        said.append({"role": role, "content": content})


def _joined(first: _Content, second: _Content) -> _Content:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_parts(first), *_parts(second)]


def _parts(content: _Content) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _role_and_text(message: chat_messages.Message) -> tuple[str, str]:
    match message:
        case chat_messages.UserMessage():
            return "user", message.text
        case chat_messages.AssistantMessage():
            blocks = [_block(call) for call in message.calls]
            return "assistant", "\n\n".join(filter(None, (message.text.strip(), *blocks)))
        case chat_messages.ToolResult():
            if message.text.startswith(tool_execution.REFUSAL):
                return "user", message.text
            return "user", f"[Output of the code:]\n{message.text}"


def _block(call: chat_messages.Call) -> str:
    wish = tools.read(call)
    if isinstance(wish, tools.RunCode):
        return f"```python\n{wish.code.rstrip()}\n```"
    return f"```json\n{lenient_json.without_fence(call.arguments)}\n```"
