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
    """Holds back the text of an answer that may be replaced, until code begins or it is released.

    If the turn is stopped before that, the text is released too.
    """

    def __init__(self, emit: events.Emit) -> None:
        self._emit = emit
        self._pending: list[str] | None = []

    def emit(self, event: events.TurnEvent) -> None:
        """Hold text back, or pass an event on."""
        if isinstance(event, events.TextAdded) and self._pending is not None:
            self._pending.append(event.text)
            return
        if isinstance(event, events.CodeDrafted):
            self.release()
        self._emit(event)

    def drop(self) -> None:
        """Discard the text held back, and hold back what comes next."""
        self._pending = []

    def release(self) -> None:
        """Pass on the text held back, and all that follows."""
        pending, self._pending = self._pending, None
        if pending:
            self._emit(events.TextAdded("".join(pending)))


class FencedLlm:
    """A model without tools, over `chat_completions`. A reply is stopped after its code block: what
    would follow is invented output.

    Args:
        chat: sends and receives.
        is_small: use the short rules, as a long prompt makes the code of small models worse.
    """

    def __init__(
        self, chat: chat_completions.ChatCompletionsLlm, *, is_small: bool = False
    ) -> None:
        self._chat = chat
        self._is_small = is_small

    async def reply(
        self, prompt: chat_messages.Prompt, *, emit: events.Emit
    ) -> chat_messages.ModelReply:
        """Request a reply; a block of Python is a call of `run_code`."""
        rules = self._rules(prompt)
        system = f"{prompt.system}\n\n{rules}" if rules else prompt.system
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}]
        for message in prompt.messages:
            _append(messages, message)
        may_remind = self._is_small and bool(prompt.tools) and prompt.may_call
        reminder = small_model_remedies.write_reminder(prompt) if may_remind else ""
        if not reminder:
            return await self._converse(messages, prompt, emit)
        _append(messages, chat_messages.UserMessage(reminder, is_from_bot=True))
        buffered = BufferedModelReply(emit)
        try:
            reply = await self._converse(messages, prompt, buffered.emit)
            objection = small_model_remedies.write_objection(reply, prompt)
            if not objection:
                return reply
            buffered.drop()
            _append(messages, chat_messages.AssistantMessage(reply.text))
            _append(messages, chat_messages.UserMessage(objection, is_from_bot=True))
            try:
                second_reply = await self._converse(messages, prompt, buffered.emit)
            except model_errors.IncompleteReplyError as error:
                error.partial = add_usage(reply, error.partial)
                raise
            return add_usage(reply, second_reply)
        finally:
            buffered.release()

    def _rules(self, prompt: chat_messages.Prompt) -> str:
        """Return the rules for running code; empty if a reminder at the question replaces them."""
        if not prompt.tools or (self._is_small and small_model_remedies.has_data(prompt.messages)):
            return ""
        return prompt_texts.read("fenced_small" if self._is_small else "fenced")

    async def _converse(
        self, messages: list[dict[str, Any]], prompt: chat_messages.Prompt, emit: events.Emit
    ) -> chat_messages.ModelReply:
        assembler = model_reply_assembly.ModelReplyAssembler(
            emit, prompt, takes_python=True, habit=self._chat.habit
        )
        return await self._chat.converse(messages, prompt, assembler=assembler, extra_parameters={})


def add_usage(
    discarded: chat_messages.ModelReply, reply: chat_messages.ModelReply
) -> chat_messages.ModelReply:
    """Add the cost of a discarded reply to the one in its place.

    The sum counts as an estimate, because it measures no single prompt.
    """
    if discarded.usage is None:
        return dataclasses.replace(reply, usage=None)
    output_tokens = context_windows.estimate_message_tokens(
        chat_messages.AssistantMessage(reply.text, reply.calls)
    )
    usage_of_reply = reply.usage or values.Usage(discarded.usage.tokens, output_tokens)
    usage = dataclasses.replace(discarded.usage + usage_of_reply, is_estimated=True)
    return dataclasses.replace(reply, usage=usage)


def _append(messages: list[dict[str, Any]], message: chat_messages.Message) -> None:
    role, text = _role_and_text(message)
    pictures = () if isinstance(message, chat_messages.AssistantMessage) else message.pictures
    content = chat_completions.convert_content(text, pictures)
    last_message = messages[-1]
    # Many of these models accept only a strict alternation of roles.
    if last_message["role"] == role:
        last_message["content"] = _join_content(last_message["content"], content)
    else:
        messages.append({"role": role, "content": content})


def _join_content(first: _Content, second: _Content) -> _Content:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_content_parts(first), *_content_parts(second)]


def _content_parts(content: _Content) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _role_and_text(message: chat_messages.Message) -> tuple[str, str]:
    match message:
        case chat_messages.UserMessage():
            return "user", message.text
        case chat_messages.AssistantMessage():
            blocks = [_code_block(call) for call in message.calls]
            return "assistant", "\n\n".join(filter(None, (message.text.strip(), *blocks)))
        case chat_messages.ToolResult():
            if message.text.startswith(tool_execution.REFUSAL_PREFIX):
                return "user", message.text
            return "user", f"[Output of the code:]\n{message.text}"


def _code_block(call: chat_messages.Call) -> str:
    request = tools.parse_call(call)
    if isinstance(request, tools.RunCode):
        return f"```python\n{request.code.rstrip()}\n```"
    return f"```json\n{lenient_json.strip_fence(call.arguments)}\n```"
