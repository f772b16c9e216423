"""Control groups and user ids of programs that are MCP servers.

A control group limits a program with everything that it starts. Without one, its memory is measured
twice a second, so a program that grows faster exceeds its limit for a moment.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Iterable
from typing import Final

from interpreter_bot import errors, settings
from interpreter_bot.kernels.provisioning import cgroups, subordinate_ids

_log = logging.getLogger(__name__)

# Room for the sandbox's own processes.
_WALLS_BYTES: Final = 64 * settings.MIB
WALLS_PROCESSES: Final = 4
FILES_BYTES: Final = 64 * settings.MIB
"""The limit for a program's files, which are deleted when it ends.

If the program has namespaces, they are in memory.
"""


class ProgramGroups:
    """Creates a control group for each program if the machine has any, and assigns user ids.

    The machine is checked once.

    Attributes:
        sandbox: the settings of the sandbox.
    """

    def __init__(self, sandbox: settings.Sandbox, servers: Iterable[settings.McpServer]) -> None:
        """Assign a user id to each program among `servers`, all servers of the settings."""
        self.sandbox = sandbox
        self._cgroups: cgroups.Cgroups | None = None
        self._probe_lock = asyncio.Lock()
        self._numbers = itertools.count(1)
        # By position, so that other processes with the same settings assign the same ids.
        programs = [server.name for server in servers if server.command]
        self._uids = {name: position for position, name in enumerate(programs)}

    def uid(self, server: settings.McpServer) -> int:
        """Return the user id of a program at the level `container`, if the bot is root."""
        first = subordinate_ids.choose_ids_in_namespace(self.sandbox).first_uid
        return first + self._uids[server.name]

    async def create(self, server: settings.McpServer, processes: int) -> cgroups.Group | None:
        """Create a control group for a program; None if the machine has none.

        The program may have so many `processes`. Its memory includes its files in /tmp.
        """
        async with self._probe_lock:
            if self._cgroups is None:
                self._cgroups = await asyncio.to_thread(
                    cgroups.Cgroups.probe, "auto" if self.sandbox.uses_cgroups else "off"
                )
                _log.info("programs of MCP servers: %s", self._cgroups.reason)
        if not self._cgroups.version:
            return None
        limits = settings.Limits(
            memory_bytes=server.memory_bytes,
            processes=processes + WALLS_PROCESSES,
            cpu_cores=os.cpu_count() or 1,
        )
        headroom_bytes = _WALLS_BYTES + FILES_BYTES
        name = f"program-{next(self._numbers)}"
        try:
            return await asyncio.to_thread(
                self._cgroups.create, name, limits, headroom_bytes=headroom_bytes
            )
        except errors.KernelStartError:
            _log.warning("the MCP server %s has no control group", server.name, exc_info=True)
            return None

    async def close(self) -> None:
        """Remove all groups, and end the processes in them."""
        if self._cgroups is not None:
            await asyncio.to_thread(self._cgroups.close)
