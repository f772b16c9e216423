"""What every chat network promises `platforms/chat`, and what answers come to on each of them."""

import asyncio
import contextlib
import dataclasses
import hashlib
import re
from collections.abc import Callable

import aiohttp
import discord
import pytest

from interpreter_bot import events, values
from interpreter_bot.platforms.chat import answer, buttons, drafts, markup, sync, transport
from interpreter_bot.platforms.discord import markdown, rate_limits
from interpreter_bot.platforms.discord import transport as discord_transport
from interpreter_bot.platforms.slack import blocks as slack_blocks
from interpreter_bot.platforms.slack import (
    handler_dependencies,
    installations,
    message_posting,
    web_api,
)
from interpreter_bot.platforms.slack import markdown as slack_markdown
from interpreter_bot.platforms.slack import transport as slack_transport
from interpreter_bot.store import databases
from interpreter_bot.store import deliveries as stored_deliveries
from tests import waiting
from tests.fakes import conversations
from tests.fakes.discord_server import servers as discord_servers
from tests.fakes.slack_server import servers as slack_servers
from tests.fakes.socket_chat import servers as socket_servers
from tests.fakes.socket_chat import transports as socket_transports
from tests.integration.slack import worlds

PNG = b"\x89PNG" + bytes(100)
DONE = values.Finished(values.Ending.OK, 0.1)
END = events.TurnEnded(status=values.TurnStatus.DONE, seconds=1.0, turn_id=5)


@dataclasses.dataclass
class Shown:
    """A message as people see it."""

    text: str
    files: dict
    buttons: list
    has_notified: bool


@dataclasses.dataclass
class Network:
    """A chat network, a place in it, and what happens there.

    Attributes:
        shown: the bot's messages in the place, in order.
        fail: lets the next calls of a kind fail.
        delete: a person deletes a message by its place among those.
        whispers: what the person was told privately.
        mixes_files: files stand in messages with words.
        forms: in so many forms a message is tried, each plainer than the one before.
    """

    transport: transport.Transport
    markup: markup.Markup
    location: transport.Location
    person: str
    shown: Callable[[], list]
    fail: Callable
    delete: Callable
    whispers: Callable[[], list]
    deliveries: stored_deliveries.Deliveries | None = None
    mixes_files: bool = True
    forms: int = 2


@contextlib.asynccontextmanager
async def _socket(tmp_path):
    async with socket_servers.Server(str(tmp_path / "chat.sock")) as server:

        def shown():
            return [
                Shown(
                    message.text, message.files, message.buttons, message.notified_person == "alice"
                )
                for message in server.room("general")
            ]

        location = transport.Location(
            session=values.SessionKey("s", "", "general"), channel="general"
        )
        yield Network(
            transport=socket_transports.SocketTransport(server.path),
            markup=socket_transports.SocketMarkup(),
            location=location,
            person="alice",
            shown=shown,
            fail=server.plan,
            delete=lambda place: server.messages.pop(server.room("general")[place].id),
            whispers=lambda: [text for _, text in server.whispers],
        )


_DISCORD_CALLS = {"post": ("POST", r"/messages$"), "edit": ("PATCH", r"/messages/\d+$")}
_DISCORD_FAULTS = {
    "drop": {"kind": "cut"},
    "files refused": {"status": 413, "code": 40005},
    "files forbidden": {"status": 403, "code": 50013},
    "content refused": {"status": 400, "code": 50035},
    "closed": {"status": 403, "code": 50001},
}


@contextlib.asynccontextmanager
async def _discord(_tmp_path):
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(discord_servers.Server(window_seconds=0.2))
        server.expect(10008)
        lab = server.guild("Lab")
        alice, channel = lab.person("alice"), lab.channel("general")
        limits = rate_limits.RateLimits()
        client = discord.Client(intents=discord.Intents.none(), http_trace=limits.trace)
        stack.push_async_callback(client.close)
        stack.push_async_callback(limits.close)
        await client.login(server.token)

        def shown():
            return [
                Shown(
                    message.content,
                    message.files,
                    [" ".join(custom.split(":")[1:3]) for custom in message.buttons.values()],
                    alice.id in message.pings,
                )
                for message in channel.bot_messages
            ]

        def fail(call, kind, times=1):
            server.plan(*_DISCORD_CALLS[call], times=times, **_DISCORD_FAULTS[kind])

        session = values.SessionKey("discord", str(lab.id), str(channel.id))
        yield Network(
            transport=discord_transport.DiscordTransport(client, limits, 0.02),
            markup=markdown,
            location=transport.Location(session=session, channel=str(channel.id)),
            person=str(alice.id),
            shown=shown,
            fail=fail,
            delete=lambda place: server.delete(channel.bot_messages[place]),
            whispers=lambda: [message.content for message in server.direct(alice).bot_messages],
        )


_SLACK_CALLS = {"post": "chat.postMessage", "edit": "chat.update"}
_SLACK_FAULTS = {
    "drop": slack_servers.Fault("drop after"),
    "content refused": slack_servers.Fault("error", error="invalid_blocks"),
    "closed": slack_servers.Fault("error", error="is_archived"),
}


@contextlib.asynccontextmanager
async def _slack(tmp_path):
    async with (
        slack_servers.Server(speed=60) as server,
        aiohttp.ClientSession() as session,
        conversations.opened(tmp_path / "conversations") as service,
    ):
        workspace = installations.InstalledWorkspace(
            "T1", "UBOT", "BBOT", server.world.teams["T1"].token
        )
        known = installations.InstalledWorkspaces(workspace)
        config = worlds.make_settings(server)
        timing = web_api.Timing(posting_seconds=1 / server.speed, sharing_seconds=0.3)
        shared = handler_dependencies.build(service, config, known, session, timing)
        root = server.world.next_ts()
        message = {"type": "message", "user": "U1", "text": "go", "ts": root}
        server.world.messages["C1", root] = message

        def shown():
            return [
                Shown(
                    slack_blocks.plain_text(message.get("blocks", [])),
                    {
                        file["name"]: server.world.contents[file["id"]]
                        for file in message.get("files", ())
                    },
                    [
                        f"{element['action_id']} {element['value'].rpartition('/')[2]}"
                        for block in message.get("blocks", ())
                        if block["type"] == "actions"
                        for element in block["elements"]
                    ],
                    has_notified=True,
                )
                for message in server.replies("C1", root)
            ]

        def fail(call, kind, times=1):
            if kind == "files refused":
                word = "file_upload_size_restricted"
                fault = slack_servers.Fault("error", error=word)
                server.fail("files.getUploadURLExternal", *[fault] * times)
            else:
                server.fail(_SLACK_CALLS[call], *[_SLACK_FAULTS[kind]] * times)

        def delete(place):
            del server.world.messages["C1", server.replies("C1", root)[place]["ts"]]

        key = values.SessionKey("slack", "T1", "C1", root)
        place = message_posting.Place(workspace, "C1", thread=root, request_ts=root, user="U1")
        yield Network(
            transport=slack_transport.SlackTransport(shared),
            markup=slack_markdown,
            location=slack_transport.location(place, key),
            person="U1",
            shown=shown,
            fail=fail,
            delete=delete,
            whispers=lambda: [message["text"] for message in server.world.ephemerals],
            mixes_files=False,
            forms=3,
        )


@pytest.fixture
def mixes_files(network):
    """Tests of messages with words, files and a notification, which not every network has."""
    if not network.mixes_files:
        pytest.skip("its files have messages of their own")


@pytest.fixture(params=[_socket, _discord, _slack], ids=["socket", "discord", "slack"])
async def network(request, tmp_path):
    url = f"sqlite:///{tmp_path}/bot.db"
    async with (
        databases.Database.open(url, blobs_directory=tmp_path / "files") as database,
        request.param(tmp_path) as opened,
    ):
        yield dataclasses.replace(opened, deliveries=database.deliveries)


def key(draft, nonce="n1", index=0):
    return sync.make_key("1", index, draft, nonce=nonce)


def upload(name, data=b"data"):
    return transport.Upload(id=name, version=0, name=name, size_bytes=len(data), content=data)


@pytest.mark.usefixtures("mixes_files")
async def test_what_is_posted_twice_under_one_key_stands_once(network):
    draft = transport.Draft("hello", uploads=(upload("a.txt"),), buttons=(stop(network),))
    first = await network.transport.post(network.location, draft, key(draft))
    second = await network.transport.post(network.location, draft, key(draft))
    assert first.message_id == second.message_id
    assert [(m.text, m.files, m.buttons) for m in network.shown()] == [
        ("hello", {"a.txt": b"data"}, ["stop 1"])
    ]


def stop(network):
    return buttons.make("stop", "1", network.person)


@pytest.mark.usefixtures("mixes_files")
async def test_a_post_without_a_response_is_found_and_no_other(network):
    draft = transport.Draft("hello", "(at work)", (upload("a.txt"),), (stop(network),))
    for other in (
        transport.Draft("hello", "(at work)", (upload("a.txt"),)),
        transport.Draft("hello", "(at work)", buttons=(stop(network),)),
        transport.Draft("hallo", "(at work)", (upload("a.txt"),), (stop(network),)),
    ):
        await network.transport.post(network.location, other, key(other, nonce=other.text))
    known = await network.transport.post(network.location, draft, key(draft, nonce="before"))
    sought = key(draft)
    assert await network.transport.find(network.location, sought, {known.message_id}) is None
    network.fail("post", "drop")
    with pytest.raises(transport.OutcomeUnknownError):
        await network.transport.post(network.location, draft, sought)
    found = await network.transport.find(network.location, sought, {known.message_id})
    await network.transport.edit(found, draft, dataclasses.replace(draft, text="found"))
    assert network.shown()[-1].text == "found\n(at work)"


@pytest.mark.usefixtures("mixes_files")
async def test_an_edit_keeps_files_that_stay(network):
    before = transport.Draft("one", uploads=(upload("a.txt"), upload("b.txt")))
    posted = await network.transport.post(network.location, before, key(before))
    gone = dataclasses.replace(upload("a.txt"), content=b"it is not read again")
    after = transport.Draft("two", uploads=(gone, upload("c.txt", b"new")))
    await network.transport.edit(posted, before, after)
    assert [(m.text, m.files) for m in network.shown()] == [
        ("two", {"a.txt": b"data", "c.txt": b"new"})
    ]


async def test_a_message_that_a_person_deleted_is_told_so(network):
    draft = transport.Draft("one")
    posted = await network.transport.post(network.location, draft, key(draft))
    network.delete(0)
    with pytest.raises(transport.DeletedError):
        await network.transport.edit(posted, draft, transport.Draft("two"))
    await network.transport.delete(posted)
    assert network.shown() == []


@pytest.mark.usefixtures("mixes_files")
@pytest.mark.parametrize("call", ["post", "edit"])
@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("files refused", transport.FilesRefusedError),
        ("files forbidden", transport.FilesRefusedError),
        ("content refused", transport.ContentRefusedError),
        ("closed", transport.LocationClosedError),
    ],
)
async def test_refusals_have_their_errors(network, call, kind, error):
    before = transport.Draft("one")
    after = transport.Draft("two", uploads=(upload("a.txt"),))
    posted = await network.transport.post(network.location, before, key(before))
    network.fail(call, kind)
    calls = {
        "post": lambda: network.transport.post(network.location, after, key(after, nonce="n2")),
        "edit": lambda: network.transport.edit(posted, before, after),
    }
    with pytest.raises(error) as caught:
        await calls[call]()
    if error is transport.FilesRefusedError:
        assert caught.value.uploads == after.uploads
        assert caught.value.is_forbidden == (kind == "files forbidden")
    assert [message.text for message in network.shown()] == ["one"]


@pytest.mark.usefixtures("mixes_files")
async def test_only_a_new_message_notifies(network):
    before = transport.Draft("one")
    mention = network.markup.mention(network.person)
    question = transport.Draft(f"{mention} two", notified_person=network.person)
    posted = await network.transport.post(network.location, before, key(before))
    with pytest.raises(transport.UneditableError):
        await network.transport.edit(posted, before, question)
    await network.transport.post(network.location, question, key(question, nonce="n2"))
    assert [message.has_notified for message in network.shown()] == [False, True]


async def test_a_person_is_told_something_privately(network):
    assert await network.transport.whisper(network.location, network.person, "psst")
    assert network.whispers() == ["psst"]
    assert network.shown() == []


# Answers.


@dataclasses.dataclass
class Opened:
    """An answer that is being shown."""

    answer: answer.Answer
    cancelled: list


@contextlib.asynccontextmanager
async def opened(network, *, is_code=False):
    cancelled = []

    async def cancel():
        cancelled.append(True)

    plan = answer.AnswerPlan(
        request_id="1",
        location=network.location,
        style=drafts.AnswerStyle(
            owner=network.person, is_code=is_code, shows_code=False, limit_seconds=60
        ),
        pace=lambda: 0.02,
        has_page=False,
    )
    async with asyncio.TaskGroup() as tasks:
        reply = answer.Answer(
            network.transport,
            network.markup,
            plan,
            network.deliveries,
            lambda work, name: tasks.create_task(work, name=name),
        )
        tasks.create_task(reply.show(cancel))
        reply.emit(events.Started())
        yield Opened(reply, cancelled)


def tell(reply, *happened):
    for event in happened:
        reply.emit(event)


def make(reply, name, data):
    copy = reply.spool / f".{name}"
    copy.write_bytes(data)
    artifact = values.Artifact(name, len(data), hashlib.sha256(data).hexdigest())
    reply.emit(events.FileMade(0, artifact, copy))


def text(network):
    return "\n".join(message.text for message in network.shown())


async def seen(network, words):
    await waiting.until(lambda: words in text(network), subject=words)


@pytest.mark.usefixtures("mixes_files")
async def test_an_answer_grows_and_ends(network):
    async with opened(network) as shown:
        tell(shown.answer, events.StepStarted(1), events.TextAdded("Let me look at it. I will"))
        await seen(network, "Let me look at it.")
        assert network.shown()[-1].buttons == ["stop 1"]
        tell(shown.answer, events.CodeStarted(0, "draw()"))
        await seen(network, "draw()")
        image = values.Image(mime="image/png", data=PNG)
        tell(
            shown.answer,
            events.OutputShown(0, values.Text("stdout", "printed\n")),
            events.OutputShown(0, image),
            events.OutputShown(0, values.Text("stdout", "after it\n")),
            events.CodeFinished(0, DONE),
        )
        await seen(network, "after it")
        first, second = network.shown()
        assert "printed" in first.text
        assert list(first.files.values()) == [PNG]
        assert "after it" in second.text
        tell(shown.answer, events.StepStarted(2), dataclasses.replace(END, text="That is all."))
    assert text(network).startswith("That is all.")
    assert "1 run" in text(network)
    assert list(network.shown()[-1].files.values()) == [PNG]
    assert network.shown()[-1].buttons == ["code 5", "again 5", "notebook 5"]


@pytest.mark.parametrize("call", ["post", "edit"])
async def test_an_answer_stands_once_though_responses_are_lost(network, call):
    network.fail(call, "drop")
    words = " ".join(f"word{number}" for number in range(150))
    async with opened(network) as shown:
        for piece in re.findall(r"\S+ ?", words):
            shown.answer.emit(events.TextAdded(piece))
            await asyncio.sleep(0.001)
        shown.answer.emit(dataclasses.replace(END, text=words))
    assert text(network).split() == words.split()


async def test_code_of_a_person_is_shown_in_the_order_in_which_it_showed_something(network):
    async with opened(network, is_code=True) as shown:
        tell(shown.answer, events.CodeStarted(0, "look()"))
        for number in range(3):
            tell(shown.answer, events.OutputShown(0, values.Result(plain=f"that was {number}")))
        tell(shown.answer, events.CodeFinished(0, DONE), END)
    places = [text(network).index(f"that was {number}") for number in range(3)]
    assert places == sorted(places)


@pytest.mark.parametrize("is_refused", [False, True])
async def test_a_part_that_is_refused_comes_without_markup_or_leaves_a_sentence(
    network, is_refused
):
    async with opened(network) as shown:
        await seen(network, "thinking")
        network.fail("edit", "content refused", network.forms if is_refused else 1)
        tell(shown.answer, dataclasses.replace(END, text="odd"))
    assert ("was refused" in text(network)) == is_refused
    assert ("odd" in text(network)) != is_refused


@pytest.mark.usefixtures("mixes_files")
async def test_where_no_files_may_be_sent_the_words_arrive(network):
    network.fail("edit", "files forbidden")
    async with opened(network) as shown:
        await seen(network, "thinking")
        make(shown.answer, "a.txt", b"a")
        make(shown.answer, "b.txt", b"b")
        shown.answer.emit(dataclasses.replace(END, text="Here they are."))
    assert text(network).startswith("Here they are.")
    assert text(network).count("not allowed to attach files") == 1
    assert "a.txt" in text(network)
    assert [message.files for message in network.shown()] == [{}] * len(network.shown())


async def test_files_that_are_refused_do_not_take_the_words_along(network):
    network.fail("edit", "files refused")
    async with opened(network) as shown:
        await seen(network, "thinking")
        make(shown.answer, "a.txt", b"a")
        shown.answer.emit(dataclasses.replace(END, text="Here it is."))
    assert text(network).startswith("Here it is.")
    assert "`a.txt` (1 byte) is too large to send here" in text(network)


async def test_a_message_that_a_person_deletes_is_not_posted_again(network):
    words = " ".join(f"word{number}" for number in range(1500))
    async with opened(network) as shown:
        await seen(network, "thinking")
        network.delete(0)
        shown.answer.emit(dataclasses.replace(END, text=words))
    assert "word0 " not in text(network)
    assert "word1499" in text(network)


async def test_where_nothing_can_be_shown_the_turn_is_cancelled(network):
    network.fail("post", "closed")
    async with opened(network) as shown:
        await waiting.until(lambda: shown.cancelled, subject="the end of the turn")
        shown.answer.emit(END)
    assert network.shown() == []
    assert len(network.whispers()) == 1


async def test_a_question_notifies_and_its_answer_stands_below(network):
    question = events.InputQuestion(
        id="7", session=network.location.session, person=network.person, cell=0, prompt="Name? "
    )
    async with opened(network) as shown:
        tell(shown.answer, events.CodeStarted(0, "input()"), events.QuestionAsked(question))
        await seen(network, "Name?")
        assert network.shown()[-1].has_notified
        assert network.shown()[-1].buttons == ["answer 7", "stop 1"]
        tell(
            shown.answer,
            events.QuestionClosed(question, events.TextAnswer("Ada")),
            events.CodeFinished(0, DONE),
            END,
        )
    assert "Name? Ada" in text(network)


async def test_a_question_of_the_model_has_a_button_for_each_choice_and_reaches_nobody(network):
    prompt = "# **Which** @everyone <!channel> <@1> [region](https://example.invalid)?\n> North"
    choices = tuple(f"<@{number}> *{'x' * 60}*" for number in range(6))
    question = events.InputQuestion(
        id="7",
        session=network.location.session,
        person=network.person,
        cell=0,
        prompt=prompt,
        is_of_model=True,
        choices=choices,
    )
    async with opened(network) as shown:
        shown.answer.emit(events.QuestionAsked(question))
        await seen(network, "region")
        message = network.shown()[-1]
        assert message.has_notified
        picks = [f"pick{place} 7" for place in range(6)]
        assert message.buttons == [*picks, "answer 7", "stop 1"]
        # As one line of words, which nothing begins that is markup.
        assert not re.search(r"(?m)^(?:#|>)", message.text)
        has_mentions = network.markup.escape("@everyone") != "@everyone"
        assert not (has_mentions and re.search("@everyone|<!channel>", message.text))
        closed = events.QuestionClosed(question, events.TextAnswer(choices[0]))
        tell(shown.answer, closed, dataclasses.replace(END, text="Done."))
    assert "→" in text(network)
    assert not (has_mentions and "@everyone" in text(network))


async def test_an_answer_takes_the_place_of_another(network):
    words = " ".join(f"word{number}" for number in range(1500))
    async with opened(network) as first:
        first.answer.emit(dataclasses.replace(END, text=words))
    assert len(network.shown()) > 1
    async with opened(network) as second:
        second.answer.emit(dataclasses.replace(END, text="Brief."))
    assert [message.text for message in network.shown()] == ["Brief."]
