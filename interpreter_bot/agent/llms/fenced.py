"""Models that call no tools: code blocks in plain chat, each is run, the output goes back."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

from interpreter_bot.agent import (
    claims,
    failures,
    fitting,
    guards,
    leniency,
    messages,
    ports,
    prompting,
    tools,
)
from interpreter_bot.agent.llms import chat, forgetting, listening, reminding, withholding

_Content: TypeAlias = str | list[dict[str, Any]]


class Fenced:
    """Speaks through `chat`, without tools. One block a step: what follows it is invented.

    Args:
        through: sends and hears.
        is_small: a long prompt would make its code worse.
    """

    def __init__(self, through: chat.Chat, *, is_small: bool = False) -> None:
        self._chat = through
        self._is_small = is_small

    async def reply(self, prompt: messages.Prompt, *, hearing: ports.Hearing) -> messages.Reply:
        """Answer; a block of Python is a call of `run_code`."""
        if self._is_small and (bare := reminding.bare_answer(prompt.messages)):
            hearing.text(bare)
            written = messages.Usage(0, fitting.text_tokens(bare), is_estimated=True)
            return messages.Reply(text=bare, usage=written)
        system = prompt.system
        if rules := self._rules(prompt):
            system = f"{system}\n\n{rules}"
        said: list[dict[str, Any]] = [{"role": "system", "content": system}]
        may_call = bool(prompt.tools) and prompt.may_call
        # What it is to answer from, it has to see.
        for message in forgetting.forgotten(prompt.messages) if may_call else prompt.messages:
            _append(said, message)
        reminder = reminding.reminder(prompt.messages, is_small=self._is_small) if may_call else ""
        if not reminder:
            return await self._converse(said, prompt, hearing)
        _append(said, messages.Told(reminder, is_ours=True))
        withheld = withholding.Withheld(hearing)
        try:
            reply = await self._converse(said, prompt, withheld)
            objection = reminding.objection(reply, prompt, is_small=self._is_small)
            if not objection:
                return reply
            withheld.drop()
            _append(said, messages.Said(reply.text))
            _append(said, messages.Told(objection, is_ours=True))
            try:
                again = await self._converse(said, prompt, withheld)
            except failures.CutError as error:
                error.partial = with_both(reply, error.partial)
                raise
            return with_both(reply, again)
        finally:
            withheld.release()

    def _rules(self, prompt: messages.Prompt) -> str:
        """Say how code is run; where there is data, a small model is told so with the question."""
        if not prompt.tools or (self._is_small and claims.has_data(prompt.messages)):
            return ""
        return prompting.read("fenced_small" if self._is_small else "fenced")

    async def _converse(
        self, said: list[dict[str, Any]], prompt: messages.Prompt, hearing: ports.Hearing
    ) -> messages.Reply:
        listener = listening.Listener(hearing, prompt, finds_calls=True, takes_python=True)
        reply = await self._chat.converse(
            said, prompt, listener=listener, extra={}, stops_at_block=True
        )
        if not reply.calls or not isinstance(wish := tools.read(reply.calls[0]), tools.RunCode):
            return reply
        words = wish.code if leniency.is_prose(wish.code) else ""
        if self._is_small and isinstance(prompt.messages[-1], messages.Answered):
            words = words or leniency.printed(wish.code)
        if not words:
            return reply
        # It copies the shape of what it wrote before, and means to answer.
        if isinstance(hearing, withholding.Withheld):
            hearing.drop()
        hearing.text(words)
        return dataclasses.replace(reply, text=f"{reply.text}{words}", calls=())


def with_both(guess: messages.Reply, reply: messages.Reply) -> messages.Reply:
    """Let a reply have cost what the guess before it cost, too.

    An estimate even where the server counted both: it is no measure of one prompt.
    """
    if guess.usage is None:
        return dataclasses.replace(reply, usage=None, is_second_try=True)
    written = fitting.message_tokens(messages.Said(reply.text, reply.calls))
    known = reply.usage or messages.Usage(guess.usage.tokens, written)
    both = guess.usage + known
    usage = dataclasses.replace(both, is_estimated=True)
    return dataclasses.replace(reply, usage=usage, is_second_try=True)


def _append(said: list[dict[str, Any]], message: messages.Message) -> None:
    role, text = _written(message)
    pictures = () if isinstance(message, messages.Said) else message.pictures
    content = chat.wire_content(text, pictures)
    last = said[-1]
    # Many of these models know only a strict alternation.
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


def _written(message: messages.Message) -> tuple[str, str]:
    match message:
        case messages.Told():
            return "user", message.text
        case messages.Said():
            blocks = [_block(call) for call in message.calls]
            return "assistant", "\n\n".join(filter(None, (message.text.strip(), *blocks)))
        case messages.Answered():
            if message.text.startswith(guards.REFUSAL):
                return "user", message.text
            return "user", f"[Output of the code:]\n{message.text}"


def _block(call: messages.Call) -> str:
    wish = tools.read(call)
    if isinstance(wish, tools.RunCode):
        return f"```python\n{wish.code.rstrip()}\n```"
    return f"```json\n{leniency.unwrapped(call.arguments)}\n```"
