"""The page over a real loopback socket, with scripted conversations behind it."""

import contextlib
import itertools

import aiohttp
import pytest
import yarl

from interpreter_bot import settings
from interpreter_bot.app import bot_startup
from interpreter_bot.platforms.web import access, server
from tests import futures
from tests.fakes import conversations


class Client:
    """Sends requests as the page in a browser does, with its cookie and key."""

    def __init__(self, session, address, key):
        self.session = session
        self.key = key
        self.address = yarl.URL(address)
        self.origin = str(self.address.origin())

    def get(self, path, **options):
        return self.session.get(self.origin + path, **options)

    def post(self, path, **options):
        headers = {"Origin": self.origin, "Interpreter-Bot-Key": self.key} | options.pop(
            "headers", {}
        )
        return self.session.post(self.origin + path, headers=headers, **options)

    @contextlib.asynccontextmanager
    async def tab(self, thread="", **headers):
        async with self.session.ws_connect(
            self.origin + "/live",
            headers={"Origin": self.origin} | headers,
            protocols=[access.WEBSOCKET_PROTOCOL, self.key],
            max_msg_size=0,
        ) as socket:
            tab = Tab(socket, thread)
            await tab.next("hello")
            if thread:
                await tab.send("watch", max_turns=30)
                tab.whole = await tab.next("conversation")
            yield tab


class Tab:
    """A websocket as the page uses it."""

    def __init__(self, socket, thread):
        self.socket = socket
        self.thread = thread
        self.received = []
        self.whole = None
        self._unread = []

    async def send(self, do, **fields):
        await self.socket.send_json({"do": do, "thread": self.thread} | fields)

    async def next(self, kind):
        """Return the next message of a kind; messages before it are skipped."""
        while True:
            if not self._unread:
                self._unread = await self.socket.receive_json(timeout=30)
            message = self._unread.pop(0)
            self.received.append(message)
            if message["kind"] == kind:
                return message

    async def event(self, kind, turn=None):
        """Return the next event of a kind, of one turn or of any turn."""
        while True:
            message = await self.next("event")
            if message["event"]["type"] == kind and turn in (None, message["turn"]):
                return message["event"]


@pytest.fixture
def serving_fake(tmp_path):
    """Serve scripted conversations: `async with serving_fake(script) as (bot, client)`.

    The script has a function for each first word of a request. Each call opens new conversations;
    two calls with the same name in `again` open the same ones.
    """
    numbers = itertools.count()

    @contextlib.asynccontextmanager
    async def serving_fake(script=None, *, web=None, again="", models=("Scripted",), **options):
        async def play(turn):
            return await script[turn.request.text.partition(" ")[0]](turn)

        place = tmp_path / (again or f"bot-{next(numbers)}")
        served = web or settings.Web(listen="127.0.0.1:0")
        opened = conversations.opened(place, play, models=models, web=served, **options)
        jar = aiohttp.CookieJar(unsafe=True)
        async with (
            opened as bot,
            server.serve(futures.completed_future(bot), served, tmp_path / "data") as address,
            aiohttp.ClientSession(cookie_jar=jar) as session,
        ):
            async with session.get(address) as response:
                assert response.status == 200
                assert not response.url.query
                key = response.real_url.fragment.removeprefix("key=")
            yield bot, Client(session, address, key)

    return serving_fake


@pytest.fixture
def serving_kernels(tmp_path, short_path):
    """Serve conversations with kernels that import nothing, and no model."""

    @contextlib.asynccontextmanager
    async def serving_kernels(web=None, **groups):
        served = web or settings.Web(listen="127.0.0.1:0")
        config = settings.Settings(
            models=(),
            web=served,
            kernels=settings.Kernels(preload=(), spares=0),
            paths=settings.Paths(data=tmp_path / "data", runtime=short_path),
            **groups,
        )
        async with (
            bot_startup.open_service(config, {}) as service,
            server.serve(futures.completed_future(service), served, tmp_path / "data") as address,
        ):
            yield service, address

    return serving_kernels
