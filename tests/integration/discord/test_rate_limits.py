"""Limits of Discord that last for minutes: what is left is used, the rest not waited for."""

import asyncio
import time

from tests.fakes.discord_server import worlds
from tests.integration.discord import steps


async def test_a_second_mention_gets_a_thread_too(discord_server, lab, connect, until):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(), asyncio.timeout(30):
        for count in (1, 2, 3):
            asked = discord_server.say(alice, channel, f"{discord_server.bot.mention} no {count}")
            thread = await until(lambda asked=asked: asked.thread)
            await steps.wait_for_answers(thread)
            discord_server.say(alice, thread, "and more")
            await steps.wait_for_answers(thread, 2)
    assert channel.bot_messages == []


async def test_windows_of_minutes_on_every_route_delay_nothing(discord_server, lab, connect, until):
    discord_server.rest.buckets.long_window_seconds = 300.0

    async def script(turn):
        turn.reply.step(1)
        turn.reply.text("Well")
        await asyncio.sleep(0.3)
        turn.make(0, "a.txt", turn.request.text.encode())
        return turn.done(f"Well: {turn.request.text}")

    alice, channel = lab.person("alice"), lab.channel("general")
    direct = discord_server.direct(alice)
    async with connect(script), asyncio.timeout(40):
        thread = await steps.ask_in_thread(discord_server, alice, channel)
        asked = discord_server.say(alice, thread, "more")
        await steps.wait_for_answers(thread, 2)
        discord_server.edit(asked, "more of it")
        await until(lambda: "more of it" in thread.bot_messages[-1].content)
        discord_server.say(alice, channel, f"{discord_server.bot.mention} again")
        await until(lambda: len([m for m in channel.messages.values() if m.thread]) == 2)
        for count in (1, 2):
            discord_server.say(alice, direct, "hello")
            await steps.wait_for_answers(direct, count)
            done = await discord_server.command(alice, channel, "py", {"code": "1"})
            assert "Well: 1" in await steps.wait_for_final_text(done)
            told = await discord_server.command(alice, thread, "interpreter files")
            assert "mnt/data" in await steps.wait_for_final_text(told)


async def test_a_limit_that_is_used_up_is_not_waited_for(discord_server, lab, connect, until):
    discord_server.rest.buckets.max_threads = 2
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(closing_seconds=5.0), asyncio.timeout(60):
        for count in (1, 2):
            asked = discord_server.say(alice, channel, f"{discord_server.bot.mention} no {count}")
            await steps.wait_for_answers(await until(lambda asked=asked: asked.thread))
        began = time.monotonic()
        asked = discord_server.say(alice, channel, f"{discord_server.bot.mention} third")
        await steps.wait_for_answers(channel)
        assert time.monotonic() - began < 5
        assert asked.thread is None
        assert channel.bot_messages[0].reference is asked
        told = await discord_server.command(alice, channel, "interpreter fork")
        assert "can't open a thread" in await steps.wait_for_final_text(told)
        began = time.monotonic()
    # What waits for the limit to end does not keep the bot from ending.
    assert time.monotonic() - began < 4


async def test_typing_that_is_limited_delays_no_answer(discord_server, connect):
    alice = worlds.User("alice")
    direct = discord_server.direct(alice)
    discord_server.plan("POST", "/typing$", kind="limit", retry_after=219.0, is_shared=True)
    async with connect(closing_seconds=5.0), asyncio.timeout(10):
        discord_server.say(alice, direct, "go")
        await steps.wait_for_answers(direct)
        discord_server.say(alice, direct, "on")
        await steps.wait_for_answers(direct, 2)
