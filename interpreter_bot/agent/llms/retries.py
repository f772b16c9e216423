"""Retry after rate limits, overload, lost connections, and while a server starts."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias

from interpreter_bot import events
from interpreter_bot.agent import chat_messages, model_errors, ports
from interpreter_bot.wording import model_words

Progress: TypeAlias = Callable[[str, float | None], None]
"""Callback with a step of a start and its share done; see `events.ProgressChanged`."""

MAX_RETRIES: Final = 3
"""Retries of one request to a model."""

# Shorter waits are not announced.
_NOTICED_SECONDS: Final = 2.0
# Doubles with each retry.
_BACKOFF_SECONDS: Final = 0.5
# If a server asks for a longer wait, the request fails.
_MAX_WAIT_SECONDS: Final = 60.0

Sleep = Callable[[float], Awaitable[None]]
"""Waits a number of seconds."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerAddress:
    """A server's address and the key it expects."""

    base_url: str
    api_key: str = dataclasses.field(repr=False)


class OnDemandServer(Protocol):
    """A server that is started on demand."""

    async def ensure_started(self, *, progress: Progress) -> ServerAddress:
        """Start the server if it does not run, and return its address once it answers.

        Args:
            progress: called with each step of the start, and with an empty text at its end.

        Raises:
            ModelError: the server cannot be started; the sentence says why.
        """


class OnDemandServerLlm:
    """A model on an `OnDemandServer`, whose address may change when it restarts.

    Args:
        server: gives the address.
        connect: makes the model for an address.
    """

    def __init__(
        self, server: OnDemandServer, connect: Callable[[ServerAddress], ports.Llm]
    ) -> None:
        self._server = server
        self._connect = connect
        self._address_and_llm: tuple[ServerAddress, ports.Llm] | None = None
        self._connect_lock = asyncio.Lock()

    async def reply(
        self, prompt: chat_messages.Prompt, *, emit: events.Emit
    ) -> chat_messages.ModelReply:
        """Request a reply, once the server is up."""
        address = await self._server.ensure_started(
            progress=lambda text, share: emit(events.ProgressChanged(text, share))
        )
        async with self._connect_lock:
            if self._address_and_llm is None or self._address_and_llm[0] != address:
                # In a thread, as this imports an SDK.
                self._address_and_llm = (address, await asyncio.to_thread(self._connect, address))
            llm = self._address_and_llm[1]
        return await llm.reply(prompt, emit=emit)


class RetryingLlm:
    """A model that is called again, after growing waits, if no part of a reply was received.

    Args:
        llm: the model.
        max_retries: after a rate limit, an overload or a lost connection.
        sleep: waits a number of seconds; tests pass a faster function.
    """

    def __init__(
        self, llm: ports.Llm, *, max_retries: int = MAX_RETRIES, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._llm = llm
        self._max_retries = max_retries
        self._sleep = sleep

    async def reply(
        self, prompt: chat_messages.Prompt, *, emit: events.Emit
    ) -> chat_messages.ModelReply:
        """Request a reply, with retries."""
        for attempt in range(self._max_retries):
            try:
                return await self._llm.reply(prompt, emit=emit)
            except model_errors.ModelError as error:
                wait = self._wait_seconds(error, attempt)
                if wait is None:
                    raise
            if wait >= _NOTICED_SECONDS:
                emit(events.NoticeShown(model_words.asked_again_in(wait)))
            await self._sleep(wait)
        return await self._llm.reply(prompt, emit=emit)

    def _wait_seconds(self, error: model_errors.ModelError, attempt: int) -> float | None:
        """Return the seconds to wait before the next attempt; None if there is no other attempt."""
        if not error.is_worth_retrying:
            return None
        wait = error.retry_after_seconds
        if wait is None:
            # Jitter, so that waiting turns do not all retry at the same moment.
            wait = _BACKOFF_SECONDS * 2**attempt * random.uniform(0.75, 1.0)  # noqa: S311
        return wait if wait <= _MAX_WAIT_SECONDS else None
