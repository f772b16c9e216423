"""Model servers that have to be started before they can be called."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol, TypeAlias

from interpreter_bot.agent import chat_messages, ports

Progress: TypeAlias = Callable[[str, float | None], None]
"""Callback with what is waited for, and how far it is; see `ports.TurnObserver.progress`."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerAddress:
    """A server's address and the key it expects."""

    base_url: str
    api_key: str = dataclasses.field(repr=False)


class StartingServer(Protocol):
    """A server that is started on demand."""

    async def ready(self, *, progress: Progress) -> ServerAddress:
        """Return its address once it answers; at once, if it does already.

        Args:
            progress: called with what is waited for; the last call says that nothing is, any more.

        Raises:
            ModelError: it cannot be had; the sentence says why.
        """


class StartingServerLlm:
    """A model on such a server, which may come back at another address after it was lost.

    Args:
        server: gives the address.
        connect: makes the model for an address.
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
        """Request a reply, once the server is up."""
        address = await self._server.ready(progress=listener.progress)
        if self._reached is None or self._reached[0] != address:
            self._reached = (address, self._connect(address))
        return await self._reached[1].reply(prompt, listener=listener)
