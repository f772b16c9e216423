"""The services' door: plain HTTP to hosts as `/to/HOST/path`, and what the bot itself offers.

The former is for programs that know no proxy, or trust no authority but their own: the bot speaks
TLS for them. What is allowed is what the proxy allows.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Final

import h11

from interpreter_bot import code_activity
from interpreter_bot.egress import (
    door_service_port,
    forwarded_requests,
    http_streams,
    policies,
    proxies,
)

PREFIX: Final = b"/to/"
_ALIAS: Final = re.compile(rb"/to/([^/?#]+)(/[^#]*)")
_HOW: Final = "What is here is called /to/HOST/path, or /to/HOST:PORT/path."


class ServicesDoor(proxies.Proxy):
    """Answers requests for `/to/HOST/…`, and to services, behind one kernel's door."""

    def __init__(
        self,
        context: proxies.ProxyContext,
        services: Sequence[door_service_port.DoorService] = (),
    ) -> None:
        super().__init__(context)
        self._services = {service.name: service for service in services}

    async def _serve_one(
        self, client: http_streams.HttpStream, contact: code_activity.Contact
    ) -> None:
        """Answer one request, or send it on as what its path says, if that may be done.

        Raises:
            Refusal: it may not.
        """
        async with asyncio.timeout(self._context.limits.idle_seconds):
            request = await client.request()
        name, _, path = request.target.decode("latin-1").removeprefix("/").partition("/")
        service, key = self._services.get(name), self._context.key
        if service is not None and service.is_offered(key):
            kernel_id = self._context.kernel_id
            await service.answer(door_service_port.ServiceCall(key, kernel_id, path, client))
            return
        contact.method = request.method[:40].decode("ascii")
        self._context.count.admit()
        alias = _ALIAS.fullmatch(request.target)
        if alias is None:
            raise policies.Refusal(_HOW, status=404)
        host, rule = self._find(alias[1], 443, contact)
        here = dict(request.headers).get(b"host", b"")
        there = forwarded_requests.authority(host, contact.port)
        headers = [(name, value) for name, value in request.headers if name != b"host"]
        named = h11.Request(
            method=request.method, target=alias[2], headers=[(b"Host", there), *headers]
        )
        contact.path = forwarded_requests.check(named, host, contact.port, rule)
        await self._approve(client, named, rule, contact)
        async with self._dialled(host, contact.port, rule, is_encrypted=True) as server:
            # So that what follows a redirect within the host finds the way, too.
            moved = b"https://" + there + b"/", b"http://" + here + PREFIX + alias[1] + b"/"
            await self._exchange(client, named, server, rule, contact, moved=moved)
