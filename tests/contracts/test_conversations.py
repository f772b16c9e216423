"""What every platform is promised of conversations: by the real ones, and by those of its tests."""

import asyncio
import contextlib
import dataclasses

import pytest

from interpreter_bot import errors, settings, values
from interpreter_bot.app import conversation_service
from interpreter_bot.sessions import approval_policy, ports, requests
from tests.fakes import (
    conversations,
    discord_conversations,
    openai_server,
    replies,
    slack_conversations,
)

pytestmark = pytest.mark.kernel

ANNA = requests.Person("u1", "Anna")
HELLO, WAIT = "hello", "wait"


@dataclasses.dataclass
class Conversation:
    """Conversations, one of them, and who chooses in it.

    They answer "hello" with "Hello", and "wait" with "Well" and nothing more until it is stopped.
    """

    service: object
    key: values.SessionKey
    scope: values.Scope

    async def ask(self, text, reply, **fields):
        request = requests.Request(key=self.key, person=ANNA, text=text, **fields)
        end = await self.service.handle(request, reply)
        assert reply.end == end, "who waits for the end and who shows it hear the same"
        return end

    @contextlib.asynccontextmanager
    async def waiting(self, **fields):
        """While one turn runs, have a second request wait; gives its reply and its task."""
        first, second = replies.Reply(), replies.Reply()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self.ask(WAIT, first, id="first"))
            await first.until("text")
            task = tasks.create_task(self.ask(HELLO, second, id="second"))
            await second.until("waiting")
            yield second, task
            assert await self.service.stop(self.key)
        assert running.result().status is values.TurnStatus.STOPPED


@contextlib.asynccontextmanager
async def _real(tmp_path, short_path):
    def answer(request):
        asked = str(request.messages[-1]["content"])
        return openai_server.text("Well", fault="stall") if WAIT in asked else _HELLO

    async with openai_server.Server(answer) as server:
        models = [
            settings.Model(name=name, base_url=server.base_url) for name in ("scripted", "second")
        ]
        bot = settings.Settings(
            paths=settings.Paths(data=tmp_path / "data", runtime=short_path),
            models=tuple(models),
            kernels=settings.Kernels(preload=(), spares=0),
        )
        async with conversation_service.open_conversations(
            bot, {"OPENAI_API_KEY": server.api_key}
        ) as service:
            yield _conversation(service, "slack")


_HELLO = openai_server.text("Hello")


@contextlib.asynccontextmanager
async def _of_the_page(tmp_path, short_path):
    async def hello(stage):
        stage.reply.step(1)
        stage.reply.text("Hello")
        return "Hello"

    async def wait(stage):
        stage.reply.step(1)
        stage.reply.text("Well")
        await stage.stopped.wait()
        return "Well"

    script = {HELLO: hello, WAIT: wait}
    service = conversations.Conversations(tmp_path, script, models=("scripted", "second"))
    key = values.SessionKey("web", thread="t")
    yield Conversation(service, key, values.Scope("web", person="web"))


@contextlib.asynccontextmanager
async def _of_slack(tmp_path, short_path):
    async def script(request, reply, service):
        reply.step(1)
        reply.text("Well" if request.text == WAIT else "Hello")
        if request.text == WAIT:
            await asyncio.sleep(60)
        return ports.End(status=values.TurnStatus.DONE, text="Hello", turn_id=service.next_turn())

    yield _conversation(slack_conversations.Conversations(script), "slack")


@contextlib.asynccontextmanager
async def _of_discord(tmp_path, short_path):
    async def script(turn):
        turn.reply.step(1)
        turn.reply.text("Well" if turn.request.text == WAIT else "Hello")
        if turn.request.text == WAIT:
            await asyncio.sleep(60)
        return turn.done("Hello")

    yield _conversation(discord_conversations.Conversations(script), "discord")


def _conversation(service, platform):
    key = values.SessionKey(platform, "T1", "C1", "1.1")
    return Conversation(service, key, values.Scope(platform, "T1", "C1"))


@pytest.fixture(params=[_real, _of_the_page, _of_slack, _of_discord], ids=lambda one: one.__name__)
async def conversation(request, tmp_path, short_path):
    async with request.param(tmp_path, short_path) as opened:
        yield opened


async def test_a_request_is_taken_to_one_end(conversation):
    reply = replies.Reply()
    end = await conversation.ask(HELLO, reply)
    assert (end.status, end.text, end.sentence) == (values.TurnStatus.DONE, "Hello", "")
    assert (reply.said, reply.of("begun"), reply.of("waiting")) == ("Hello", [None], [])


async def test_one_turn_runs_at_a_time_and_who_waits_is_told(conversation):
    async with conversation.waiting() as (reply, task):
        assert (reply.of("waiting"), reply.of("begun")) == ([1], [])
        assert conversation.service.is_busy(conversation.key)
    assert (await task).status is values.TurnStatus.DONE
    assert reply.of("begun") == [None]
    assert not conversation.service.is_busy(conversation.key)


async def test_what_waits_can_be_taken_back_and_what_runs_cannot(conversation):
    async with conversation.waiting() as (reply, task):
        assert not await conversation.service.withdraw(conversation.key, "first")
        assert not await conversation.service.withdraw(conversation.key, "another")
        assert await conversation.service.withdraw(conversation.key, "second")
        end = await task
        assert not await conversation.service.withdraw(conversation.key, "second")
    assert (end.status, end.turn_id, reply.of("begun")) == (values.TurnStatus.FAILED, 0, [])


async def test_the_request_that_is_named_is_cancelled_and_no_other(conversation):
    service, key = conversation.service, conversation.key
    shown = {name: replies.Reply() for name in ("first", "second", "third")}
    tasks = {}
    async with asyncio.TaskGroup() as group:
        for name, reply in shown.items():
            tasks[name] = group.create_task(conversation.ask(WAIT, reply, id=name))
            await reply.until("waiting" if tasks.keys() - {"first"} else "text")
        assert not await service.cancel(key, "another")
        assert await service.cancel(key, "second")
        assert (await tasks["second"]).status is values.TurnStatus.FAILED
        assert await service.cancel(key, "first")
        assert (await tasks["first"]).status is values.TurnStatus.STOPPED
        await shown["third"].until("text")
        assert not await service.cancel(key, "first")
        assert not await service.cancel(key, "second")
        assert service.is_busy(key)
        assert await service.cancel(key, "third")
    assert tasks["third"].result().status is values.TurnStatus.STOPPED
    assert shown["second"].of("begun") == []


async def test_where_nothing_runs_nothing_is_stopped(conversation):
    assert not await conversation.service.stop(conversation.key)
    await conversation.ask(HELLO, replies.Reply())
    assert not await conversation.service.stop(conversation.key)
    assert not conversation.service.is_busy(conversation.key)


async def test_past_turns_are_those_that_were_taken(conversation):
    ends = [await conversation.ask(text, replies.Reply()) for text in (HELLO, f"{HELLO} again")]
    past = await conversation.service.queries.history(conversation.key)
    assert [one.request for one in past] == [HELLO, f"{HELLO} again"]
    assert [one.id for one in past] == [end.turn_id for end in ends]
    assert {one.person for one in past} == {ANNA.id}
    assert await conversation.service.queries.history(conversation.key, most=1) == past[1:]
    (listed,) = await conversation.service.recent(
        conversation.key.platform, conversation.key.workspace
    )
    assert (listed.key, listed.is_busy) == (conversation.key, False)


async def test_an_event_is_claimed_once(conversation):
    claims = (conversation.service.claim(conversation.key.platform, "e1") for _ in range(3))
    assert sorted(await asyncio.gather(*claims)) == [False, False, True]
    assert await conversation.service.claim(conversation.key.platform, "e2")


async def test_files_are_kept_until_a_reset_that_says_so(conversation):
    async def pieces():
        yield b"a,b\n"
        yield b"1,2\n"

    name = await conversation.service.put(conversation.key, requests.Attachment("a.csv", pieces, 8))
    await conversation.service.reset(conversation.key)
    (listed,) = await conversation.service.queries.files(conversation.key)
    assert (listed.name, listed.size_bytes) == (name, 8)
    async with conversation.service.queries.reading(conversation.key, name) as (info, chunks):
        assert (info.name, info.size_bytes) == (name, 8)
        assert b"".join([chunk async for chunk in chunks]) == b"a,b\n1,2\n"
    with pytest.raises(errors.FileMissingError):
        async with conversation.service.queries.reading(conversation.key, "b.csv"):
            pytest.fail("there is none")
    await conversation.service.reset(conversation.key, files=True)
    assert await conversation.service.queries.files(conversation.key) == ()


async def test_a_model_is_chosen_of_those_there_are(conversation):
    first, second = conversation.service.queries.models
    assert await conversation.service.queries.model(conversation.key) == first
    await conversation.service.choose_model(conversation.key, second)
    assert await conversation.service.queries.model(conversation.key) == second
    with pytest.raises(errors.BotError):
        await conversation.service.choose_model(conversation.key, "another")
    await conversation.service.choose_model(conversation.key, None)
    assert await conversation.service.queries.model(conversation.key) == first


async def test_the_strictest_approval_counts_and_what_is_taken_back_does_not(conversation):
    service, scope = conversation.service, conversation.scope
    assert await service.queries.approval(scope) == "never"
    await service.choose(scope, approval_policy.NAME, "plan")
    assert await service.queries.approval(scope) == "plan"
    assert await service.queries.approval(scope, "every") == "every"
    assert (await service.queries.choices(scope)).get(approval_policy.NAME) == "plan"
    await service.choose(scope, approval_policy.NAME, None)
    assert await service.queries.approval(scope) == "never"
    assert approval_policy.NAME not in await service.queries.choices(scope)
