"""Somebody changes, or deletes, a message that was a request."""

import asyncio

import pytest

from tests.integration.discord import steps


async def test_an_edited_message_is_run_again_in_place(discord_server, lab, connect, until):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect() as service:
        asked = discord_server.say(alice, channel, f"{discord_server.bot.mention} one")
        thread = await steps.wait_for_thread(channel)
        await steps.wait_for_answers(thread)
        discord_server.unfurl(asked)
        discord_server.edit(asked, f"{discord_server.bot.mention} two")
        await until(lambda: thread.bot_messages[0].content == "You said: two")
    assert len(thread.bot_messages) == 1
    assert [request.text for request in service.handled_requests] == ["one", "two"]
    assert service.handled_requests[0].key == service.handled_requests[1].key


@pytest.mark.parametrize("refused", [set(), {"message_content"}], ids=["seen", "hidden"])
async def test_an_edit_that_does_not_address_it_any_more_lets_the_answer_stand(
    discord_server, lab, connect, refused
):
    discord_server.gateway.refused_intents |= refused
    alice, channel = lab.person("alice"), lab.channel("general")
    mention = discord_server.bot.mention
    async with connect() as service:
        asked = discord_server.say(alice, channel, f"{mention} one")
        thread = await steps.wait_for_thread(channel)
        await steps.wait_for_answers(thread)
        discord_server.edit(asked, "people among themselves")
        discord_server.say(alice, thread, f"{mention} two")
        await steps.wait_for_answers(thread, 2)
    assert [message.content for message in thread.bot_messages] == [
        "You said: one",
        "You said: two",
    ]
    assert [request.text for request in service.handled_requests] == ["one", "two"]


async def _opening(discord_server, until, alice, channel, text):
    """Ask something, and return while its thread is being opened, which takes a second."""
    fault = discord_server.plan("POST", "/threads$", status=502)
    asked = discord_server.say(alice, channel, f"{discord_server.bot.mention} {text}")
    await until(lambda: not fault.times)
    return asked


async def test_an_edit_while_the_thread_is_being_opened_counts(discord_server, lab, connect, until):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect() as service:
        asked = await _opening(discord_server, until, alice, channel, "one")
        discord_server.edit(asked, f"{discord_server.bot.mention} two")
        thread = await steps.wait_for_thread(channel)
        await steps.wait_for_answers(thread)
    assert [message.content for message in thread.bot_messages] == ["You said: two"]
    assert [request.text for request in service.handled_requests] == ["two"]


@pytest.mark.parametrize("is_bulk", [False, True])
async def test_a_deleted_message_stops_its_turn(discord_server, lab, connect, until, is_bulk):
    async def script(turn):
        turn.reply.step(1)
        turn.reply.text("Working.")
        await asyncio.sleep(60)

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(script):
        asked = discord_server.say(alice, channel, f"{discord_server.bot.mention} one")
        thread = await steps.wait_for_thread(channel)
        await until(lambda: thread.bot_messages)
        (discord_server.delete_all if is_bulk else discord_server.delete)(asked)
        await until(lambda: "⏹️ Stopped." in thread.bot_messages[-1].content)
