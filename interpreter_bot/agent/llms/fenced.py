"""Models that call no tools: code blocks in plain chat, each is run, the output goes back."""

from __future__ import annotations

from typing import Any

from interpreter_bot.agent import leniency, messages, ports, prompting, tools
from interpreter_bot.agent.llms import chat, listening


class Fenced:
    """Speaks through `chat`, without tools. One block a step: what follows it is invented."""

    def __init__(self, through: chat.Chat) -> None:
        self._chat = through

    async def reply(self, prompt: messages.Prompt, *, hearing: ports.Hearing) -> messages.Reply:
        """Answer; a block of Python is a call of `run_code`."""
        listener = listening.Listener(hearing, prompt, takes_python=bool(prompt.tools))
        system = prompt.system
        if prompt.tools:
            system = f"{system}\n\n{prompting.read('fenced')}"
        said: list[dict[str, Any]] = [{"role": "system", "content": system}]
        for message in prompt.messages:
            _append(said, message)
        return await self._chat.converse(
            said, prompt, listener=listener, extra={}, stops_at_block=True
        )


def _append(said: list[dict[str, Any]], message: messages.Message) -> None:
    role, text = _written(message)
    pictures = () if isinstance(message, messages.Said) else message.pictures
    content = chat.wire_content(text, pictures)
    last = said[-1]
    # Many of these models know only a strict alternation.
    if last["role"] == role and isinstance(content, str) and isinstance(last["content"], str):
        last["content"] += f"\n\n{content}"
    else:
        said.append({"role": role, "content": content})


def _written(message: messages.Message) -> tuple[str, str]:
    match message:
        case messages.Told():
            return "user", message.text
        case messages.Said():
            blocks = [_block(call) for call in message.calls]
            return "assistant", "\n\n".join(filter(None, (message.text.strip(), *blocks)))
        case messages.Answered():
            return "user", f"[Output of the code:]\n{message.text}"


def _block(call: messages.Call) -> str:
    wish = tools.read(call)
    if isinstance(wish, tools.RunCode):
        return f"```python\n{wish.code.rstrip()}\n```"
    return f"```json\n{leniency.unwrapped(call.arguments)}\n```"
