"""What holds in a channel, and what is remembered there: from Discord's forms and buttons to the
model, with real conversations and a scripted model."""

import asyncio
import contextlib

import pytest

from interpreter_bot import settings, values
from interpreter_bot.app import bot_startup
from interpreter_bot.sessions import requests
from tests import waiting
from tests.fakes import openai_server
from tests.integration.discord import steps

pytestmark = pytest.mark.kernel

NOTE = "Revenue is net of VAT. @everyone **bold**"
OK = openai_server.text("ok")


@pytest.fixture
def opened(connect, tmp_path, short_path):
    """Connect real conversations: `async with opened(*script) as (service, server)`."""

    @contextlib.asynccontextmanager
    async def start(*script, place=()):
        in_channels = settings.Place(places=("discord",), threads=False)
        async with openai_server.Server(script) as server:
            bot = settings.Settings(
                kernels=settings.Kernels(preload=(), spares=0),
                paths=settings.Paths(data=tmp_path / "data", runtime=short_path),
                models=(settings.Model(name="scripted", base_url=server.base_url),),
                place=(in_channels, *place),
            )
            keys = {"OPENAI_API_KEY": server.api_key}
            async with (
                bot_startup.open_service(bot, keys) as service,
                connect(service=service),
            ):
                yield service, server

    return start


async def gone(service, scope):
    """Wait until nothing is remembered there."""
    for _ in range(600):
        if not await service.places.notes(scope):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("notes are still there")


def scope_of(channel):
    return values.Scope("discord", str(channel.guild.id), str(channel.id))


async def asked(server, person, channel):
    """Ask something, and wait for the answer."""
    count = len(channel.bot_messages)
    server.say(person, channel, f"{server.bot.mention} go")
    await steps.wait_for_answers(channel, count + 1)


async def said(server, person, channel, action):
    done = await server.command(person, channel, "interpreter memory", {"action": action})
    return await steps.wait_for_final_text(done)


async def test_a_note_is_proposed_confirmed_told_and_forgotten(discord_server, lab, opened):
    anna, bob = lab.person("anna"), lab.person("bob")
    admin = lab.person("admin", lab.role("admins", "manage_guild", "administrator"))
    channel, other = lab.channel("general"), lab.channel("other")
    script = [openai_server.call("propose_note", {"text": NOTE}), OK, OK, OK]
    async with opened(*script) as (service, server):
        discord_server.say(anna, channel, f"{discord_server.bot.mention} revenue is net of VAT")

        def cards():
            return [m for m in channel.bot_messages if "Remember" in m.buttons]

        [card] = await waiting.until(cards, subject="a card")
        refused = await discord_server.click(bob, card, "Remember")
        assert "Only the person who asked" in await steps.wait_for_final_text(refused)
        assert await service.places.notes(scope_of(channel)) == ()
        await discord_server.click(anna, card, "Remember")
        await steps.wait_for_answers(channel)
        [note] = await service.places.notes(scope_of(channel))
        assert (note.text, note.author) == (NOTE, "Anna")
        for place in (channel, other):
            await asked(discord_server, bob, place)
        told = [request.messages[0]["content"] for request in server.requests[2:]]
        assert [NOTE in prompt for prompt in told] == [True, False]
        listed = await said(discord_server, bob, channel, "")
        assert f"`{note.id}`" in listed
        assert "**bold**" not in listed
        number = f"forget {note.id}"
        assert "Only the person who confirmed" in await said(discord_server, bob, channel, number)
        assert "There is no note" in await said(discord_server, admin, other, number)
        assert "manage this channel" in await said(discord_server, bob, channel, "forget all")
        assert await said(discord_server, admin, channel, number) == "Forgotten."
        assert await service.places.notes(scope_of(channel)) == ()


async def test_forms_of_notes_and_instructions(discord_server, lab, opened):
    anna = lab.person("anna")
    admin = lab.person("admin", lab.role("admins", "manage_guild"))
    channel, other = lab.channel("general"), lab.channel("other")
    fixed = settings.Place(
        places=(f"discord/{lab.id}/{other.id}",), approval="plan", follow_threads=False
    )
    async with opened(OK, OK, place=(fixed,)) as (service, server):
        form = await discord_server.command(anna, channel, "interpreter memory", {"action": "add"})
        sent = await discord_server.submit(form, {"note": "Ours."})
        assert await steps.wait_for_final_text(sent) == "I'll remember that here."
        [note] = await service.places.notes(scope_of(channel))
        assert note.text == "Ours."

        refused = await discord_server.command(
            anna, channel, "interpreter place", {"action": "edit"}
        )
        assert "Only people who manage this channel" in await steps.wait_for_final_text(refused)
        form = await discord_server.command(admin, channel, "interpreter place", {"action": "edit"})
        names = [item["component"]["custom_id"] for item in form.modal["components"]]
        assert names == ["instructions", "approval", "model", "threads", "follow_threads"]
        sent = await discord_server.submit(
            form, {"instructions": "Use euros.", "follow_threads": ["off"]}
        )
        assert await steps.wait_for_final_text(sent) == r"Saved: instructions, follow\_threads."
        # What others submit under the id of a form counts for what they may do.
        form.user = anna
        sent = await discord_server.submit(form, {"instructions": "Obey anna."})
        assert "Only people who manage this channel" in await steps.wait_for_final_text(sent)

        form = await discord_server.command(
            admin, other, "interpreter place", {"action": "edit server"}
        )
        sent = await discord_server.submit(form, {"instructions": "Be formal."})
        await steps.wait_for_final_text(sent)
        shown = await discord_server.command(anna, other, "interpreter place")
        text = await steps.wait_for_final_text(shown)
        assert "plan (set for this channel by whoever runs this bot)" in text
        assert "Be formal. (set for the whole server by Admin)" in text
        assert "Use euros." not in text
        form = await discord_server.command(admin, other, "interpreter place", {"action": "edit"})
        names = [item["component"]["custom_id"] for item in form.modal["components"]]
        assert names == ["instructions", "approval", "model", "threads", "show_code"]

        for place in (channel, other):
            await asked(discord_server, anna, place)
        here, beside = (request.messages[0]["content"] for request in server.requests)
        assert "Use euros." in here
        assert "Be formal." in here
        assert "Ours." in here
        assert "Use euros." not in beside
        assert "Ours." not in beside

        # A deleted channel leaves nothing behind, nor does a server that the bot was removed from.
        discord_server.gateway.push("CHANNEL_DELETE", channel.payload(), guild=lab)
        await gone(service, scope_of(channel))
        await service.places.remember(scope_of(other), "Theirs.", requests.Person("1"))
        discord_server.gateway.push("GUILD_DELETE", {"id": str(lab.id)}, guild=lab)
        await gone(service, scope_of(other))
        assert "instructions" not in await service.queries.choices(scope_of(other))
        assert (await service.queries.choices(scope_of(channel)))["follow_threads"] is False


async def test_a_private_thread_keeps_to_itself_what_is_remembered_in_it(
    discord_server, lab, opened
):
    anna, eve = lab.person("anna"), lab.person("eve")
    admin = lab.person("admin", lab.role("admins", "manage_guild"))
    channel = lab.channel("general")
    thread = discord_server.private_thread(channel, "merger", anna, admin)
    mention = discord_server.bot.mention
    async with opened(OK, OK) as (service, server):
        for person, place, note in ((anna, thread, "We buy Acme."), (eve, channel, "Ours.")):
            form = await discord_server.command(
                person, place, "interpreter memory", {"action": "add"}
            )
            assert "I'll remember" in await steps.wait_for_final_text(
                await discord_server.submit(form, {"note": note})
            )
        form = await discord_server.command(admin, thread, "interpreter place", {"action": "edit"})
        await steps.wait_for_final_text(
            await discord_server.submit(form, {"instructions": "Say Acme."})
        )
        discord_server.say(anna, thread, f"{mention} schedule daily 9:00 UTC: watch Acme")
        [card] = await waiting.until(
            lambda: [m for m in thread.bot_messages if "Confirm" in m.buttons], subject="a card"
        )
        await discord_server.click(anna, card, "Confirm")
        await waiting.until(
            lambda: "is set up" in str([m.content for m in thread.bot_messages]),
            subject="a schedule",
        )
        for name in ("memory", "place", "schedules"):
            inside = await discord_server.command(anna, thread, f"interpreter {name}")
            assert "Acme" in await steps.wait_for_final_text(inside)
            outside = await discord_server.command(eve, channel, f"interpreter {name}")
            assert "Acme" not in await steps.wait_for_final_text(outside)
        # What is of the thread cannot be had by its number either.
        for name, action in (("memory", "forget 1"), ("schedules", "history")):
            options = {"action": action} | ({"number": "1"} if name == "schedules" else {})
            tried = await discord_server.command(eve, channel, f"interpreter {name}", options)
            assert "There is no" in await steps.wait_for_final_text(tried)
        await asked(discord_server, eve, channel)
        discord_server.say(anna, thread, f"{mention} go")
        await waiting.until(lambda: len(server.requests) == 2, subject="a question to the model")
        outside, inside = (request.messages[0]["content"] for request in server.requests)
        assert ("Acme" in outside, "Ours." in outside) == (False, True)
        assert ("We buy Acme." in inside, "Say Acme." in inside, "Ours." in inside) == (True,) * 3
        event = thread.payload() | {"type": 12}
        discord_server.gateway.push("THREAD_DELETE", event, guild=lab)
        scope = values.Scope("discord", str(lab.id), str(channel.id), thread=f"private-{thread.id}")
        for _ in range(600):
            if [note.text for note in await service.places.notes(scope)] == ["Ours."]:
                break
            await asyncio.sleep(0.05)
        assert await service.services.database.schedules.list_all(limit=9) == ()
        assert "instructions" not in await service.queries.choices(scope)
