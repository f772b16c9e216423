"""Retry model calls after transient failures: rate limits, overload, lost connections."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import Final

from interpreter_bot import settings
from interpreter_bot.agent import chat_messages, model_errors, ports

# Shorter waits are not announced.
_NOTICED_SECONDS: Final = 2.0

Sleep = Callable[[float], Awaitable[None]]
"""Waits a number of seconds."""


class RetryingLlm:
    """A model that is called again, with growing waits, as long as nothing of a reply has come.

    Args:
        llm: the model.
        patience: how often, and how long.
        sleep: waits; tests have a faster one.
    """

    def __init__(
        self, llm: ports.Llm, patience: settings.Patience, *, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._llm = llm
        self._patience = patience
        self._sleep = sleep

    async def reply(
        self, prompt: chat_messages.Prompt, *, listener: ports.ReplyListener
    ) -> chat_messages.Reply:
        """Request a reply, with retries."""
        for attempt in itertools.count():
            try:
                return await self._llm.reply(prompt, listener=listener)
            except model_errors.ModelError as error:
                wait = self._wait(error, attempt)
                if wait is None:
                    raise
            if wait >= _NOTICED_SECONDS:
                listener.notice(f"The language model is busy. Asking again in {wait:.0f} seconds.")
            await self._sleep(wait)
        raise AssertionError("counting does not end")

    def _wait(self, error: model_errors.ModelError, attempt: int) -> float | None:
        """Return the seconds to wait before the next try; None if there is none."""
        if not error.is_worth_retrying or attempt >= self._patience.retries:
            return None
        wait = error.retry_after_seconds
        if wait is None:
            # Jitter: not all waiting turns at the same moment.
            wait = self._patience.backoff_seconds * 2**attempt * random.uniform(0.75, 1.0)  # noqa: S311
        return wait if wait <= self._patience.longest_wait_seconds else None
