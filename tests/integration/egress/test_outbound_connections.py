"""Looking up of names that takes for ever, and addresses that do not answer."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from interpreter_bot import settings
from interpreter_bot.egress import outbound_connections, policies


async def test_one_session_cannot_use_all_threads_for_names(monkeypatch):
    held, begun = threading.Event(), []

    def slow(host, port, **_):
        begun.append(host)
        held.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    names = outbound_connections.NameLookups()
    greedy, other = names.make_session_resolver(), names.make_session_resolver()
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


@pytest.mark.looptime
async def test_an_address_that_does_not_answer_leaves_time_for_the_next():
    loop = asyncio.get_running_loop()
    with socket.socket() as full, socket.socket() as listener, socket.socket() as queued:
        for server, backlog in ((full, 0), (listener, 1)):
            server.bind(("127.0.0.1", 0))
            server.listen(backlog)
        # The queue is full now: Linux drops what comes next.
        queued.connect(full.getsockname())

        async def resolve(host, port):
            kind = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
            return [(*kind, full.getsockname()), (*kind, listener.getsockname())]

        (rule,) = policies.compile_rules(
            [settings.Egress(host="example.org", addresses=("127.0.0.1",))], {}
        )
        started_at = loop.time()
        with await outbound_connections.Dialler(resolve).dial("example.org", 443, rule) as client:
            assert client.getpeername() == listener.getsockname()
        assert loop.time() - started_at > 1, "the first one did not answer"
