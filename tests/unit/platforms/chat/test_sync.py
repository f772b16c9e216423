"""How messages are kept in step, on a small network over a socket."""

import asyncio
import contextlib

import pytest

from interpreter_bot import values
from interpreter_bot.platforms.chat import sync, transport
from interpreter_bot.store import databases
from tests import waiting
from tests.fakes.socket_chat import servers, transports

pytestmark = pytest.mark.looptime


@pytest.fixture
async def server(tmp_path):
    async with servers.Server(str(tmp_path / "chat.sock")) as running:
        yield running


@pytest.fixture
async def deliveries(tmp_path):
    url = f"sqlite:///{tmp_path}/bot.db"
    async with databases.Database.open(url, blobs_directory=tmp_path / "files") as database:
        yield database.deliveries


@contextlib.asynccontextmanager
async def kept(server, deliveries, drafts):
    """Keep messages in step with a list of drafts inside the context, and until all stand."""

    async def draw():
        return tuple(drafts)

    location = transport.Location(session=values.SessionKey("s", "", "room"), channel="room")
    network = transports.SocketTransport(server.path)
    keeping = sync.MessageSync(
        network, location, "1", draw, lambda error: None, deliveries, pace=lambda: 0.01
    )
    await keeping.adopt()
    running = asyncio.create_task(keeping.run())
    keeping.signal_change()
    yield
    keeping.signal_last_change()
    await running


async def forget_message(deliveries, position):
    """Note what a bot does that dies before it knows that a message stands."""
    delivery = (await deliveries.list_for_request("s", "1"))[position]
    row = {
        "nonce": delivery.nonce,
        "digest": delivery.digest,
        "first_tried_at": delivery.first_tried_at,
    }
    await deliveries.put("s", "1", position, message="", **row)


def texts(server):
    return [message.text for message in server.room("room")]


async def stand(server, *expected):
    """Wait until these messages stand."""
    await waiting.until(lambda: texts(server) == [*expected], subject="messages")


@pytest.mark.parametrize("call", ["post", "edit"])
@pytest.mark.parametrize(
    ("kind", "about"), [("limited", {"seconds": 0.05}), ("away", {}), ("drop", {})]
)
async def test_what_failed_is_done_later_and_once(server, deliveries, call, kind, about):
    fault = server.plan(call, kind, times=2, **about)
    drafts = [transport.Draft("one"), transport.Draft("one")]
    async with kept(server, deliveries, drafts):
        await stand(server, "one", "one")
        drafts[:] = [transport.Draft("two"), transport.Draft("three")]
    assert texts(server) == ["two", "three"]
    assert fault.times <= 1


async def test_only_differences_are_sent(server, deliveries):
    drafts = [transport.Draft("one"), transport.Draft("two")]
    async with kept(server, deliveries, drafts):
        await stand(server, "one", "two")
        drafts[1] = transport.Draft("2")
    assert server.calls == ["post", "post", "edit"]


async def test_messages_that_are_no_longer_wanted_are_deleted(server, deliveries):
    drafts = [transport.Draft("one"), transport.Draft("two")]
    async with kept(server, deliveries, drafts):
        await stand(server, "one", "two")
        del drafts[1]
    assert texts(server) == ["one"]


@pytest.mark.parametrize("call", ["post", "delete"])
async def test_what_takes_the_place_of_a_message_does_so_once(server, deliveries, call):
    drafts = [transport.Draft("status")]
    async with kept(server, deliveries, drafts):
        await stand(server, "status")
        server.plan(call, "away")
        drafts[:] = [transport.Draft("question", notified_person="alice")]
    assert [(message.text, message.notified_person) for message in server.room("room")] == [
        ("question", "alice")
    ]


async def test_where_nothing_can_be_shown_it_ends(server, deliveries):
    server.closed_rooms.add("room")
    with pytest.raises(transport.LocationClosedError, match="may not write"):
        async with kept(server, deliveries, [transport.Draft("one")]):
            pass


@pytest.mark.parametrize("is_noted", [True, False])
async def test_the_next_bot_goes_on_in_messages_of_one_that_was_killed(
    server, deliveries, is_noted
):
    drafts = [transport.Draft("one"), transport.Draft("two"), transport.Draft("three")]
    async with kept(server, deliveries, drafts):
        pass
    if not is_noted:
        await forget_message(deliveries, 1)
    drafts[1:] = [transport.Draft("2"), transport.Draft("3"), transport.Draft("4")]
    async with kept(server, deliveries, drafts):
        pass
    assert texts(server) == ["one", "2", "3", "4"]
    assert server.calls.count("post") == 4


@pytest.mark.parametrize(("kind", "about"), [("limited", {"seconds": 0.05}), ("away", {})])
@pytest.mark.parametrize("drafts_left", [2, 1])
async def test_a_message_of_a_killed_bot_is_found_although_the_network_is_down(
    server, deliveries, kind, about, drafts_left
):
    drafts = [transport.Draft("one"), transport.Draft("two")]
    async with kept(server, deliveries, drafts):
        pass
    await forget_message(deliveries, 1)
    server.plan("list", kind, times=2, **about)
    drafts[:] = [transport.Draft("one"), transport.Draft("2")][:drafts_left]
    async with kept(server, deliveries, drafts):
        pass
    assert texts(server) == ["one", "2"][:drafts_left]
    assert server.calls.count("post") == 2


async def test_a_message_that_a_killed_bot_never_posted_is_posted(server, deliveries):
    await deliveries.put("s", "1", 0, nonce="n", digest="d", first_tried_at=0.0, message="")
    async with kept(server, deliveries, [transport.Draft("one")]):
        pass
    assert texts(server) == ["one"]


async def test_a_message_that_a_person_deleted_meanwhile_is_not_posted_again(server, deliveries):
    drafts = [transport.Draft("one"), transport.Draft("two")]
    async with kept(server, deliveries, drafts):
        pass
    server.messages.pop(server.room("room")[0].id)
    drafts[1] = transport.Draft("2")
    async with kept(server, deliveries, drafts):
        pass
    assert texts(server) == ["2"]


async def test_a_message_that_went_is_forgotten(server, deliveries):
    drafts = [transport.Draft("one"), transport.Draft("two")]
    async with kept(server, deliveries, drafts):
        await stand(server, "one", "two")
        second = drafts.pop()
    drafts.append(second)
    async with kept(server, deliveries, drafts):
        pass
    assert texts(server) == ["one", "two"]


@pytest.mark.parametrize("words", [["one"], []])
async def test_an_answer_is_closed_even_if_its_files_are_refused(server, deliveries, words):
    class Transport(transports.SocketTransport):
        async def edit(self, posted, former, draft):
            if draft.uploads:
                raise transport.FilesRefusedError(draft.uploads)
            return await super().edit(posted, former, draft)

    upload = transport.Upload(id="a", version=0, name="a.txt", size_bytes=1, content=b"a")
    button = transport.Button("stop", "1", "alice")
    drafts = [transport.Draft("".join(words), uploads=(upload,), buttons=(button,))]

    async def draw():
        return tuple(drafts)

    location = transport.Location(session=values.SessionKey("s", "", "room"), channel="room")
    keeping = sync.MessageSync(
        Transport(server.path),
        location,
        "1",
        draw,
        lambda error: None,
        deliveries,
        pace=lambda: 0.01,
    )
    keeping.signal_last_change()
    await keeping.run()
    await keeping.close("It failed.")
    assert texts(server) == [*words, "It failed."]
