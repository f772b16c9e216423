"""What is left of a bot on a host when its connection ends."""

import asyncio
import contextlib

import aiohttp

from interpreter_bot.hosts import messages
from interpreter_bot.kernel_host import bot_connections, session_epochs


class Host:
    """A host that leases anything, and cannot delete the files of a session."""

    def __init__(self):
        self.leased, self.ended = [], []
        self.lease_begun = asyncio.Event()

    @contextlib.asynccontextmanager
    async def lease(self, key, *, person):
        self.leased.append(key)
        self.lease_begun.set()
        try:
            yield object()
        finally:
            self.ended.append(key)

    async def forget(self, key):
        raise OSError("the disk is broken")


async def test_all_leases_end_though_the_files_of_one_session_cannot_be_deleted(tmp_path):
    host = Host()

    class Socket:
        """A bot that leases three sessions and leaves."""

        async def __aiter__(self):
            for number in (1, 2, 3):
                lease = messages.Lease(number, f"key {number}", "", 0, is_ephemeral=True)
                host.lease_begun.clear()
                yield aiohttp.WSMessage(aiohttp.WSMsgType.TEXT, messages.encode(lease), None)
                await host.lease_begun.wait()
                await asyncio.sleep(0)

    connection = bot_connections.BotConnection(
        Socket(),
        host,
        None,
        may_start_kernels=lambda: True,
        on_listen=lambda: None,
        is_bot=False,
        epochs=session_epochs.SessionEpochs(tmp_path, None),
    )
    async with asyncio.timeout(30):
        await connection.serve()
    assert sorted(host.ended) == host.leased == ["key 1", "key 2", "key 3"]
