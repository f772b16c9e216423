"""Connections come and go; requests are neither lost nor repeated."""

import asyncio

import pytest

from interpreter_bot import errors, settings
from interpreter_bot.platforms.discord import api_errors, startup
from tests.fakes.discord_server import gateways, worlds
from tests.integration.discord import conftest, steps


@pytest.mark.parametrize("how", ["close", "abort", "reconnect"])
async def test_a_dropped_connection_is_resumed(discord_server, lab, connect, until, how):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect() as service:
        thread = await steps.ask_in_thread(discord_server, alice, channel)
        if how == "close":
            await discord_server.gateway.drop(code=4000)
        elif how == "abort":
            discord_server.gateway.abort()
        else:
            await discord_server.gateway.ask_to_reconnect()
        discord_server.say(alice, thread, "written meanwhile")
        await steps.wait_for_answers(thread, 2)
        await until(lambda: discord_server.gateway.resumes)
    assert [request.text for request in service.handled_requests] == ["hello", "written meanwhile"]
    assert len(discord_server.gateway.identifies) == 1


async def test_a_session_that_is_lost_is_caught_up_with(discord_server, lab, connect, until):
    alice, channel, quiet = lab.person("alice"), lab.channel("general"), lab.channel("quiet")
    direct = discord_server.direct(alice)
    async with connect() as service:
        thread = await steps.ask_in_thread(discord_server, alice, channel)
        discord_server.say(alice, direct, "directly")
        await steps.wait_for_answers(direct)
        discord_server.gateway.forget()
        discord_server.say(alice, thread, "in the thread")
        discord_server.say(alice, quiet, f"{discord_server.bot.mention} in the channel")
        discord_server.say(alice, direct, "directly again")
        discord_server.say(alice, quiet, "not for it")
        await until(lambda: len(service.handled_requests) == 5, seconds=30)
        await steps.wait_for_answers(thread, 2)
        await steps.wait_for_answers(direct, 2)
        await steps.wait_for_answers(await steps.wait_for_thread(quiet))
    assert {request.text for request in service.handled_requests} == {
        "hello",
        "directly",
        "in the thread",
        "in the channel",
        "directly again",
    }
    assert len(discord_server.gateway.identifies) == 2


async def test_intents_are_as_few_as_possible(discord_server, lab, connect):
    async with connect():
        pass
    (told,) = discord_server.gateway.identifies
    assert told["intents"] == (
        gateways.GUILDS
        | gateways.GUILD_MESSAGES
        | gateways.DIRECT_MESSAGES
        | gateways.MESSAGE_CONTENT
    )


async def test_without_the_content_intent_it_says_what_is_lost(
    discord_server, lab, connect, until, caplog
):
    discord_server.gateway.refused_intents.add("message_content")
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect() as service:
        assert not service.bot.has_content
        assert "does not grant the message-content intent" in caplog.text
        assert discord_server.gateway.early_identifies == 0
        thread = await steps.ask_in_thread(discord_server, alice, channel)
        discord_server.say(alice, thread, "unreadable")
        discord_server.say(alice, thread, "unreadable too")
        discord_server.say(alice, thread, f"{discord_server.bot.mention} readable")
        await until(lambda: len(thread.bot_messages) == 3)
        await steps.wait_for_answers(thread, 3)
        told = await discord_server.command(alice, channel, "interpreter help")
        assert "message-content" in await steps.wait_for_final_text(told)
    assert "can only read messages here that mention me" in thread.bot_messages[1].content
    assert [request.text for request in service.handled_requests] == ["hello", "readable"]


async def test_shards(discord_server, lab, connect, until):
    discord_server.rest.shards = 2
    while (lab.id >> 22) % 2 == 0:
        lab.id += 1 << 22
        lab.everyone.id = lab.id
    alice, channel = lab.person("alice"), lab.channel("general")
    direct = discord_server.direct(alice)
    async with connect(sharding=True) as service:
        await until(lambda: len(discord_server.gateway.identifies) == 2, seconds=15)
        thread = await steps.ask_in_thread(discord_server, alice, channel)
        discord_server.say(alice, direct, "directly")
        await steps.wait_for_answers(direct)
        await discord_server.gateway.drop()
        discord_server.say(alice, thread, "after a drop")
        await steps.wait_for_answers(thread, 2)
    assert [tuple(t["shard"]) for t in discord_server.gateway.identifies] == [(0, 2), (1, 2)]
    assert len(service.handled_requests) == 3


async def _fail(server, service, **chosen):
    token = chosen.pop("token", "wrong")
    timing = startup.Timing(login_seconds=chosen.pop("login_seconds", 60.0))
    bot = settings.Discord(**chosen)
    with pytest.raises(api_errors.DiscordError) as caught:
        async with startup.connected_platform(service, bot, token=token, timing=timing):
            pass
    assert "wrong" not in str(caught.value)
    return caught.value


async def test_a_wrong_token_is_said_so(discord_server, service):
    refused = await _fail(discord_server, service)
    assert "token" in str(refused)
    assert not isinstance(refused, errors.PlatformLostError)


async def test_an_unreachable_discord_is_said_so(discord_server, service, monkeypatch):
    import discord

    monkeypatch.setattr(discord.http.Route, "BASE", "http://127.0.0.1:9/api/v10")
    assert "cannot be reached" in str(await _fail(discord_server, service))


async def test_a_discord_that_is_silent_is_not_waited_for(discord_server, service):
    discord_server.rest.delay_seconds = 5
    assert "in time" in str(await _fail(discord_server, service, login_seconds=0.3))


@pytest.mark.parametrize("how", ["is_refusing", "is_silent"])
async def test_a_gateway_that_takes_nobody_may_be_tried_again(discord_server, service, how):
    setattr(discord_server.gateway, how, True)
    lost = await _fail(discord_server, service, token=discord_server.token, login_seconds=5)
    assert isinstance(lost, errors.PlatformLostError)


def _unreadable(server, alice, channel):
    """A message as the library does not expect it: seen with other servers than Discord's."""
    told = worlds.Message(channel, alice, "of a new kind").payload()
    return told | {"interaction": {"id": "1", "type": 2, "user": alice.payload}}


async def test_an_event_that_cannot_be_read_costs_only_itself(
    discord_server, lab, connect, until, caplog
):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect() as service:
        told = _unreadable(discord_server, alice, channel)
        discord_server.gateway.push("MESSAGE_CREATE", told, guild=lab)
        discord_server.gateway.push("GUILD_CREATE", {"id": None}, guild=lab)
        await steps.ask_in_thread(discord_server, alice, channel)
    assert [request.text for request in service.handled_requests] == ["hello"]
    assert "an event could not be parsed: MESSAGE_CREATE" in caplog.text
    assert len(discord_server.gateway.identifies) == 1


async def test_what_was_missed_around_a_message_that_cannot_be_read_is_heard(
    discord_server, lab, connect, until, monkeypatch, caplog
):
    alice, odd, plain = lab.person("alice"), lab.channel("odd"), lab.channel("plain")
    mention = discord_server.bot.mention
    discord_server.say(alice, odd, f"{mention} before it")
    unreadable = discord_server.say(alice, odd, f"{mention} itself")
    unreadable.extra_fields = {"interaction": {"id": "1", "type": 2, "user": alice.payload}}
    discord_server.say(alice, odd, f"{mention} after it")
    discord_server.say(alice, plain, f"{mention} elsewhere")
    async with connect() as service:
        await until(lambda: len(service.handled_requests) == 3)
        await steps.wait_for_answers(await steps.wait_for_thread(plain))
    assert {request.text for request in service.handled_requests} == {
        "before it",
        "after it",
        "elsewhere",
    }
    assert "could not be read" in caplog.text


async def test_a_server_that_is_told_of_late_is_caught_up_with(discord_server, lab, connect):
    late = discord_server.guild("Late")
    late.late_seconds = 1.0
    alice, bob = lab.person("alice"), late.person("bob")
    near, far = lab.channel("near"), late.channel("far")
    discord_server.say(alice, near, f"{discord_server.bot.mention} one")
    discord_server.say(bob, far, f"{discord_server.bot.mention} two")
    async with connect() as service:
        await steps.wait_for_answers(await steps.wait_for_thread(near))
        await steps.wait_for_answers(await steps.wait_for_thread(far))
    # One second passes between them, which on a busy machine is nothing.
    assert {request.text for request in service.handled_requests} == {"one", "two"}


async def test_what_is_no_event_at_all_ends_it_when_answers_stand(discord_server, lab, connect):
    async def slow(turn):
        turn.reply.step(1)
        await discord_server.gateway.send_raw("no JSON")
        await asyncio.sleep(0.5)
        return await conftest.echo_later(turn)

    alice = worlds.User("alice")
    direct = discord_server.direct(alice)

    async def until_it_ends():
        async with connect(slow):
            discord_server.say(alice, direct, "one")
            await asyncio.sleep(30)

    with pytest.raises(ValueError, match="Expecting value"):
        await until_it_ends()
    assert [message.content for message in direct.bot_messages] == ["You said: one"]


async def test_a_token_that_is_taken_back_ends_it_with_a_reason(discord_server, lab, connect):
    async def until_it_ends():
        async with connect():
            await discord_server.gateway.drop(code=4004)
            await asyncio.sleep(30)

    with pytest.raises(api_errors.DiscordError, match="token"):
        await until_it_ends()


async def test_serving_says_as_whom(discord_server, lab, service):
    discord_server.gateway.refused_intents.add("message_content")
    bot = settings.Discord()
    async with startup.serve(service, bot, token=discord_server.token) as told:
        assert told.startswith("connected as interpreter")
        assert "message-content intent" in told
        assert discord_server.token not in told


async def test_leaving_lets_answers_be_finished(discord_server, lab, connect, until):
    async def slow(turn):
        turn.reply.step(1)
        await asyncio.sleep(1)
        return await conftest.echo_later(turn)

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(slow) as service:
        discord_server.say(alice, channel, f"{discord_server.bot.mention} one")
        thread = await steps.wait_for_thread(channel)
        await until(lambda: service.handled_requests)
    assert thread.bot_messages[0].content == "You said: one"


async def test_leaving_does_not_wait_for_ever(discord_server, lab, connect, until):
    async def stuck(turn):
        await asyncio.sleep(60)

    alice = worlds.User("alice")
    direct = discord_server.direct(alice)
    loop = asyncio.get_running_loop()
    async with connect(stuck, closing_seconds=0.3) as service:
        discord_server.say(alice, direct, "one")
        await until(lambda: service.handled_requests)
        started = loop.time()
    assert loop.time() - started < 30
