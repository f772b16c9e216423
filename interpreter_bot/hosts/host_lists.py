"""Addresses of all hosts of a fleet: from the settings, a DNS name, or the database.

An entry `dns:hosts.example:7443` stands for one host at each address of the name, such as a
headless Service of Kubernetes has. `ray` stands for the hosts that `interpreter-bot fleet` lists in
the database. Both kinds are looked up regularly.
"""

from __future__ import annotations

import asyncio
import logging
import pathlib
import socket
from collections.abc import Sequence
from typing import Final, Protocol

from interpreter_bot import errors
from interpreter_bot.hosts import host_addresses, host_sockets
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

RAY_ENTRY: Final = "ray"
_DNS_PREFIX: Final = "dns:"


class HostList(Protocol):
    """The hosts of a cluster, as the database lists them."""

    async def list_addresses(self) -> list[str]:
        """Return the addresses of hosts, as in `host.fleet`.

        Raises:
            StoreError: they cannot be read now.
        """


class Fleet:
    """The hosts of the setting `host.fleet`."""

    def __init__(
        self, entries: Sequence[str], tls: pathlib.Path | None, host_list: HostList | None = None
    ) -> None:
        """Parse entries: `name:port`, `dns:name:port`, `ray`, or the directory of a host's sockets.

        `tls` is the directory of the bot's credentials; `host_list` has the hosts of `ray`.

        Raises:
            SettingsError: an entry is invalid, or a file cannot be used.
        """
        self._fixed_addresses: set[host_addresses.Address] = set()
        self._addresses_by_name: dict[tuple[str, int], frozenset[host_addresses.Address]] = {}
        self._credentials: host_addresses.Credentials | None = None
        self._host_list = host_list if RAY_ENTRY in entries else None
        self._listed_addresses: frozenset[host_addresses.Address] = frozenset()
        for entry in entries:
            if entry.startswith("/"):
                self._fixed_addresses.add(pathlib.Path(entry, host_sockets.NEWEST_LINK))
            elif entry == RAY_ENTRY:
                self._load_credentials(tls)
            else:
                name, port = host_addresses.parse(entry.removeprefix(_DNS_PREFIX))
                credentials = self._load_credentials(tls)
                if entry.startswith(_DNS_PREFIX):
                    self._addresses_by_name[name, port] = frozenset()
                else:
                    address = host_addresses.TlsAddress(name, port, credentials=credentials)
                    self._fixed_addresses.add(address)

    def _load_credentials(self, tls: pathlib.Path | None) -> host_addresses.Credentials:
        """Load the bot's credentials for TLS once.

        Raises:
            SettingsError: there is no directory of them, or a file cannot be used.
        """
        if tls is None:
            raise errors.SettingsError(host_words.FLEET_NEEDS_TLS)
        if self._credentials is None:
            self._credentials = host_addresses.Credentials(tls, is_host=False)
        return self._credentials

    async def addresses(self) -> frozenset[host_addresses.Address]:
        """Return all addresses; a failed look-up keeps its former result."""
        await asyncio.gather(*(self._look_up(*name) for name in self._addresses_by_name))
        if self._host_list is not None:
            await self._read_list(self._host_list)
        return frozenset(self._fixed_addresses).union(
            self._listed_addresses, *self._addresses_by_name.values()
        )

    async def _read_list(self, host_list: HostList) -> None:
        try:
            entries = await host_list.list_addresses()
        except errors.StoreError as error:
            _log.warning("the list of hosts cannot be read now: %s", error)
            return
        self._listed_addresses = frozenset(
            host_addresses.TlsAddress(*host_addresses.parse(entry), credentials=self._credentials)
            for entry in entries
        )

    async def _look_up(self, name: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            results = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            _log.warning("the hosts of %s cannot be looked up: %s", name, error)
            return
        self._addresses_by_name[name, port] = frozenset(
            host_addresses.TlsAddress(name, port, str(address[0]), self._credentials)
            for *_, address in results
        )
