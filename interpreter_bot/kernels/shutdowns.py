"""Shutdown of kernels in tasks that survive cancellation of the caller."""

from __future__ import annotations

import asyncio
import functools

from interpreter_bot.kernels import launchers


class Shutdowns:
    """All kernels that are being closed."""

    def __init__(self) -> None:
        self._all: set[asyncio.Task[None]] = set()
        self._by_key: dict[str, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    async def close(self, launched: launchers.LaunchedKernel, key: str = "") -> None:
        """Close a kernel.

        Args:
            launched: the kernel.
            key: the session it belonged to; see `wait_for`.
        """
        ending = asyncio.create_task(launched.close(), name="end kernel")
        self._all.add(ending)
        ending.add_done_callback(self._all.discard)
        if key:
            self._by_key[key] = ending
            ending.add_done_callback(functools.partial(self._ended, key))
        await asyncio.shield(ending)

    async def wait_for(self, key: str) -> None:
        """Wait until nothing of a session's closed kernel runs any more."""
        if (ending := self._by_key.get(key)) is not None:
            await asyncio.wait({ending})

    async def wait_for_any(self) -> None:
        """Wait until one of them is closed; there must be one."""
        await asyncio.wait(self._all, return_when=asyncio.FIRST_COMPLETED)

    async def wait_for_all(self) -> list[BaseException | None]:
        """Wait until all are closed; returns the exception of each, or None."""
        return await asyncio.gather(*self._all, return_exceptions=True)

    def _ended(self, key: str, ending: asyncio.Task[None]) -> None:
        if self._by_key.get(key) is ending:
            del self._by_key[key]
