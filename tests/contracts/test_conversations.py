"""What every platform is promised of conversations: by the real ones, and by those of its tests."""

import asyncio
import contextlib
import dataclasses

import pytest

from interpreter_bot import errors, settings, values
from interpreter_bot.app import conversing
from interpreter_bot.sessions import approvals, ports, requests
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
class Talks:
    """Conversations, one of them, and who chooses in it.

    They answer "hello" with "Hello", and "wait" with "Well" and nothing more until it is stopped.
    """

    held: object
    key: values.SessionKey
    scope: values.Scope

    async def ask(self, text, reply, **fields):
        request = requests.Request(key=self.key, person=ANNA, text=text, **fields)
        end = await self.held.handle(request, reply)
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
            assert await self.held.stop(self.key)
        assert running.result().status is ports.Status.STOPPED


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
        async with conversing.opened(bot, {"OPENAI_API_KEY": server.api_key}) as held:
            yield _talks(held, "slack")


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
    held = conversations.Conversations(tmp_path, script, models=("scripted", "second"))
    key = values.SessionKey("web", thread="t")
    yield Talks(held, key, values.Scope("web", person="web"))


@contextlib.asynccontextmanager
async def _of_slack(tmp_path, short_path):
    async def script(request, reply, held):
        reply.step(1)
        reply.text("Well" if request.text == WAIT else "Hello")
        if request.text == WAIT:
            await asyncio.sleep(60)
        return ports.End(status=ports.Status.DONE, text="Hello", turn_id=held.next_turn())

    yield _talks(slack_conversations.Conversations(script), "slack")


@contextlib.asynccontextmanager
async def _of_discord(tmp_path, short_path):
    async def script(turn):
        turn.reply.step(1)
        turn.reply.text("Well" if turn.request.text == WAIT else "Hello")
        if turn.request.text == WAIT:
            await asyncio.sleep(60)
        return turn.done("Hello")

    yield _talks(discord_conversations.Conversations(script), "discord")


def _talks(held, platform):
    key = values.SessionKey(platform, "T1", "C1", "1.1")
    return Talks(held, key, values.Scope(platform, "T1", "C1"))


@pytest.fixture(params=[_real, _of_the_page, _of_slack, _of_discord], ids=lambda one: one.__name__)
async def talks(request, tmp_path, short_path):
    async with request.param(tmp_path, short_path) as opened:
        yield opened


async def test_a_request_is_taken_to_one_end(talks):
    reply = replies.Reply()
    end = await talks.ask(HELLO, reply)
    assert (end.status, end.text, end.sentence) == (ports.Status.DONE, "Hello", "")
    assert (reply.said, reply.of("begun"), reply.of("waiting")) == ("Hello", [None], [])


async def test_one_turn_runs_at_a_time_and_who_waits_is_told(talks):
    async with talks.waiting() as (reply, task):
        assert (reply.of("waiting"), reply.of("begun")) == ([1], [])
        assert talks.held.is_busy(talks.key)
    assert (await task).status is ports.Status.DONE
    assert reply.of("begun") == [None]
    assert not talks.held.is_busy(talks.key)


async def test_what_waits_can_be_taken_back_and_what_runs_cannot(talks):
    async with talks.waiting() as (reply, task):
        assert not await talks.held.withdraw(talks.key, "first")
        assert not await talks.held.withdraw(talks.key, "another")
        assert await talks.held.withdraw(talks.key, "second")
        end = await task
        assert not await talks.held.withdraw(talks.key, "second")
    assert (end.status, end.turn_id, reply.of("begun")) == (ports.Status.FAILED, 0, [])


async def test_where_nothing_runs_nothing_is_stopped(talks):
    assert not await talks.held.stop(talks.key)
    await talks.ask(HELLO, replies.Reply())
    assert not await talks.held.stop(talks.key)
    assert not talks.held.is_busy(talks.key)


async def test_past_turns_are_those_that_were_taken(talks):
    ends = [await talks.ask(text, replies.Reply()) for text in (HELLO, f"{HELLO} again")]
    past = await talks.held.history(talks.key)
    assert [one.request for one in past] == [HELLO, f"{HELLO} again"]
    assert [one.id for one in past] == [end.turn_id for end in ends]
    assert {one.person for one in past} == {ANNA.id}
    assert await talks.held.history(talks.key, most=1) == past[1:]
    (listed,) = await talks.held.recent(talks.key.platform, talks.key.workspace)
    assert (listed.key, listed.is_busy) == (talks.key, False)


async def test_an_event_is_claimed_once(talks):
    claims = (talks.held.claim(talks.key.platform, "e1") for _ in range(3))
    assert sorted(await asyncio.gather(*claims)) == [False, False, True]
    assert await talks.held.claim(talks.key.platform, "e2")


async def test_files_are_kept_until_a_reset_that_says_so(talks):
    async def pieces():
        yield b"a,b\n"
        yield b"1,2\n"

    name = await talks.held.put(talks.key, requests.Attachment("a.csv", pieces, 8))
    await talks.held.reset(talks.key)
    (listed,) = await talks.held.files(talks.key)
    assert (listed.name, listed.size_bytes) == (name, 8)
    async with talks.held.reading(talks.key, name) as (info, chunks):
        assert (info.name, info.size_bytes) == (name, 8)
        assert b"".join([chunk async for chunk in chunks]) == b"a,b\n1,2\n"
    with pytest.raises(errors.FileMissingError):
        async with talks.held.reading(talks.key, "b.csv"):
            pytest.fail("there is none")
    await talks.held.reset(talks.key, files=True)
    assert await talks.held.files(talks.key) == ()


async def test_a_model_is_chosen_of_those_there_are(talks):
    first, second = talks.held.models
    assert await talks.held.model(talks.key) == first
    await talks.held.choose_model(talks.key, second)
    assert await talks.held.model(talks.key) == second
    with pytest.raises(errors.BotError):
        await talks.held.choose_model(talks.key, "another")
    await talks.held.choose_model(talks.key, None)
    assert await talks.held.model(talks.key) == first


async def test_the_strictest_approval_counts_and_what_is_taken_back_does_not(talks):
    held, scope = talks.held, talks.scope
    assert await held.approval(scope) == "never"
    await held.choose(scope, approvals.NAME, "plan")
    assert await held.approval(scope) == "plan"
    assert await held.approval(scope, "every") == "every"
    assert (await held.choices(scope)).get(approvals.NAME) == "plan"
    await held.choose(scope, approvals.NAME, None)
    assert await held.approval(scope) == "never"
    assert approvals.NAME not in await held.choices(scope)
