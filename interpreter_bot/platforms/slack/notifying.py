"""Telling the people of a conversation what happens outside of any turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from interpreter_bot import values
from interpreter_bot.platforms.slack import blocks, markdown, places, posts, sending, workspaces

Notify: TypeAlias = Callable[[values.SessionKey, str], Awaitable[None]]


class Notifier:
    """Posts sentences into threads, or into channels for their own sessions."""

    def __init__(self, sender: sending.Sender, known: workspaces.Workspaces) -> None:
        self._sender = sender
        self._workspaces = known

    async def notify(self, key: values.SessionKey, sentence: str) -> None:
        """Tell them.

        Raises:
            SlackError: Slack does not take it.
        """
        workspace = await self._workspaces.get(key.workspace)
        place = places.Place(workspace, key.channel, thread=key.thread, asked="", user="")
        content = {
            "text": markdown.escaped(sentence)[:300],
            "blocks": [blocks.note(sentence)],
        }
        await posts.post(self._sender, place, content, key.thread)
