"""The page over a real loopback socket, with scripted conversations behind it."""

import contextlib

import aiohttp
import pytest
import yarl

from interpreter_bot import settings
from interpreter_bot.platforms.web import server
from tests.fakes import conversations


class Client:
    """A browser's requests without a browser: with its cookie, and as our own page sends them."""

    def __init__(self, session, address):
        self.session = session
        self.address = yarl.URL(address)
        self.origin = str(self.address.origin())

    def get(self, path, **options):
        return self.session.get(self.origin + path, **options)

    def post(self, path, **options):
        headers = {"Origin": self.origin} | options.pop("headers", {})
        return self.session.post(self.origin + path, headers=headers, **options)

    @contextlib.asynccontextmanager
    async def tab(self, thread="", **headers):
        async with self.session.ws_connect(
            self.origin + "/live", headers={"Origin": self.origin} | headers, max_msg_size=0
        ) as socket:
            tab = Tab(socket, thread)
            await tab.next("hello")
            if thread:
                await tab.say("watch", most=30)
                tab.whole = await tab.next("conversation")
            yield tab


class Tab:
    """A websocket as the page uses it."""

    def __init__(self, socket, thread):
        self.socket = socket
        self.thread = thread
        self.heard = []
        self.whole = None
        self._unread = []

    async def say(self, do, **fields):
        await self.socket.send_json({"do": do, "thread": self.thread} | fields)

    async def next(self, kind):
        """The next message of a kind; what comes before it is passed over."""
        while True:
            if not self._unread:
                self._unread = await self.socket.receive_json(timeout=10)
            message = self._unread.pop(0)
            self.heard.append(message)
            if message["kind"] == kind:
                return message

    async def event(self, kind, turn=None):
        """The next event of a kind, of one turn or of any."""
        while True:
            message = await self.next("event")
            if message["event"]["kind"] == kind and turn in (None, message["turn"]):
                return message["event"]


@pytest.fixture
def serving_fake(tmp_path):
    """Serve scripted conversations: `async with serving_fake(script) as (bot, client)`."""

    @contextlib.asynccontextmanager
    async def serving_fake(script=None, *, web=None, bot=None, **options):
        bot = bot or conversations.Conversations(tmp_path / "files", script, **options)
        opened = server.serve(bot, web or settings.Web(port=0), tmp_path / "data")
        jar = aiohttp.CookieJar(unsafe=True)
        async with opened as address, aiohttp.ClientSession(cookie_jar=jar) as session:
            async with session.get(address) as response:
                assert response.status == 200
                assert not response.url.query
            yield bot, Client(session, address)

    return serving_fake
