"""What holds in a channel, and what is remembered there: from Slack's forms and buttons to the
model, with real conversations and a scripted model."""

import pytest

from interpreter_bot import settings, values
from tests.fakes import openai_server
from tests.integration.slack.test_whole import opened
from tests.integration.slack.worlds import has_button

pytestmark = pytest.mark.kernel

NOTE = "Revenue is net of VAT. <!channel> <@U3> *bold*"
CHANNEL = values.Scope("slack", "T1", "C1")
OK = openai_server.text("ok")


def prompts(server):
    return [request.messages[0]["content"] for request in server.requests]


async def finished(slack, channel, ts):
    await slack.until(lambda: slack.status(channel, ts) == "active", seconds=30)


async def told(slack, count):
    """Wait for so many private answers to commands; the last."""
    await slack.until(lambda: len(slack.world.responses) >= count)
    return str(slack.world.responses[-1]["blocks"])


async def whispered(slack, count):
    await slack.until(lambda: len(slack.world.ephemerals) >= count)
    return str(slack.world.ephemerals[-1]["blocks"])


async def opened_form(slack, user, channel, words):
    count = len(slack.world.modals)
    slack.command(user, channel, "/interpreter", words)
    await slack.until(lambda: len(slack.world.modals) > count)
    return slack.world.modals[-1]


async def test_a_note_is_proposed_confirmed_told_and_forgotten(slack, tmp_path, short_path):
    script = [openai_server.call("propose_note", {"text": NOTE}), OK, OK, OK, OK]
    async with opened(slack, tmp_path, short_path, *script) as (service, server):
        ts = slack.say("U1", "C1", "<@UBOT> revenue is net of VAT")
        [card] = await slack.until(
            lambda: [m for m in slack.replies("C1", ts) if "Remember this here?" in m["text"]],
            seconds=30,
        )
        assert has_button(card, "run")
        # Another member answers nothing.
        slack.click("U2", "C1", card["ts"], "run")
        assert "Only the person who asked" in await told(slack, 1)
        assert await service.places.notes(CHANNEL) == ()
        # Nor does who asked, once they may no longer use the bot.
        team = values.Scope("slack", "T1")
        await service.places.choose(team, "allowed_people", ["U2"])
        slack.click("U1", "C1", card["ts"], "run")
        assert "have access to this bot" in await told(slack, 2)
        await service.places.choose(team, "allowed_people", None)
        slack.click("U1", "C1", card["ts"], "run")
        await finished(slack, "C1", ts)
        [note] = await service.places.notes(CHANNEL)
        assert (note.text, note.author) == (NOTE, "Person U1")
        for channel in ("C1", "C2"):
            asked = slack.say("U2", channel, "<@UBOT> go")
            await finished(slack, channel, asked)
        assert [NOTE in prompt for prompt in prompts(server)[1:]] == [False, True, False]
        # Listed as text that notifies nobody (the loopback Slack counts what would).
        slack.command("U2", "C1", "/interpreter", "memory")
        assert "Revenue is net of VAT" in await told(slack, 3)
        assert not slack.pings
        slack.command("U2", "C1", "/interpreter", f"memory forget {note.id}")
        assert "Only the person who confirmed this note" in await told(slack, 4)
        # Its number means nothing in another channel, not even to administrators.
        for words in (f"memory forget {note.id}", f"memory edit {note.id}"):
            slack.command("UADMIN", "C2", "/interpreter", words)
            assert "There is no note" in await told(slack, len(slack.world.responses) + 1)
        slack.command("U2", "C1", "/interpreter", "memory forget all")
        assert "Only admins" in await told(slack, 7)
        assert len(await service.places.notes(CHANNEL)) == 1
        slack.command("U1", "C1", "/interpreter", f"memory forget {note.id}")
        assert "Forgotten." in await told(slack, 8)
        asked = slack.say("U1", "C1", "<@UBOT> go")
        await finished(slack, "C1", asked)
        assert NOTE not in prompts(server)[-1]


async def test_notes_are_added_and_edited_in_forms(slack, tmp_path, short_path):
    async with opened(slack, tmp_path, short_path) as (service, _):
        form = await opened_form(slack, "U2", "C1", "memory add")
        slack.submit("U2", form, note="Ours is *this*")
        assert "I'll remember that here." in await whispered(slack, 1)
        [note] = await service.places.notes(CHANNEL)
        form = await opened_form(slack, "U2", "C1", f"memory edit {note.id}")
        assert form["blocks"][0]["element"]["initial_value"] == "Ours is *this*"
        # Who got hold of another's form changes nothing by it.
        slack.submit("U1", form, note="Theirs")
        assert "Only the person who confirmed" in await whispered(slack, 2)
        slack.submit("U2", form, note="Ours")
        assert "The note is changed." in await whispered(slack, 3)
        assert [note.text for note in await service.places.notes(CHANNEL)] == ["Ours"]
        slack.command("U1", "C1", "/interpreter", "memory add workspace")
        assert "Only admins" in await told(slack, 1)


async def test_instructions_are_edited_by_administrators_and_told_with_their_origin(
    slack, tmp_path, short_path
):
    async with opened(slack, tmp_path, short_path, OK, OK, OK) as (service, server):
        slack.command("U1", "C1", "/interpreter", "place edit")
        assert "Only admins can change that for a channel." in await told(slack, 1)
        form = await opened_form(slack, "UADMIN", "C1", "place edit")
        names = [block["block_id"] for block in form["blocks"]]
        assert names == ["instructions", "approval", "model", "follow_threads", "show_code"]
        slack.submit("U1", form, instructions="Obey U1.")
        assert "Only admins" in await whispered(slack, 1)
        slack.submit("UADMIN", form, instructions="Use euros.\nBe brief.", approval="plan")
        assert "Saved: instructions, approval." in await whispered(slack, 2)
        wide = await opened_form(slack, "UADMIN", "C2", "place edit workspace")
        slack.submit("UADMIN", wide, instructions="Be formal.")
        await whispered(slack, 3)
        slack.command("U1", "C1", "/interpreter", "place")
        shown = await told(slack, 2)
        assert "Use euros. Be brief. (set for this channel by Person UADMIN)" in shown
        assert "Be formal. (set for the whole server by Person UADMIN)" in shown
        assert "`approval`: plan (set for this channel by Person UADMIN)" in shown
        assert "`model`: default (default)" in shown
        for channel in ("C1", "C2", "DU1"):
            asked = slack.say("U1", channel, "<@UBOT> go")
            await finished(slack, channel, asked)
        inside, beside, direct = prompts(server)
        assert r"Use euros.\nBe brief." in inside
        assert "Be formal." in inside
        assert "Use euros." not in beside + direct
        # What is not changed keeps who chose it; what is emptied is gone.
        again = await opened_form(slack, "UADMIN", "C1", "place edit")
        slack.submit("UADMIN", again, instructions="")
        assert "Saved: instructions." in await whispered(slack, 4)
        assert "approval" in await service.queries.choices(CHANNEL)
        slack.say("UADMIN", "C1", "<@UBOT> place edit")
        await slack.until(lambda: "open a form" in str(slack.world.messages))


async def test_a_direct_conversation_belongs_to_its_person(slack, tmp_path, short_path):
    async with opened(slack, tmp_path, short_path) as (service, _):
        form = await opened_form(slack, "U1", "DU1", "place edit")
        slack.submit("U1", form, instructions="Mine.")
        await slack.until(lambda: "Saved" in str(slack.world.messages))
        choices = await service.queries.choices(values.Scope("slack", "T1", "DU1"))
        assert choices == {"instructions": "Mine."}


async def test_what_the_operator_set_is_read_only_in_chat(slack, tmp_path, short_path):
    channel = settings.Place(places=("slack/T1/C1",), instructions="Use euros.", approval="plan")
    workspace = settings.Place(places=("slack/T1",), follow_threads=False)
    groups = {"place": (channel, workspace)}
    async with opened(slack, tmp_path, short_path, groups=groups) as (service, _):
        slack.command("U1", "C1", "/interpreter", "place")
        shown = await told(slack, 1)
        assert "Use euros. (set for this channel by whoever runs this bot)" in shown
        form = await opened_form(slack, "UADMIN", "C1", "place edit")
        names = {block["block_id"] for block in form["blocks"]}
        assert names == {"approval", "model", "follow_threads", "show_code"}
        slack.command("UADMIN", "C1", "/interpreter", "follow off workspace")
        assert "can't be changed here" in await told(slack, 2)
        # Of approvals, the strictest counts.
        slack.submit("UADMIN", form, approval="every")
        assert "Saved: approval." in await whispered(slack, 1)
        slack.command("U1", "C1", "/interpreter", "place")
        assert "`approval`: every (set for this channel by Person UADMIN)" in await told(slack, 3)
        slack.command("UADMIN", "C1", "/interpreter", "approval never channel")
        shown = await told(slack, 4)
        assert "weaker than another setting" in shown
        assert "In effect for you here: plan." in shown
        # The home tab's form stores what was changed in it, and no more.
        slack.open_home("UADMIN")
        await slack.until(lambda: slack.world.homes.get("UADMIN"))
        slack.click_home("UADMIN", "home_change")
        view = (await slack.until(lambda: slack.world.modals[1:]))[0]
        slack.submit("UADMIN", view, allowed_people=["U1"])
        await slack.until(lambda: "<@U1>" in str(slack.world.homes["UADMIN"]))
        choices = await service.places.choices(values.Scope("slack", "T1"))
        assert [(one.name, one.is_fixed) for one in choices.entries] == [
            ("follow_threads", True),
            ("allowed_people", False),
        ]
