"""The actor of one node: it finds the node's host or starts it, and tells of it.

A host is started as a daemon of its own session, so that neither the end of the actor nor that of
Ray reaches it. What it is to be, the variables say that `ray start` was given on that node.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pathlib
import subprocess
import sys
import time
from typing import Final

from interpreter_bot import errors, settings
from interpreter_bot.hosts import host_addresses, host_processes, host_sockets, messages
from interpreter_bot.ray_fleet import host_reports
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

_BOOT: Final = pathlib.Path("/proc/sys/kernel/random/boot_id")
_START_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.1
_EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104
_LOG: Final = "host.log"


class NodeActor:
    """Actor of a node. Everything blocks; one call is answered after the other."""

    def __init__(self, node_address: str) -> None:
        """Read nothing yet.

        Args:
            node_address: IP address of the node, as others of the cluster reach it.
        """
        self._node_address = node_address

    def report(self) -> host_reports.HostReport:
        """Tell of the node's host, which is started where there is none.

        Raises:
            BotError: it cannot be; the sentence says why.
        """
        config = settings.load(None)
        if not config.host.listen:
            raise errors.SettingsError(host_words.NODES_NEED_TLS)
        status = asyncio.run(_found_or_started(config))
        name, port = host_addresses.parse(config.host.listen)
        reached = self._node_address if name in _EVERYWHERE else name
        return host_reports.HostReport(
            address=str(host_addresses.TlsAddress(reached, port)),
            data_id=status.data_id,
            boot_id=_BOOT.read_text("ascii").strip(),
            # The host's own: on Kubernetes it may have a container of its own beside this one.
            free_bytes=status.free_bytes,
            memory_bytes=status.memory_bytes,
            is_draining=status.is_draining,
        )


async def _found_or_started(config: settings.Settings) -> messages.HostStatus:
    socket = host_sockets.newest_link(config.paths)
    try:
        return await host_processes.status(socket)
    except errors.HostUnusableError:
        raise
    except errors.KernelError:
        _log.info("there is no host on this node; it is started")
    file = config.paths.data / _LOG
    await asyncio.to_thread(_start, file)
    give_up = time.monotonic() + _START_SECONDS
    while True:
        try:
            return await host_processes.status(socket)
        except errors.HostUnusableError:
            raise
        except errors.KernelError as error:
            if time.monotonic() > give_up:
                raise errors.KernelError(host_words.node_host_not_started(file)) from error
        await asyncio.sleep(_POLL_SECONDS)


def _start(log: pathlib.Path) -> None:
    """Start a host that is nobody's child; what it logs is kept from its last start on."""
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o711)
    # Ray's own variables are for its workers.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with open(log, "wb", opener=_private) as stream:
        subprocess.run(
            ["/usr/bin/setsid", "--fork", sys.executable, "-m", "interpreter_bot", "host"],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stream,
            cwd="/",
            check=True,
        )


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
