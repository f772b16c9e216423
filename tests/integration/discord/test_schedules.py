"""Schedules on Discord: set up by a card, run where they were set up."""

from tests.integration.discord import steps


async def test_a_schedule_runs_where_it_was_set_up(discord_server, lab, connect, service, until):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(service=service):
        text = f"{discord_server.bot.mention} schedule daily 9:00 UTC: say hello"
        discord_server.say(alice, channel, text)
        thread = await steps.thread_in(channel)
        await until(lambda: any("Set up this schedule?" in one.content for one in thread.of_bots))
        (card,) = [one for one in thread.of_bots if "Set up this schedule?" in one.content]
        assert "Next: " in card.content
        await discord_server.click(alice, card, "Confirm")
        await until(lambda: "is set up" in words(thread))
        await service.idle()
        (schedule,) = await service.services.database.schedules.all(limit=9)
        service.schedules.now = lambda: schedule.due
        await service.schedules.fire()
        await until(lambda: "You said: say hello" in words(thread))
        await until(lambda: not service.schedules._tasks)
        assert "Schedule 1: say hello" in words(thread)
        assert service.handled[-1].person.id == str(alice.id)


def words(channel):
    return "\n".join(message.content for message in channel.of_bots)
