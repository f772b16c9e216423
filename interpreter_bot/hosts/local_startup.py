"""Start of the host in this process; other imports run while its fork server starts."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from interpreter_bot import settings, side_by_side
from interpreter_bot.kernels import machines

if TYPE_CHECKING:
    from interpreter_bot.hosts import kernel_doors, local_host


@contextlib.asynccontextmanager
async def open_host(
    config: settings.Settings,
    *,
    is_ephemeral: bool = False,
    doorkeeper: kernel_doors.Doorkeeper | None = None,
) -> AsyncIterator[local_host.LocalHost]:
    """Open a host in this process; with `is_ephemeral`, no file of a session outlives it.

    Raises:
        BotError: it cannot be opened; the sentence says why.
    """
    opening = machines.open_machine(config, is_ephemeral=is_ephemeral)
    async with side_by_side.open_in_task(opening, "machine") as machine:
        await asyncio.to_thread(importlib.import_module, "interpreter_bot.hosts.local_host")
        from interpreter_bot.hosts import local_host

        async with local_host.LocalHost.open_on(await machine, doorkeeper=doorkeeper) as host:
            yield host
