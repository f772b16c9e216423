"""What every reply promises sessions: it takes whatever a turn may tell, and shows how it ended."""

import asyncio
import contextlib
import dataclasses
import decimal
import functools
import io
import json
import os
from collections.abc import Awaitable, Callable

import pytest

from interpreter_bot import events, settings, values
from interpreter_bot.platforms.console import json_replies, terminal_input, terminal_replies
from interpreter_bot.platforms.discord import startup
from interpreter_bot.platforms.web import access, server
from interpreter_bot.sessions import ports, questions
from tests import futures, waiting
from tests.fakes import askers, conversations, replies
from tests.fakes.discord_server import servers as discord_servers
from tests.fakes.slack_server import servers as slack_servers
from tests.integration.slack import worlds

CODE = "look()"
QUESTION = "Your name?"
DONE = values.Finished(values.Ending.OK, 0.1)
HOSTILE = (
    *("\x00\x1b[2J\x1b]0;x\x07", "\udc80", "\u202egnp.exe", "<!channel> @everyone <@1>"),
    *("```\n" * 50, "<script>x()</script>", "x" * 30_000, "é" * 5_000, "\r\r\n\x08", "{}|*_~`"),
)


@dataclasses.dataclass
class Opened:
    """A reply, and all that people see of it."""

    reply: ports.Reply
    asker: askers.Asker
    shown: Callable[[], str]
    answer: Callable[[str], Awaitable[object]]
    """Answers what `input()` asks, once that is seen."""
    decide: Callable[[bool], Awaitable[object]]
    """Lets code run that waits for it, once that is seen, or not."""
    leave: Callable[[], object] = lambda: None
    """Ends the turn for the platform, which would wait for it."""

    async def shows(self, words):
        """Wait until it is seen."""
        for _ in range(3000):
            if words in self.shown():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{words!r} is not in {self.shown()!r}")


@contextlib.asynccontextmanager
async def _handed_over(tmp_path):
    """Conversations that hand the reply of the first request over, and wait for its end."""
    handed = asyncio.get_running_loop().create_future()
    over = asyncio.Event()
    async with conversations.opened(tmp_path) as service:

        async def handle(request, reply):
            asker = askers.Asker(
                reply, service.questions, session=request.key, person=request.person.id
            )
            handed.set_result((reply, asker))
            await over.wait()
            return events.TurnEnded(status=values.TurnStatus.DONE)

        service.handle = handle
        yield service, handed, over.set


@contextlib.asynccontextmanager
async def _slack(tmp_path):
    async with (
        slack_servers.Server(speed=60) as slack,
        _handed_over(tmp_path) as (service, handed, leave),
    ):
        async with worlds.connect_platform(slack, service):
            ts = slack.say("U1", "DU1", "<@UBOT> go")
            messages = slack.world.messages

            async def pressed(button):
                askers = await slack.until(
                    lambda: [m for m in slack.replies("DU1", ts) if worlds.has_button(m, button)]
                )
                slack.click("U1", "DU1", askers[-1]["ts"], button)

            async def answer(text):
                await slack.until(
                    lambda: [m for m in slack.replies("DU1", ts) if worlds.has_button(m, "answer")]
                )
                slack.say("U1", "DU1", text, thread=ts)

            async def decide(is_approved):
                await pressed("run" if is_approved else "refuse")

            yield Opened(*await handed, lambda: str(list(messages.values())), answer, decide, leave)
        # Nothing of what code shows reaches anybody.
        assert slack.pings == []


@contextlib.asynccontextmanager
async def _discord(tmp_path):
    async with (
        discord_servers.Server(window_seconds=0.5) as discord,
        _handed_over(tmp_path) as (service, handed, leave),
    ):
        lab = discord.guild("Lab")
        direct = discord.direct(lab.person("alice"))
        timing = startup.Timing(edit_seconds=0.1)
        async with startup.connected_platform(
            service, settings.Discord(), token=discord.token, timing=timing
        ):
            alice = direct.recipients[0]
            discord.say(alice, direct, "go")

            async def seen(button):
                await waiting.until(
                    lambda: direct.bot_messages and button in direct.bot_messages[-1].buttons
                )
                return direct.bot_messages[-1]

            async def answer(text):
                await seen("Answer")
                discord.say(alice, direct, text)

            async def decide(is_approved):
                button = "Run" if is_approved else "Refuse"
                await discord.click(alice, await seen(button), button)

            yield Opened(
                *await handed,
                lambda: str([one.content for one in direct.bot_messages]),
                answer,
                decide,
                leave,
            )


@contextlib.asynccontextmanager
async def _web(tmp_path):
    import aiohttp
    import yarl

    heard = []

    async def listen(socket):
        async for message in socket:
            heard.append(message.data)

    async with (
        _handed_over(tmp_path) as (service, handed, leave),
        server.serve(
            futures.completed_future(service),
            settings.Web(listen="127.0.0.1:0"),
            tmp_path / "page",
        ) as address,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
    ):
        origin = str(yarl.URL(address).origin())
        async with session.get(address) as response:
            key = response.real_url.fragment.removeprefix("key=")
        async with session.ws_connect(
            f"{origin}/live",
            headers={"Origin": origin},
            protocols=[access.WEBSOCKET_PROTOCOL, key],
            max_msg_size=0,
        ) as socket:
            fields = {"thread": "0123456789abcdef", "id": "1" * 16, "text": "go"}
            await socket.send_json({"do": "watch", "max_turns": 30} | fields)
            await socket.send_json({"do": "send"} | fields)
            listening = asyncio.create_task(listen(socket))

            async def answered(kind, text):
                def asked():
                    events = [one.get("event", {}) for batch in heard for one in json.loads(batch)]
                    open_ones = {e["id"]: e["type"] for e in events if "id" in e}
                    return [one for one, last in open_ones.items() if last == kind]

                [question] = await waiting.until(asked)
                answer = {"do": "answer", "question": question, "text": text}
                await socket.send_json({"thread": fields["thread"]} | answer)

            async def decide(is_approved):
                await answered("approve", CODE if is_approved else None)

            yield Opened(
                *await handed,
                lambda: "\n".join(heard),
                functools.partial(answered, "input"),
                decide,
                leave,
            )
            listening.cancel()


@contextlib.contextmanager
def _typed():
    """Standard input, what answers questions there, and what decides on code."""
    read, write = os.pipe()

    async def answer(text):
        os.write(write, f"{text}\n".encode())

    async def decide(is_approved):
        await answer("y" if is_approved else "n")

    try:
        yield terminal_input.StdinAnswers(is_script=False, descriptor=read), answer, decide
    finally:
        os.close(read)
        os.close(write)


@contextlib.asynccontextmanager
async def _terminal(tmp_path):
    out, err = io.StringIO(), io.StringIO()
    registry = questions.Questions()
    with _typed() as (answers, *typed):
        reply = terminal_replies.TurnPrinter(None, answers, registry.answer, out=out, err=err)
        yield Opened(
            reply, askers.Asker(reply, registry), lambda: out.getvalue() + err.getvalue(), *typed
        )


@contextlib.asynccontextmanager
async def _lines(tmp_path):
    out = io.StringIO()
    with _typed() as (lines, type_line, _):

        async def answer(text):
            asked = [line for line in map(json.loads, out.getvalue().splitlines()) if "id" in line]
            await type_line(json.dumps({"id": asked[-1]["id"], "answer": text}))

        async def decide(is_approved):
            await answer("yes" if is_approved else None)

        registry = questions.Questions()
        json_answers = json_replies.JsonAnswers(lines)
        reply = json_replies.JsonLines(None, json_answers, registry.answer, out=out)
        yield Opened(reply, askers.Asker(reply, registry), out.getvalue, answer, decide)
    assert all(json.loads(line) for line in out.getvalue().splitlines())


@contextlib.asynccontextmanager
async def _remembering(tmp_path):
    registry = questions.Questions()
    reply = replies.Reply(answers=["Ada"], approvals=[CODE, None])
    reply.answer = registry.answer

    async def known_before(_):
        pass

    yield Opened(
        reply,
        askers.Asker(reply, registry),
        lambda: str(reply.received),
        known_before,
        known_before,
    )


KINDS = [_slack, _discord, _web, _terminal, _lines, _remembering]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
async def opened(request, tmp_path):
    async with request.param(tmp_path) as one:
        yield one
        one.leave()


def _begin(reply):
    reply.emit(events.Queued(2))
    reply.emit(events.Queued(1))
    reply.emit(events.Started())
    reply.emit(events.ProgressChanged("Starting the model…", None))
    reply.emit(events.ProgressChanged("", None))
    reply.emit(events.StepStarted(1))


def _run(reply, cell, code, *outputs):
    reply.emit(events.CodeDrafted(code[:100]))
    reply.emit(events.CodeStarted(cell, code))
    for output in outputs:
        reply.emit(events.OutputShown(cell, output))
    reply.emit(events.CodeFinished(cell, DONE))


def _every_output(text):
    return (
        values.Text("stdout", text),
        values.Text("stderr", text),
        values.Error(text, text, text),
        values.Image(mime="image/png", data=b"no picture", plain=text),
        values.Html(html=text.encode("utf-8", "surrogatepass"), title=text, plain=text),
        values.Table(columns=(text[:200],), rows=((text[:200],),), row_count=1, column_count=1),
        values.Latex(latex=text, plain=text),
        values.Json(json=json.dumps(text), plain=text),
        values.Result(plain=text, display_id="d"),
        values.Result(plain=text, display_id="d", is_update=True, is_markdown=True),
        values.Clear(wait=True),
        values.Notice(text),
    )


def _file(reply, cell, name, data):
    copy = None
    if reply.spool is not None:
        copy = reply.spool / ".copy"
        copy.write_bytes(data)
    reply.emit(events.FileMade(cell, values.Artifact(name, len(data), "0" * 64), copy))


async def test_a_turn_is_shown_from_its_wait_to_its_end(opened):
    reply = opened.reply
    _begin(reply)
    reply.emit(events.TextAdded("I will look. "))
    _run(reply, 0, "look()", values.Text("stdout", "seen\n"))
    reply.emit(events.NoticeShown("Something is to be known.", 0))
    reply.emit(events.StepStarted(2))
    reply.emit(events.TextAdded("There it is."))
    _file(reply, 0, "report.csv", b"a,b\n")
    reply.emit(
        events.UsageChanged(values.Usage(steps=2, input_tokens=10, money=decimal.Decimal("0.01")))
    )
    reply.emit(events.TurnEnded(status=values.TurnStatus.DONE, text="There it is.", seconds=1.0))
    for words in ("I will look.", "seen", "Something is to be known.", "There it is."):
        await opened.shows(words)


async def test_what_is_for_the_person_alone_is_shown_at_once(opened):
    _begin(opened.reply)
    opened.reply.emit(events.PrivateNotice("Open http://127.0.0.1/private now."))
    await opened.shows("http://127.0.0.1/private")
    opened.reply.emit(events.TurnEnded(status=values.TurnStatus.DONE, text="There it is."))


@pytest.mark.parametrize(
    "status", [one for one in values.TurnStatus if one.value not in ("running", "done")]
)
async def test_what_went_wrong_is_said_also_before_anything_began(opened, status):
    opened.reply.emit(events.TurnEnded(status=status, sentence="It could not be done."))
    await opened.shows("It could not be done.")


async def test_nothing_that_code_or_model_may_say_stops_it(opened):
    reply = opened.reply
    _begin(reply)
    for cell, text in enumerate(HOSTILE):
        reply.emit(events.TextAdded(text))
        reply.emit(events.NoticeShown(text, max(cell - 1, 0)))
        reply.emit(events.ProgressChanged(text, 0.5))
        _run(reply, cell, text, *_every_output(text))
        reply.emit(events.StepStarted(cell + 2))
    name = "".join(HOSTILE[1:4]).replace("/", "")
    _file(reply, len(HOSTILE) - 1, name, b"x")
    reply.emit(events.TextAdded("There it is."))
    reply.emit(events.TurnEnded(status=values.TurnStatus.DONE, text="There it is."))
    await opened.shows("There it is.")


async def test_code_runs_if_a_person_lets_it_and_gets_what_they_answer(opened):
    reply = opened.reply
    _begin(reply)
    allowed = asyncio.create_task(opened.asker.approval(CODE))
    await opened.shows(CODE)
    await opened.decide(True)
    assert await allowed == CODE
    reply.emit(events.CodeStarted(0, CODE))
    answered = asyncio.create_task(opened.asker.input(QUESTION))
    await opened.shows("Your name?")
    await opened.answer("Ada")
    assert await answered == "Ada"
    reply.emit(events.CodeFinished(0, DONE))
    refused = asyncio.create_task(opened.asker.approval("remove()", cell=1))
    await opened.shows("remove()")
    await opened.decide(False)
    assert await refused is None
    reply.emit(events.TextAdded("There it is."))
    reply.emit(events.TurnEnded(status=values.TurnStatus.DONE, text="There it is."))
    await opened.shows("There it is.")


async def test_a_question_that_is_not_asked_any_more_holds_nothing_up(opened):
    reply = opened.reply
    _begin(reply)
    reply.emit(events.CodeStarted(0, CODE))
    asking = asyncio.create_task(opened.asker.input(QUESTION))
    await opened.shows("Your name?")
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    reply.emit(events.CodeFinished(0, values.Finished(values.Ending.STOPPED, 0.1)))
    reply.emit(events.TurnEnded(status=values.TurnStatus.STOPPED, sentence="It was stopped."))
    await opened.shows("It was stopped.")


async def test_what_comes_after_the_end_is_not_shown(opened):
    reply = opened.reply
    _begin(reply)
    _run(reply, 0, CODE)
    reply.emit(events.TextAdded("There it is."))
    reply.emit(events.TurnEnded(status=values.TurnStatus.DONE, text="There it is."))
    late = "Much too late."
    for told in (
        lambda: reply.emit(events.TextAdded(late)),
        lambda: reply.emit(events.NoticeShown(late, 0)),
        lambda: reply.emit(events.ProgressChanged(late, None)),
        lambda: reply.emit(events.StepStarted(2)),
        lambda: reply.emit(events.CodeDrafted(late)),
        lambda: reply.emit(events.CodeStarted(1, late)),
        lambda: reply.emit(events.OutputShown(1, values.Text("stdout", late))),
        lambda: reply.emit(
            events.CodeFinished(1, values.Finished(values.Ending.TIMED_OUT, 0.1, late))
        ),
        lambda: reply.emit(events.FileMade(1, values.Artifact(late, 1, "0" * 64))),
        lambda: reply.emit(events.TurnEnded(status=values.TurnStatus.FAILED, sentence=late)),
    ):
        # The one that remembers insists on the order.
        with contextlib.suppress(AssertionError):
            told()
    await opened.shows("There it is.")
    await asyncio.sleep(0.3)
    assert late not in opened.shown()
