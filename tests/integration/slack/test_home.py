"""The home tab, and the tab of direct messages."""

from interpreter_bot import values
from tests.fakes import slack_conversations as fake
from tests.integration.slack.worlds import connected


def texts(view):
    return "\n".join(
        block["text"]["text"] for block in view["blocks"] if block["type"] in ("section", "header")
    )


async def test_home_shows_own_sessions_and_not_those_of_others(slack, held, app):
    mine = slack.say("U1", "C1", "<@UBOT> my numbers")
    slack.say("U2", "C1", "<@UBOT> their numbers")
    await slack.until(lambda: len(held._titles) == 2)
    slack.open_home("U1")
    view = await slack.until(lambda: slack.world.homes.get("U1"))
    assert "my numbers" in texts(view)
    assert "their numbers" not in texts(view)
    assert "30.0 MiB of memory" in texts(view)
    assert "1,234 tokens (50,000 allowed)" in texts(view)
    assert "All sessions" not in texts(view)
    slack.click_home("U1", "home_reset")
    await slack.until(lambda: held.calls)
    assert held.calls[0] == ("reset", values.SessionKey("slack", "T1", "C1", mine), False)


async def test_home_chooses_the_model_of_a_session(slack, held, app):
    ts = slack.say("U1", "C1", "<@UBOT> hi")
    await slack.until(lambda: held.ends)
    slack.open_home("U1")
    await slack.until(lambda: slack.world.homes.get("U1"))
    key = values.SessionKey("slack", "T1", "C1", ts)
    slack.click_home("U1", "home_model", value=f"2 T1/C1/{ts}")
    await slack.until(lambda: held._models.get(key) == "cheap")


async def test_admin_sees_all_sessions_and_deletes_one(slack, held, app):
    ts = slack.say("U2", "C1", "<@UBOT> their numbers")
    await slack.until(lambda: held._titles)
    slack.open_home("UADMIN")
    view = await slack.until(lambda: slack.world.homes.get("UADMIN"))
    assert "their numbers" in texts(view)
    slack.click_home("UADMIN", "home_delete")
    await slack.until(lambda: held.calls)
    assert held.calls == [("delete", values.SessionKey("slack", "T1", "C1", ts))]


async def test_only_admins_change_who_may_and_it_holds_at_once(slack, held, app):
    slack.open_home("UADMIN")
    await slack.until(lambda: slack.world.homes.get("UADMIN"))
    slack.click_home("UADMIN", "home_allowed")
    [view] = await slack.until(lambda: slack.world.modals)
    slack.submit("U1", view, field="U1")
    slack.submit("UADMIN", view, field="U2, <@U3>")
    await slack.until(lambda: held.chosen)
    assert held.chosen == {values.Scope("slack", "T1"): {"slack_allowed_people": ["U2", "U3"]}}
    slack.say("U1", "C1", "<@UBOT> hi")
    [told] = await slack.until(lambda: slack.world.ephemerals)
    assert "not on the list" in told["blocks"][0]["text"]
    ts = slack.say("U2", "C1", "<@UBOT> hi")
    await slack.until(lambda: slack.answers("C1", ts))


async def test_session_of_somebody_else_cannot_be_reset_by_a_forged_button(slack, held, app):
    ts = slack.say("U2", "C1", "<@UBOT> theirs")
    await slack.until(lambda: held.ends)
    slack.say("U1", "C1", "<@UBOT> mine")
    await slack.until(lambda: len(held.ends) == 2)
    slack.open_home("U1")
    view = await slack.until(lambda: slack.world.homes.get("U1"))
    for block in view["blocks"]:
        for element in block.get("elements", []):
            if element.get("action_id") == "home_reset":
                element["value"] = f"T1/C1/{ts}"
    published = len(slack.called("views.publish"))
    slack.click_home("U1", "home_reset")
    slack.click_home("U1", "home_refresh")
    await slack.until(lambda: len(slack.called("views.publish")) > published)
    assert held.calls == []


async def test_guest_finds_the_reason_in_their_home(slack, held, app):
    slack.open_home("UGUEST")
    view = await slack.until(lambda: slack.world.homes.get("UGUEST"))
    assert "guests" in texts(view)


async def test_messages_tab_suggests_what_to_say(slack, held, app):
    slack.open_home("U1", "messages")
    [shown] = await slack.until(lambda: slack.world.prompts)
    assert shown["channel"] == "DU1"
    assert len(shown["prompts"]) == 4


async def test_home_fits_with_many_sessions(slack, held):
    held.script = fake.echo
    held.models = tuple(f"model {number}" for number in range(150))
    async with connected(slack, held):
        for number in range(40):
            slack.say("UADMIN", "DUADMIN", f"session {number} " + "long " * 100)
        await slack.until(lambda: len(held.ends) == 40, seconds=30)
        slack.open_home("UADMIN")
        await slack.until(lambda: slack.world.homes.get("UADMIN"))
