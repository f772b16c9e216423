"""The Ray actor of one node, which finds the node's host or starts it, and reports on it.

A host is a daemon in a process session of its own, so it outlives the actor and Ray. Its settings
are the environment variables of the command `ray start` on that node.
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

_MAX_START_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.1
_ALL_INTERFACES: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104
_LOG_NAME: Final = "host.log"


class NodeActor:
    """Actor of a node. Its calls block, and Ray makes them one after the other."""

    def __init__(self, node_address: str) -> None:
        """Start nothing yet; other nodes reach this one at the IP address `node_address`."""
        self._node_address = node_address

    def report(self) -> host_reports.HostReport:
        """Report on the node's host, after starting it if there is none.

        Raises:
            BotError: it cannot be started; the sentence says why.
        """
        config = settings.load(None)
        if not config.host.listen:
            raise errors.SettingsError(host_words.NODES_NEED_TLS)
        status = asyncio.run(_ensure_host(config))
        name, port = host_addresses.parse(config.host.listen)
        reachable_name = self._node_address if name in _ALL_INTERFACES else name
        return host_reports.HostReport(
            address=str(host_addresses.TlsAddress(reachable_name, port)),
            data_id=status.data_id,
            # From the host, which may be in another container than this actor on Kubernetes.
            free_bytes=status.free_bytes,
            memory_bytes=status.memory_bytes,
            is_draining=status.is_draining,
        )


async def _ensure_host(config: settings.Settings) -> messages.HostStatus:
    socket_path = host_sockets.newest_link(config.paths)
    try:
        return await host_processes.read_status(socket_path)
    except errors.HostUnusableError:
        raise
    except errors.KernelError:
        _log.info("there is no host on this node; it is started")
    log_file = config.paths.data / _LOG_NAME
    await asyncio.to_thread(_start_host, log_file)
    deadline = time.monotonic() + _MAX_START_SECONDS
    while True:
        try:
            return await host_processes.read_status(socket_path)
        except errors.HostUnusableError:
            raise
        except errors.KernelError as error:
            if time.monotonic() > deadline:
                raise errors.KernelError(host_words.node_host_not_started(log_file)) from error
        await asyncio.sleep(_POLL_SECONDS)


def _start_host(log_file: pathlib.Path) -> None:
    """Start a host as a daemon; its log replaces that of the former host."""
    log_file.parent.mkdir(parents=True, exist_ok=True, mode=0o711)
    # Ray's own variables are for its workers.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with open(log_file, "wb", opener=_open_private) as log_stream:
        subprocess.run(
            ["/usr/bin/setsid", "--fork", sys.executable, "-m", "interpreter_bot", "host"],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log_stream,
            cwd="/",
            check=True,
        )


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
