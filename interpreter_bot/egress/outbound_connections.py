"""Connections to outside hosts: each name is looked up once, and its checked address is dialled."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

from interpreter_bot.egress import address_rules, policies
from interpreter_bot.wording import network_words

_log = logging.getLogger(__name__)

Addresses: TypeAlias = Sequence[tuple[Any, ...]]
Resolve: TypeAlias = Callable[[str, int], Awaitable[Addresses]]
"""Looks up a host as `socket.getaddrinfo` does."""

# Separate from the bot's other threads, because a name server may be slow.
_MAX_THREADS: Final = 32
_MAX_THREADS_OF_SESSION: Final = 2
# Including the look-up.
_MAX_CONNECTING_SECONDS: Final = 10.0
# Of one address of several; enough for a slow network.
_MIN_ADDRESS_SECONDS: Final = 2.0
_BAD_GATEWAY: Final = 502


class NameLookups:
    """Looks up names with the system's resolver, in shared threads."""

    def __init__(self) -> None:
        self._threads = concurrent.futures.ThreadPoolExecutor(_MAX_THREADS, "names of hosts")

    def close(self) -> None:
        """End the threads, without waiting for pending look-ups."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def make_session_resolver(self) -> Resolve:
        """Return a resolver for one session, which may use only a few threads at a time."""
        slots = asyncio.Semaphore(_MAX_THREADS_OF_SESSION)

        async def look_up(host: str, port: int) -> Addresses:
            await slots.acquire()
            call = functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
            lookup = asyncio.get_running_loop().run_in_executor(self._threads, call)
            # After a timeout, the thread is still busy, so it keeps its slot until it ends.
            lookup.add_done_callback(lambda _: slots.release())
            return await asyncio.shield(lookup)

        return look_up


class Dialler:
    """Opens connections to outside hosts."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve

    async def dial(self, host: str, port: int, rule: policies.Rule) -> socket.socket:
        """Connect to a host that `rule` allows.

        The checked address is dialled: the name is not looked up again.

        Raises:
            Refusal: it has no allowed address, or does not answer; the sentence names no address.
        """
        try:
            async with asyncio.timeout(_MAX_CONNECTING_SECONDS):
                addresses = await self._resolve(host, port)
                allowed_addresses = [
                    entry
                    for entry in addresses
                    if address_rules.is_allowed(entry[4][0], rule.networks)
                ]
                if not allowed_addresses:
                    _log.warning("%s is at no allowed address: %s", host, addresses)
                    raise policies.Refusal(network_words.private_address(host))
                return await self._connect_first(allowed_addresses)
        except socket.gaierror as error:
            raise policies.Refusal(network_words.not_found(host), status=_BAD_GATEWAY) from error
        except OSError as error:  # TimeoutError is one.
            sentence = network_words.host_not_answering(host, port)
            raise policies.Refusal(sentence, status=_BAD_GATEWAY) from error

    async def _connect_first(self, allowed_addresses: Addresses) -> socket.socket:
        """Connect to the first address that answers; the time is divided among them."""
        max_seconds = max(_MIN_ADDRESS_SECONDS, _MAX_CONNECTING_SECONDS / len(allowed_addresses))
        error: OSError = ConnectionError("no address")
        for family, kind, protocol, _, address in allowed_addresses:
            endpoint = socket.socket(family, kind, protocol)
            try:
                endpoint.setblocking(False)
                async with asyncio.timeout(max_seconds):
                    await asyncio.get_running_loop().sock_connect(endpoint, address)
            except OSError as connect_error:  # TimeoutError is one.
                endpoint.close()
                error = connect_error
            except BaseException:
                endpoint.close()
                raise
            else:
                endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return endpoint
        raise error
