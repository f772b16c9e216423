"""OpenAI's own client with this bot as the model."""

import asyncio
import base64
import contextlib
import time

import openai
import pytest

from interpreter_bot import events, settings, values
from interpreter_bot.platforms import client_tokens
from interpreter_bot.platforms.api import routes
from interpreter_bot.platforms.web import server
from tests import futures
from tests.fakes import conversations

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PICTURE = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


@pytest.fixture
def serving(tmp_path):
    """Serve scripted conversations: `async with serving(script, "anna") as (bot, anna)`."""

    @contextlib.asynccontextmanager
    async def serving(script, *names, models=("good", "cheap")):
        file = tmp_path / "data" / client_tokens.API_FILE
        tokens = [client_tokens.add(file, name) for name in names]
        config = settings.Web(listen="127.0.0.1:0")
        async with contextlib.AsyncExitStack() as stack:
            opened = conversations.opened(tmp_path, script, web=config, models=models)
            bot = await stack.enter_async_context(opened)

            def open_api(service):
                return routes.Api(service, tmp_path / "data").answer

            served = server.serve(
                futures.completed_future(bot), config, tmp_path / "data", open_api=open_api
            )
            address = await stack.enter_async_context(served)
            origin = address.partition("/?")[0]
            # One pool of connections for all, as to make one takes long.
            client = openai.AsyncOpenAI(base_url=f"{origin}/v1", api_key="nobody", max_retries=0)
            await stack.enter_async_context(client)
            yield bot, *(client.with_options(api_key=token) for token in tokens)

    return serving


class Chat:
    """A conversation as clients without a memory on the server have it."""

    def __init__(self, client, **options):
        self.client = client
        self.options = options
        self.messages = []

    async def say(self, content, **options):
        self.messages.append({"role": "user", "content": content})
        answer = await self.client.chat.completions.create(
            model="interpreter-bot", messages=self.messages, **self.options | options
        )
        said = answer.choices[0].message.content
        self.messages.append({"role": "assistant", "content": said})
        return said


async def echo(turn):
    turn.reply.step(1)
    said = f"You said: {turn.request.text}"
    turn.reply.text(said)
    return said


async def work(turn):
    turn.reply.step(1)
    turn.reply.text("I look.")
    picture = values.Image(mime="image/png", data=PNG, plain="Figure: [x]")
    await turn.run(0, "look()", "seen\n", picture)
    turn.make(0, "a.csv", b"1,2\n")
    turn.reply.step(2)
    turn.reply.text("Done")
    turn.reply.text(".")
    turn.reply.usage(values.Usage(input_tokens=7, output_tokens=3, steps=2))
    return "Done."


CONTENT = f"I look.\n\n![Figure: x]({PICTURE})\n\nDone.\n\nFiles: `a.csv`"


async def test_an_answer_comes_whole_and_in_pieces(serving):
    async with serving(work, "anna") as (_, anna):
        said = {"model": "interpreter-bot", "messages": [{"role": "user", "content": "Look"}]}
        answer = await anna.chat.completions.create(**said)
        assert answer.choices[0].message.content == CONTENT
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage.total_tokens == 10
        stream = await anna.chat.completions.create(
            **said, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        deltas = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
        assert "".join(deltas) == CONTENT
        assert len(deltas) > 4
        assert chunks[-2].choices[0].finish_reason == "stop"
        assert chunks[-1].usage.prompt_tokens == 7
        async with anna.chat.completions.stream(**said) as helper:
            completion = await helper.get_final_completion()
        assert completion.choices[0].message.content == CONTENT


async def test_models_are_the_bot_and_the_bot_with_each_model(serving):
    async with serving(echo, "anna") as (bot, anna):
        names = [model.id async for model in anna.models.list()]
        assert names == ["interpreter-bot", "interpreter-bot/good", "interpreter-bot/cheap"]
        for name, title in (("interpreter-bot", ""), ("interpreter-bot/cheap", "cheap")):
            await anna.chat.completions.create(
                model=name, messages=[{"role": "user", "content": "x"}]
            )
            assert bot.requests[-1].model == title
        for name, kind in (("gpt-5", openai.NotFoundError), ("interpreter-bot/x", openai.APIError)):
            with pytest.raises(kind, match="model"):
                await anna.chat.completions.create(
                    model=name, messages=[{"role": "user", "content": "x"}]
                )


async def test_a_conversation_goes_on_in_its_session(serving):
    async with serving(echo, "anna") as (bot, anna):
        chats = [Chat(anna) for _ in range(3)]
        for chat in chats[:2]:
            # Two that begin alike, and answer alike, are two all the same.
            await chat.say("hello")
        await chats[2].say("other")
        for number, chat in enumerate(chats):
            await chat.say(f"next {number}")
            await chat.say("last")
        keys = [request.key for request in bot.requests]
        first, second, third, *rest = keys
        assert len({first, second, third}) == 3
        # It is not certain which of the first two goes on, so each begins anew, told what was said.
        for number in range(2):
            began, went_on = rest[2 * number : 2 * number + 2]
            assert began == went_on
            assert began not in (first, second)
            request = bot.requests[3 + 2 * number]
            assert [message.text for message in request.recent] == ["hello", "You said: hello"]
        assert rest[4:] == [third, third]
        assert not any(request.recent for request in bot.requests[-2:])
        assert len({*keys}) == 5


async def test_people_of_one_client_are_told_apart_by_user(serving):
    async with serving(echo, "anna") as (bot, anna):
        chats = [Chat(anna, user=name) for name in ("eve", "bob")]
        for text in ("hello", "next"):
            for chat in chats:
                await chat.say(text)
        keys = [request.key for request in bot.requests]
        assert keys[:2] == keys[2:]
        assert len({*keys}) == 2
        # Whoever claims to be somebody's conversation is told what was claimed, and no more.
        thief = Chat(anna, user="mallory")
        thief.messages = chats[0].messages[:2]
        await thief.say("What is x?")
        assert bot.requests[-1].key not in keys


async def test_a_header_names_the_session(serving):
    async with serving(echo, "anna", "ben") as (bot, anna, ben):
        chats = [
            Chat(client, extra_headers={header: "chat-1"})
            for client in (anna, ben)
            for header in ("X-Session-Id", "X-OpenWebUI-Chat-Id")
        ]
        for text in ("hello", "next"):
            for chat in chats:
                await chat.say(text)
        keys = [request.key for request in bot.requests]
        assert keys[:4] == keys[4:]
        assert len({*keys}) == 2
        assert {key.channel for key in keys} == {"anna", "ben"}
        answer = await anna.chat.completions.with_raw_response.create(
            model="interpreter-bot", messages=[{"role": "user", "content": "new"}]
        )
        session = answer.headers["X-Session-Id"]
        # Only what is new has to be sent to a session that is named, and only its client can.
        for client in (anna, ben):
            await Chat(client, extra_headers={"X-Session-Id": session}).say("again")
        assert [request.key.thread == session for request in bot.requests[-3:]] == [
            True,
            True,
            False,
        ]


async def test_no_client_gets_into_anothers_session(serving):
    async with serving(echo, "anna", "ben") as (bot, anna, ben):
        chat = Chat(anna)
        await chat.say("secret")
        copied = Chat(ben)
        copied.messages = list(chat.messages)
        await copied.say("What was it?")
        secret, other = bot.requests
        assert (secret.key.channel, other.key.channel) == ("anna", "ben")
        assert [message.text for message in other.recent] == ["secret", "You said: secret"]


async def test_a_question_that_is_asked_again_or_edited_replaces_its_answer(serving):
    async with serving(echo, "anna") as (bot, anna):
        chat = Chat(anna)
        await chat.say("one")
        await chat.say("two")
        for text in ("two", "changed"):
            del chat.messages[2:]
            await chat.say(text)
        key = bot.requests[0].key
        assert {request.key for request in bot.requests} == {key}
        history = await bot.queries.history(key)
        assert [turn.record.request for turn in history] == ["one", "changed"]


async def test_pictures_and_files_come_along(serving):
    async with serving(echo, "anna") as (bot, anna):
        data = base64.b64encode(b"1,2\n").decode()
        content = [
            {"type": "text", "text": "See"},
            {"type": "image_url", "image_url": {"url": PICTURE}},
            {
                "type": "file",
                "file": {"filename": "a.csv", "file_data": f"data:text/csv;base64,{data}"},
            },
        ]
        chat = Chat(anna)
        chat.messages.append({"role": "system", "content": "Be brief."})
        await chat.say(content)
        assert bot.taken == {"file-1.png": PNG, "a.csv": b"1,2\n"}
        assert bot.requests[0].context == "Be brief."
        bot.taken.clear()
        await chat.say("next")
        assert bot.taken == {}, "what the session has is not sent again"
        for part in ({"type": "input_audio"}, {"type": "file", "file": 7}, {"type": "image_url"}):
            with pytest.raises(openai.BadRequestError, match="parts of another kind"):
                await Chat(anna).say([part])
        for url in ("http://127.0.0.1:9/x.png", "file:///etc/passwd", "data:x;base64,?", ""):
            with pytest.raises(openai.BadRequestError, match="data URLs"):
                await Chat(anna).say([{"type": "image_url", "image_url": {"url": url}}])


@pytest.mark.parametrize("text", ["![", "![](data:", "![x](data:image/png;base64,"])
async def test_text_like_pictures_without_end_takes_no_time(serving, text):
    async with serving(echo, "anna") as (bot, anna):
        said = text * (300_000 // len(text))
        began = time.process_time()
        chat = Chat(anna)
        chat.messages += [{"role": "user", "content": "x"}, {"role": "assistant", "content": said}]
        await chat.say("next")
        assert time.process_time() - began < 2
        assert bot.requests[-1].recent[-1].text == said


async def test_what_comes_along_is_bounded(serving):
    async with serving(echo, "anna") as (bot, anna):
        pictures = [{"type": "image_url", "image_url": {"url": PICTURE}}] * 101
        with pytest.raises(openai.BadRequestError, match="at most 100 pictures or files"):
            await Chat(anna).say(pictures)
        chat = Chat(anna)
        chat.messages.append({"role": "system", "content": "x" * 100_001})
        with pytest.raises(openai.BadRequestError, match="100,000 characters"):
            await chat.say("hello")
        for option in ({"tools": [0] * 600_000}, {"messages": [{}] * 300_000}):
            with pytest.raises(openai.APIStatusError, match="too many parts") as refusal:
                await anna.post("/chat/completions", body=option, cast_to=object)
            assert refusal.value.status_code == 413
        assert bot.requests == []
        await Chat(anna).say(pictures[1:])
        assert len(bot.requests[-1].attachments) == 100


async def _read(stream, said):
    async for chunk in stream:
        said.append(chunk.choices[0].delta.content or "")


async def test_what_cannot_be_done_is_said(serving):
    async def fail(turn):
        turn.reply.step(1)
        turn.reply.text("I try.")
        return events.TurnEnded(status=values.TurnStatus.FAILED, sentence="The model is gone.")

    async with serving(fail, "anna") as (_, anna):
        with pytest.raises(openai.UnprocessableEntityError, match="The model is gone"):
            await Chat(anna).say("x")
        stream = await anna.chat.completions.create(
            model="interpreter-bot", messages=[{"role": "user", "content": "x"}], stream=True
        )
        said = []
        with pytest.raises(openai.APIError, match="The model is gone"):
            await _read(stream, said)
        assert "".join(said) == "I try."
        tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
        for options, words in (
            ({"tools": tools}, "tools of its own"),
            ({"response_format": {"type": "json_object"}}, "response_format"),
            ({"n": 2}, "n: "),
        ):
            with pytest.raises(openai.BadRequestError, match=words):
                await Chat(anna).say("x", **options)
        for messages in ([], [{"role": "assistant", "content": "x"}], [{"role": "x"}]):
            with pytest.raises(openai.BadRequestError):
                await anna.chat.completions.create(model="interpreter-bot", messages=messages)
        stranger = anna.with_options(api_key="nobody's")
        with pytest.raises(openai.AuthenticationError, match="token"):
            await Chat(stranger).say("x")


@pytest.mark.first_case
@pytest.mark.parametrize("count", [20, 100])
async def test_many_conversations_at_once_do_not_mix(serving, count):
    async with serving(echo, *(f"client-{number}" for number in range(count))) as (bot, *clients):

        async def talk(number, client):
            chat = Chat(client)
            for text in ("hello", "next", f"{number}"):
                assert await chat.say(text, stream=False) == f"You said: {text}"

        await asyncio.gather(*map(talk, range(count), clients))
        keys = [request.key for request in bot.requests]
        assert len({*keys}) == count
        assert {keys.count(key) for key in keys} == {3}
