"""What every platform is promised of conversations, with kernels and a model, and with scripts."""

import asyncio
import contextlib
import dataclasses
import itertools

import pytest

from interpreter_bot import errors, settings, values
from interpreter_bot.app import bot_startup
from interpreter_bot.sessions import approval_policy, requests
from tests.fakes import conversations, openai_server, replies

pytestmark = pytest.mark.kernel

ANNA = requests.Person("u1", "Anna")
HELLO, WAIT, ASK = "hello", "wait", "ask me"
QUESTION = "print('It is', input('Name? '))"
USED = values.Usage(steps=2, input_tokens=20, output_tokens=10)


@dataclasses.dataclass
class Conversation:
    """Conversations, one of them, and who chooses in it.

    They answer "hello" with "Hello", and "wait" with "Here" and nothing more until it is stopped.
    For "ask me" they first run code that asks for a name and says it.
    """

    service: object
    key: values.SessionKey
    scope: values.Scope

    async def ask(self, text, reply, **fields):
        request = requests.Request(key=self.key, person=ANNA, text=text, **fields)
        reply.answer = self.service.questions.answer
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
        last = request.messages[-1]
        asked = str(last["content"])
        if ASK in asked and last["role"] == "user":
            return openai_server.code(QUESTION)
        return openai_server.text("Here", fault="stall") if WAIT in asked else _HELLO

    async with openai_server.Server(answer) as server:
        models = [
            settings.Model(name=name, base_url=server.base_url) for name in ("scripted", "second")
        ]
        bot = settings.Settings(
            paths=settings.Paths(data=tmp_path / "data", runtime=short_path),
            models=tuple(models),
            kernels=settings.Kernels(preload=(), spares=0),
        )
        async with bot_startup.open_service(bot, {"OPENAI_API_KEY": server.api_key}) as service:
            service.closing_seconds = 0.5
            yield _conversation(service, "slack")


_HELLO = openai_server.text("Hello")


@contextlib.asynccontextmanager
async def _scripted(tmp_path, short_path):
    async def script(turn):
        turn.reply.step(1)
        if ASK in turn.request.text:
            await turn.reply.code(0, QUESTION)
            answer = await turn.reply.ask(0, values.InputRequested("Name? ", is_password=False))
            turn.reply.output(0, values.Text("stdout", f"It is {answer}\n"))
            turn.reply.finished(0, conversations.finished_well())
            turn.reply.usage(USED)
            turn.reply.step(2)
        turn.reply.text("Here" if WAIT in turn.request.text else "Hello")
        if WAIT in turn.request.text:
            await asyncio.sleep(60)
        turn.reply.usage(USED)
        return "Hello"

    models = ("scripted", "second")
    async with conversations.opened(tmp_path, script, models=models) as service:
        yield _conversation(service, "slack")


def _conversation(service, platform):
    key = values.SessionKey(platform, "T1", "C1", "1.1")
    return Conversation(service, key, values.Scope(platform, "T1", "C1"))


@pytest.fixture(params=[_real, _scripted], ids=lambda one: one.__name__)
async def conversation(request, tmp_path, short_path):
    async with request.param(tmp_path, short_path) as opened:
        yield opened


async def test_a_request_is_taken_to_one_end(conversation):
    reply = replies.Reply()
    end = await conversation.ask(HELLO, reply)
    assert (end.status, end.text, end.sentence) == (values.TurnStatus.DONE, "Hello", "")
    assert (reply.all_text, reply.contents("begun"), reply.contents("waiting")) == (
        "Hello",
        [None],
        [],
    )


async def test_what_happens_is_told_and_remembered_in_its_order(conversation):
    reply = replies.Reply(answers=["Ada"])
    end = await conversation.ask(ASK, reply)
    assert (end.status, end.text) == (values.TurnStatus.DONE, "Hello")
    order = ["begun", "step", "code", "ask", "output", "finished", "step", "text", "over"]
    heard = [method for method, _ in reply.received if method not in ("usage", "writing")]
    assert [one for one, _ in itertools.groupby(heard)] == order
    assert "".join(output.text for output in reply.contents("output")) == "It is Ada\n"
    (past,) = await conversation.service.queries.history(conversation.key)
    happened = [type(event).__name__ for event in past.events]
    assert [name for name, _ in itertools.groupby(happened)] == [
        *("Started", "CodeStarted", "QuestionAsked", "QuestionClosed", "OutputShown"),
        *("CodeFinished", "StepStarted", "TextAdded"),
        *("UsageChanged", "TurnEnded"),
    ]
    assert (past.record.answer, past.record.status) == ("Hello", "done")
    assert past.events[1].code == QUESTION
    last, spent = reply.contents("usage")[-1], past.events[-2].usage
    assert (spent.input_tokens, spent.output_tokens) == (last.input_tokens, last.output_tokens)
    used = await conversation.service.queries.usage(conversation.key, ANNA)
    assert used.session.input_tokens == used.today.input_tokens == last.input_tokens > 0


async def test_a_person_who_stops_a_turn_keeps_its_words(conversation):
    reply = replies.Reply()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(conversation.ask(WAIT, reply))
        await reply.until("text")
        assert await conversation.service.stop(conversation.key)
        assert not await conversation.service.stop(conversation.key), "it is stopped already"
    end = task.result()
    assert (end.status, end.text, end.sentence) == (values.TurnStatus.STOPPED, "Here", "Stopped.")
    (past,) = await conversation.service.queries.history(conversation.key)
    assert (past.record.status, past.record.answer) == ("stopped", "Here")
    assert past.record.id == end.turn_id


async def test_what_goes_away_ends_as_interrupted_and_nothing_new_is_taken(conversation):
    reply, late = replies.Reply(), replies.Reply()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(conversation.ask(WAIT, reply))
        await reply.until("text")
        tasks.create_task(conversation.service.drain())
        while not (await conversation.ask(HELLO, late)).sentence:
            late = replies.Reply()
    assert task.result().status is values.TurnStatus.INTERRUPTED
    assert late.end.status is values.TurnStatus.FAILED


async def test_one_turn_runs_at_a_time_and_who_waits_is_told(conversation):
    async with conversation.waiting() as (reply, task):
        assert (reply.contents("waiting"), reply.contents("begun")) == ([1], [])
        assert conversation.service.is_busy(conversation.key)
    assert (await task).status is values.TurnStatus.DONE
    assert reply.contents("begun") == [None]
    assert not conversation.service.is_busy(conversation.key)


async def test_what_waits_can_be_taken_back_and_what_runs_cannot(conversation):
    async with conversation.waiting() as (reply, task):
        assert not await conversation.service.withdraw(conversation.key, "first")
        assert not await conversation.service.withdraw(conversation.key, "another")
        assert await conversation.service.withdraw(conversation.key, "second")
        end = await task
        assert not await conversation.service.withdraw(conversation.key, "second")
    assert (end.status, end.turn_id, reply.contents("begun")) == (values.TurnStatus.STOPPED, 0, [])


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
        assert (await tasks["second"]).status is values.TurnStatus.STOPPED
        assert await service.cancel(key, "first")
        assert (await tasks["first"]).status is values.TurnStatus.STOPPED
        await shown["third"].until("text")
        assert not await service.cancel(key, "first")
        assert not await service.cancel(key, "second")
        assert service.is_busy(key)
        assert await service.cancel(key, "third")
    assert tasks["third"].result().status is values.TurnStatus.STOPPED
    assert shown["second"].contents("begun") == []


async def test_where_nothing_runs_nothing_is_stopped(conversation):
    assert not await conversation.service.stop(conversation.key)
    await conversation.ask(HELLO, replies.Reply())
    assert not await conversation.service.stop(conversation.key)
    assert not conversation.service.is_busy(conversation.key)


async def test_past_turns_are_those_that_were_taken(conversation):
    ends = [await conversation.ask(text, replies.Reply()) for text in (HELLO, f"{HELLO} again")]
    past = await conversation.service.queries.history(conversation.key)
    assert [one.record.request for one in past] == [HELLO, f"{HELLO} again"]
    assert [one.record.id for one in past] == [end.turn_id for end in ends]
    assert {one.record.person for one in past} == {ANNA.id}
    assert await conversation.service.queries.history(conversation.key, limit=1) == past[1:]
    (listed,) = await conversation.service.recent(
        conversation.key.platform, conversation.key.workspace
    )
    assert (listed.record.key, listed.is_busy) == (conversation.key, False)


async def test_an_event_is_claimed_once(conversation):
    claims = (conversation.service.events.claim(conversation.key.platform, "e1") for _ in range(3))
    assert sorted(await asyncio.gather(*claims)) == [False, False, True]
    assert await conversation.service.events.claim(conversation.key.platform, "e2")


async def test_files_are_kept_until_a_reset_that_says_so(conversation):
    async def pieces():
        yield b"a,b\n"
        yield b"1,2\n"

    name = await conversation.service.put_file(
        conversation.key, requests.Attachment("a.csv", pieces, 8)
    )
    await conversation.service.reset(conversation.key)
    (listed,) = await conversation.service.queries.files(conversation.key)
    assert (listed.name, listed.size_bytes) == (name, 8)
    async with conversation.service.queries.open_file(conversation.key, name) as (info, chunks):
        assert (info.name, info.size_bytes) == (name, 8)
        assert b"".join([chunk async for chunk in chunks]) == b"a,b\n1,2\n"
    with pytest.raises(errors.FileMissingError):
        async with conversation.service.queries.open_file(conversation.key, "b.csv"):
            pytest.fail("there is none")
    await conversation.service.reset(conversation.key, files=True)
    assert await conversation.service.queries.files(conversation.key) == ()


async def test_a_model_is_chosen_of_those_there_are(conversation):
    first, second = conversation.service.queries.models
    assert await conversation.service.queries.find_model_title(conversation.key) == first
    await conversation.service.choose_model(conversation.key, second)
    assert await conversation.service.queries.find_model_title(conversation.key) == second
    with pytest.raises(errors.BotError):
        await conversation.service.choose_model(conversation.key, "another")
    await conversation.service.choose_model(conversation.key, None)
    assert await conversation.service.queries.find_model_title(conversation.key) == first


async def test_the_strictest_approval_counts_and_what_is_taken_back_does_not(conversation):
    service, scope = conversation.service, conversation.scope
    assert await service.queries.approval(scope) == "never"
    await service.places.choose(scope, approval_policy.PREFERENCE_NAME, "plan")
    assert await service.queries.approval(scope) == "plan"
    assert await service.queries.approval(scope, "every") == "every"
    assert (await service.queries.choices(scope)).get(approval_policy.PREFERENCE_NAME) == "plan"
    await service.places.choose(scope, approval_policy.PREFERENCE_NAME, None)
    assert await service.queries.approval(scope) == "never"
    assert approval_policy.PREFERENCE_NAME not in await service.queries.choices(scope)
