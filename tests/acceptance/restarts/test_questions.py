"""Questions to people while the bot is killed, or ends in order: the next has them, and answers."""

import contextlib
import json
import uuid

import pytest

from bench import bot_processes, page_visitors
from interpreter_bot import settings
from tests import waiting
from tests.fakes import openai_server

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(240)]

CODE = "print(6 * 7)"
INPUT = "print('first', input('one? '))\nprint('second', input('two? '))"
SECRET = "import getpass\nprint(len(getpass.getpass('key? ')))"


class Person:
    """Somebody at the page of a bot that is restarted, who sees what one request asks."""

    def __init__(self, bot, visitor):
        self._bot = bot
        self.visitor = visitor
        self.name = uuid.uuid4().hex

    @property
    def events(self):
        return self.visitor.shown.get(self.name, [])

    async def until(self, is_so):
        await waiting.until(is_so, seconds=90)

    def _open(self):
        return [one for one in self.events if one["type"] in ("input", "approve")]

    async def asked(self):
        """Wait for a question; gives its id."""
        await self.until(self._open)
        return self._open()[-1]["id"]

    async def is_restarted(self, way):
        """Kill the bot, or end it in order, and wait until the next one shows the page."""
        former = self._bot.pid, self.visitor.address
        getattr(self._bot, way)()
        await self.until(lambda: former[0] != self._bot.pid and former[1] != self.visitor.address)
        await self.until(lambda: self.name in self.visitor.shown)

    async def ended(self):
        await self.until(lambda: any(one["type"] == "over" for one in self.events))
        [over] = [one for one in self.events if one["type"] == "over"]
        return page_visitors.list_printed_lines(self.events), over


@contextlib.asynccontextmanager
async def being_there(short_path, model, key, **environment):
    bot = bot_processes.BotProcess(short_path, model, key)
    bot.environment |= environment
    visitor = page_visitors.Visitor("session-of-somebody-asked", None)

    def move(address):
        # From here on, what is shown is what this bot shows.
        visitor.address, visitor.shown = address, {}

    async with bot.running(move), visitor:
        yield bot, Person(bot, visitor)


@pytest.mark.parametrize("way", ["kill", "restart"])
@pytest.mark.parametrize("answer", [CODE, "print('edited')", None])
async def test_approval_survives_and_the_model_is_not_asked_again(short_path, way, answer):
    script = [openai_server.code(CODE), openai_server.text("Done.")]
    every = {"INTERPRETER_BOT_PLACE": '[{"approval": "every"}]'}
    async with openai_server.Server(script) as server:
        model = settings.Model(name="scripted", base_url=server.base_url, protocol="chat")
        async with being_there(short_path, model, server.api_key, **every) as (_, person):
            await person.visitor.send_message(person.name, "Compute!", is_code=False)
            question = await person.asked()
            await person.is_restarted(way)
            assert await person.asked() == question
            await person.visitor.decide(question, answer)
            # The first answer counts.
            await person.visitor.decide(question, "print('too late')")
            printed, over = await person.ended()
    assert printed == {CODE: ["42"], "print('edited')": ["edited"], None: []}[answer]
    assert (over["status"], over["text"]) == ("done", "Done.")


@pytest.mark.parametrize("way", ["kill", "restart"])
async def test_note_is_asked_about_again_and_remembered_once(short_path, way):
    note = "Revenue is net of VAT."
    calls = [("run_code", json.dumps({"code": CODE})), ("propose_note", f'{{"text": "{note}"}}')]
    script = [
        openai_server.Reply(calls=calls, finish="tool_calls"),
        openai_server.text("Done."),
        openai_server.text("Yes."),
    ]
    async with openai_server.Server(script) as server:
        model = settings.Model(name="scripted", base_url=server.base_url, protocol="chat")
        async with being_there(short_path, model, server.api_key) as (_, person):
            await person.visitor.send_message(person.name, "Compute!", is_code=False)
            question = await person.asked()
            await person.is_restarted(way)
            assert await person.asked() == question
            await person.visitor.decide(question, note)
            printed, over = await person.ended()
            assert (printed, over["status"]) == (["42"], "done")
            person.name = uuid.uuid4().hex
            await person.visitor.send_message(person.name, "And now?", is_code=False)
            await person.ended()
        prompts = [request.messages[0]["content"] for request in server.requests]
    assert [prompt.count(note) for prompt in prompts] == [0, 0, 1]


@pytest.mark.parametrize("way", ["kill", "restart"])
@pytest.mark.parametrize("is_early", [True, False])
async def test_input_survives_and_takes_an_answer_before_it_is_asked_again(
    short_path, way, is_early
):
    model = settings.Model(name="none", base_url="http://127.0.0.1:9/v1", protocol="chat")
    async with being_there(short_path, model, "none") as (_, person):
        await person.visitor.send_message(person.name, INPUT, is_code=True)
        first = await person.asked()
        await person.visitor.decide(first, "ada")
        await person.until(lambda: "first ada" in page_visitors.list_printed_lines(person.events))
        second = await person.asked()
        assert first != second
        await person.is_restarted(way)
        if not is_early:
            assert await person.asked() == second
        await person.visitor.decide(first, "late")
        await person.visitor.decide(second, "ben")
        printed, over = await person.ended()
    # A prompt that was answered stands there with its answer, if that was recorded in time.
    assert [line for line in printed if "?" not in line] == ["first ada", "second ben"]
    assert over["status"] == "done"


@pytest.mark.parametrize("way", ["kill", "restart"])
async def test_secret_is_asked_for_again_and_stored_nowhere(short_path, way):
    model = settings.Model(name="none", base_url="http://127.0.0.1:9/v1", protocol="chat")
    async with being_there(short_path, model, "none") as (bot, person):
        await person.visitor.send_message(person.name, SECRET, is_code=True)
        question = await person.asked()
        await person.is_restarted(way)
        assert await person.asked() == question
        await person.visitor.decide(question, "hunter2-hunter2")
        printed, _ = await person.ended()
        files = [file for file in bot.paths.data.rglob("*") if file.is_file()]
        assert not any(b"hunter2" in file.read_bytes() for file in files)
    assert printed == ["15"]
