"""Looking up of names, where it takes for ever."""

from __future__ import annotations

import asyncio
import socket
import threading

from interpreter_bot.egress import outbound_connections


async def test_one_session_cannot_use_all_threads_for_names(monkeypatch):
    held, begun = threading.Event(), []

    def slow(host, port, **_):
        begun.append(host)
        held.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    names = outbound_connections.NameLookups()
    greedy, other = names.for_session(), names.for_session()
    asking = [asyncio.create_task(greedy("greedy", 443)) for _ in range(100)]
    asking.append(asyncio.create_task(other("other", 443)))
    try:
        async with asyncio.timeout(30):
            while "other" not in begun:  # noqa: ASYNC110 - threads tell nobody.
                await asyncio.sleep(0.01)
        for one in asking:
            one.cancel()
        await asyncio.wait(asking)
        assert begun.count("greedy") <= 2, "those that gave up have not freed a thread"
    finally:
        held.set()
        names.close()
