"""Schedules on Discord: set up by a card, run where they were set up."""

import re

from interpreter_bot import events, values
from tests.fakes.discord_server import worlds
from tests.integration.discord import steps


async def set_up(server, person, channel, until, text):
    """Set up a schedule in a new thread of a channel, or in a thread; return that."""
    server.say(person, channel, f"{server.bot.mention} schedule {text}")
    thread = channel if channel.is_thread else await steps.wait_for_thread(channel)
    await until(lambda: any("Confirm" in one.buttons for one in thread.bot_messages))
    (card,) = [one for one in thread.bot_messages if "Confirm" in one.buttons]
    assert "Set up this schedule?" in words(thread)
    assert "Next: " in card.content
    await server.click(person, card, "Confirm")
    await until(lambda: "is set up" in words(thread))
    return thread


async def fire(service, until):
    """Let it be the time of the first schedule."""
    (schedule,) = await service.services.database.schedules.list_all(limit=9)
    service.schedules.now = lambda: schedule.due
    await service.schedules.fire()
    await until(lambda: not service.schedules.run_tasks)


async def test_a_schedule_runs_where_it_was_set_up(discord_server, lab, connect, service, until):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(service=service):
        thread = await set_up(discord_server, alice, channel, until, "daily 9:00 UTC: say hello")
        await service.wait_until_idle()
        await fire(service, until)
        assert "You said: say hello" in words(thread)
        assert "Schedule 1: say hello" in words(thread)
        assert service.handled_requests[-1].person.id == str(alice.id)


def words(channel):
    return "\n".join(message.content for message in channel.bot_messages)


EVIL = (
    "say @everyone <@1> <@&2> [Log in](https://evil.example/x) https://evil.example/y "
    "\u202egnp\u2066 `a` ```b``` **c** || d"
)


async def test_hostile_words_of_schedules_notify_nobody_and_lead_nowhere(
    discord_server, lab, connect, service, until
):
    async def answer(turn):
        turn.reply.step(1)
        turn.reply.text("Done \u202egnp @everyone.")
        return turn.done("Done.")

    async def fail(turn):
        turn.reply.step(1)
        return events.TurnEnded(status=values.TurnStatus.FAILED, sentence=EVIL)

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(service=service):
        thread = await set_up(discord_server, alice, channel, until, f"daily 9:00 UTC: {EVIL}")
        await service.wait_until_idle()
        for script in (answer, fail, fail, fail):
            service.script = script
            await fire(service, until)
        listed = []
        for options in ({}, {"action": "history", "number": "1"}):
            done = await discord_server.command(alice, thread, "interpreter schedules", options)
            listed.append(await steps.wait_for_final_text(done))
    shown = [message.content for message in thread.bot_messages] + listed
    assert "It failed 3 times in a row" in "\n".join(shown)
    for text in shown:
        assert not set(text) & set("\u202e\u2066")
        outside = re.sub(r"```.*?```|`[^`\n]+`", "", text, flags=re.DOTALL)
        assert "@everyone" not in outside
        assert not re.search(r"(?<!\\)<@&?[12]", outside)
        assert "](https://evil" not in outside
        assert "https://evil" not in outside
    assert all(message.pings <= {alice.id} for message in thread.bot_messages)


async def test_a_schedule_of_ten_thousand_characters_is_refused_in_a_sentence(
    discord_server, lab, connect, service
):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(service=service):
        done = await discord_server.command(
            alice, channel, "interpreter schedule", {"text": f"daily 9:00 UTC: {'x' * 10_000}"}
        )
        assert "at most 2,000 characters" in await steps.wait_for_final_text(done)


async def test_who_left_a_private_thread_has_no_schedule_running(
    discord_server, lab, connect, service, until
):
    discord_server.expect(10007)
    alice, bob = lab.person("alice"), lab.person("bob")
    thread = discord_server.private_thread(lab.channel("general"), "secret", alice, bob)
    async with connect(service=service):
        text = "daily 9:00 UTC: say hello"
        await set_up(discord_server, alice, thread, until, text)
        await service.wait_until_idle()
        await fire(service, until)
        assert service.handled_requests[-1].text == "say hello"
        thread.invited.remove(alice)
        count = len(service.handled_requests)
        await fire(service, until)
        assert len(service.handled_requests) == count
        await until(lambda: "no longer in this channel" in words(thread))


async def test_the_card_of_a_bot_that_was_killed_is_confirmed_in_the_next(
    discord_server, lab, connect, service, until
):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(service=service):
        thread = await steps.ask_in_thread(discord_server, alice, channel)
        key, number = service.handled_requests[0].key, str(int(service.handled_requests[0].id) + 1)
        left = discord_server.post(worlds.Message(thread, discord_server.bot, "a card"))
        about = {"nonce": "n", "digest": "d", "first_tried_at": 0.0, "message": str(left.id)}
        await service.deliveries.put("discord", number, 0, **about)
        text = "/schedule daily 9:00 UTC: say hello"
        await service.go_on(key, text, person=str(alice.id), request_id=number)
        await until(lambda: "Set up this schedule?" in words(thread))
        assert "a card" not in words(thread)
        [card] = [message for message in thread.bot_messages if "Confirm" in message.buttons]
        await discord_server.click(alice, card, "Confirm")
        await until(lambda: "is set up" in words(thread))
