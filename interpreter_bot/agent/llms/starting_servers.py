"""Servers that are not simply there: they have to be started before anybody can be asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol, TypeAlias

from interpreter_bot.agent import chat_messages, ports

Progress: TypeAlias = Callable[[str, float | None], None]
"""Takes what is waited for, and how far it is; see `ports.TurnObserver.progress`."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server is, and what it wants to see."""

    base_url: str
    api_key: str = dataclasses.field(repr=False)


class StartingServer(Protocol):
    """Somebody who gets a server to run."""

    async def ready(self, *, progress: Progress) -> ServerAddress:
        """Return where it is, once it answers; at once, if it does already.

        Args:
            progress: told what is waited for; the last it hears is that nothing is, any more.

        Raises:
            ModelError: it cannot be had; the sentence says why.
        """


class StartingServerLlm:
    """A model on such a server, which may come back elsewhere after it was lost.

    Args:
        server: says where it is.
        connect: makes a model that is spoken to there.
    """

    def __init__(
        self, server: StartingServer, connect: Callable[[ServerAddress], ports.Llm]
    ) -> None:
        self._server = server
        self._connect = connect
        self._reached: tuple[ServerAddress, ports.Llm] | None = None

    async def reply(
        self, prompt: chat_messages.Prompt, *, listener: ports.ReplyListener
    ) -> chat_messages.Reply:
        """Answer, once the server is up."""
        address = await self._server.ready(progress=listener.progress)
        if self._reached is None or self._reached[0] != address:
            self._reached = (address, self._connect(address))
        return await self._reached[1].reply(prompt, listener=listener)
