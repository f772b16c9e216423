"""What Discord refuses for good, or for long: the rest goes on."""

import asyncio

import pytest

from interpreter_bot import errors
from tests.fakes.discord_server import worlds
from tests.integration.discord import conftest, steps


async def test_typing_that_is_limited_holds_nobody_up(discord_server, connect):
    async def script(turn):
        turn.reply.step(1)
        turn.reply.text("Wait.")
        await asyncio.sleep(0.6)
        return await conftest.echo_later(turn)

    alice = worlds.User("alice")
    direct = discord_server.direct(alice)
    # One second after its first try typing is told that everything is limited; the last edit is
    # on its way already and succeeds, while typing still waits for the limit's end.
    discord_server.plan("POST", "/typing$", status=502)
    fault = discord_server.plan("POST", "/typing$", kind="limit", is_global=True, retry_after=2.0)
    discord_server.plan("PATCH", r"/messages/\d+$", status=502)
    async with connect(script, pace_seconds=5.0) as service:
        discord_server.say(alice, direct, "one")
        await steps.wait_for_answers(direct)
        discord_server.say(alice, direct, "two")
        await steps.wait_for_answers(direct, 2)
    assert fault.times == 0
    assert len(service.handled_requests) == 2


async def test_it_does_not_insist_while_discord_shuts_it_out(discord_server, connect, until):
    async def script(turn):
        turn.reply.step(1)
        for number in range(30):
            turn.reply.text(f"{number} ")
            await asyncio.sleep(0.1)
        fault.times = 0
        return turn.done("There.")

    alice = worlds.User("alice")
    direct = discord_server.direct(alice)
    fault = discord_server.plan("POST", r"/messages$", kind="ban", times=1000)
    async with connect(script):
        discord_server.say(alice, direct, "go")
        await until(lambda: direct.bot_messages)
        await steps.wait_for_answers(direct)
    sent = [
        path for _, method, path in discord_server.rest.request_log if path.endswith("/messages")
    ]
    assert 3 <= len(sent) <= 8
    assert [message.content for message in direct.bot_messages] == ["There."]


async def test_without_permission_to_read_what_was_before_it_answers_without_replying(
    discord_server, lab, connect
):
    # A bot that is still catching up asks for the channel's messages, too.
    discord_server.expect(160002, 50013)
    denied = {"create_public_threads", "read_message_history"}
    alice, channel = lab.person("alice"), lab.channel("strict", denied=denied)
    async with connect():
        discord_server.say(alice, channel, f"{discord_server.bot.mention} hello")
        await steps.wait_for_answers(channel)
    assert [message.content for message in channel.bot_messages] == ["You said: hello"]


async def test_in_a_locked_thread_nothing_is_run_on(discord_server, lab, connect):
    discord_server.expect(50083)
    stopped = asyncio.Event()

    async def script(turn):
        turn.reply.step(1)
        thread.is_locked = thread.is_archived = True
        try:
            for number in range(300):
                turn.reply.text(f"{number} ")
                await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            stopped.set()
            raise

    alice, channel = lab.person("alice"), lab.channel("general")
    starter = discord_server.say(alice, channel, "before")
    thread = discord_server.thread(starter, "ours", discord_server.bot)
    async with connect(script):
        discord_server.say(alice, thread, "go")
        await asyncio.wait_for(stopped.wait(), 30)


async def test_a_request_that_waits_where_nothing_can_be_shown_is_withdrawn(
    discord_server, lab, connect, until
):
    discord_server.expect(10003)
    gate = asyncio.Event()

    async def script(turn):
        await gate.wait()
        return await conftest.echo(turn)

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(script) as service:
        discord_server.say(alice, channel, f"{discord_server.bot.mention} one")
        thread = await steps.wait_for_thread(channel)
        await until(lambda: thread.bot_messages)
        fault = discord_server.plan("POST", r"/messages$", status=404, code=10003)
        discord_server.say(alice, thread, "two")
        await until(lambda: not fault.times and service.ends)
        gate.set()
        await steps.wait_for_answers(thread)
        await asyncio.sleep(0.2)
    assert [request.text for request in service.handled_requests] == ["one"]
    assert [message.content for message in thread.bot_messages] == ["You said: one"]


async def test_what_takes_the_place_of_a_message_is_not_seen_beside_it(discord_server, connect):
    async def script(turn):
        turn.reply.step(1)
        turn.reply.text("begun")
        await asyncio.sleep(0.5)
        return turn.done("ended")

    alice = worlds.User("alice")
    direct = discord_server.direct(alice)
    discord_server.plan("PATCH", r"/messages/\d+$", status=400, code=30046)
    async with connect(script):
        discord_server.say(alice, direct, "go")
        await steps.wait_for_answers(direct)
    assert [message.content for message in direct.bot_messages] == ["ended"]


@pytest.mark.parametrize("text", ["", " \n", "```\n```", "\u200b"])
async def test_an_answer_that_says_nothing_is_said_so(discord_server, connect, text):
    async def script(turn):
        turn.reply.step(1)
        if text:
            turn.reply.text(text)
        return turn.done(text)

    alice = worlds.User("alice")
    direct = discord_server.direct(alice)
    async with connect(script):
        discord_server.say(alice, direct, "go")
        await steps.wait_for_answers(direct)
    assert [message.content for message in direct.bot_messages] == ["-# Done."]


async def test_commands_that_discord_does_not_take_cost_only_themselves(
    discord_server, lab, connect, caplog
):
    discord_server.plan("PUT", "/commands$", status=400, code=30032)
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect():
        await steps.ask_in_thread(discord_server, alice, channel)
    assert "refused the list of commands" in caplog.text


async def test_a_database_that_fails_is_said_so(discord_server, connect, until):
    async def choices(scope):
        raise errors.StoreError

    alice = worlds.User("alice")
    direct = discord_server.direct(alice)
    async with connect() as service:
        service.queries.choices = choices
        discord_server.say(alice, direct, "go")
        await until(lambda: direct.bot_messages)
        done = await discord_server.command(alice, direct, "py", {"code": "1"})
        assert "⚠️" in await steps.wait_for_final_text(done)
    assert direct.bot_messages[0].content.startswith("⚠️")
