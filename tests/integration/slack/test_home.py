"""The home tab, and the tab of direct messages."""

import pytest

from interpreter_bot import values
from tests.fakes import conversations as fake
from tests.integration.slack.worlds import connect_platform


def texts(view):
    return "\n".join(
        block["text"]["text"] for block in view["blocks"] if block["type"] in ("section", "header")
    )


async def test_home_shows_own_sessions_and_not_those_of_others(slack, service, app):
    mine = slack.say("U1", "C1", "<@UBOT> my numbers")
    slack.say("U2", "C1", "<@UBOT> their numbers")
    await slack.until(lambda: len(service.titles) == 2)
    # Requests of two threads come in any order.
    key = values.SessionKey("slack", "T1", "C1", mine)
    await service.spend(key, "U1", values.Usage(input_tokens=1000, output_tokens=234))
    slack.open_home("U1")
    view = await slack.until(lambda: slack.world.homes.get("U1"))
    assert "my numbers" in texts(view)
    assert "their numbers" not in texts(view)
    assert "30 MiB of memory" in texts(view)
    assert "1,234 tokens (50,000 allowed)" in texts(view)
    assert "All sessions" not in texts(view)
    slack.click_home("U1", "home_reset")
    await slack.until(lambda: service.calls)
    assert service.calls[0] == ("reset", key, False)


async def test_home_chooses_the_model_of_a_session(slack, service, app):
    ts = slack.say("U1", "C1", "<@UBOT> hi")
    await slack.until(lambda: service.ends)
    slack.open_home("U1")
    await slack.until(lambda: slack.world.homes.get("U1"))
    key = values.SessionKey("slack", "T1", "C1", ts)
    slack.click_home("U1", "home_model", value=f"2 T1/C1/{ts}/")
    await slack.until(lambda: service.models.get(key) == "cheap")


async def test_admin_sees_all_sessions_and_deletes_one(slack, service, app):
    ts = slack.say("U2", "C1", "<@UBOT> their numbers")
    await slack.until(lambda: service.titles)
    slack.open_home("UADMIN")
    view = await slack.until(lambda: slack.world.homes.get("UADMIN"))
    assert "their numbers" in texts(view)
    slack.click_home("UADMIN", "home_delete")
    await slack.until(lambda: len(slack.replies("C1", ts)) == 2)
    assert service.calls[0] == ("delete", values.SessionKey("slack", "T1", "C1", ts))
    assert await service.recent("slack", "T1") == ()


async def test_admin_kills_a_session_and_its_people_are_told(slack, service, app):
    ts = slack.say("U2", "C1", "<@UBOT> their numbers")
    await slack.until(lambda: service.titles)
    slack.open_home("UADMIN")
    await slack.until(lambda: slack.world.homes.get("UADMIN"))
    slack.click_home("UADMIN", "home_kill")
    _, told = await slack.until(
        lambda: len(slack.replies("C1", ts)) == 2 and slack.replies("C1", ts)
    )
    assert service.calls == [
        ("reset", values.SessionKey("slack", "T1", "C1", ts), False),
        ("stop", values.SessionKey("slack", "T1", "C1", ts)),
    ]
    assert "An admin ended this session" in str(told["blocks"])


async def access_form(slack):
    """Open it as an admin."""
    slack.open_home("UADMIN")
    await slack.until(lambda: slack.world.homes.get("UADMIN"))
    opened = len(slack.world.modals)
    slack.click_home("UADMIN", "home_change")
    return (await slack.until(lambda: slack.world.modals[opened:]))[0]


async def test_only_admins_change_who_may_and_it_holds_at_once(slack, service, app):
    view = await access_form(slack)
    slack.submit("U1", view, allowed_people=["U1"])
    slack.submit("UADMIN", view, allowed_people=["U2", "U3"])
    await slack.until(lambda: service.chosen.get(values.Scope("slack", "T1")))
    await slack.until(lambda: "<@U2>" in texts(slack.world.homes["UADMIN"]))
    assert service.chosen == {values.Scope("slack", "T1"): {"allowed_people": ["U2", "U3"]}}
    slack.say("U1", "C1", "<@UBOT> hi")
    [told] = await slack.until(lambda: slack.world.ephemerals)
    assert "have access to this bot" in told["blocks"][0]["text"]
    ts = slack.say("U2", "C1", "<@UBOT> hi")
    await slack.until(lambda: slack.answers("C1", ts))


async def test_what_admins_choose_holds_over_the_settings_until_they_take_it_back(slack, service):
    scope = values.Scope("slack", "T1")
    slack.world.groups["S7"] = ["U1"]
    async with connect_platform(slack, service, allowed_people=("U3",), allowed_channels=("C2",)):
        view = await access_form(slack)
        chosen = {"allowed_groups": "<!subteam^S7>", "allowed_channels": ["C1"]}
        slack.submit("UADMIN", view, **chosen, approval="every", follow_threads="no")
        await slack.until(lambda: len(service.chosen.get(scope, ())) == 4)
        ts = slack.say("U1", "C1", "<@UBOT> hi")
        await slack.until(lambda: slack.answers("C1", ts))
        assert service.turns[0].approval == "every"
        slack.say("U1", "C1", "no mention", thread=ts)
        slack.command("U1", "C2", "/py", "1")
        [told] = await slack.until(lambda: slack.world.responses)
        assert "can't be used here" in told["text"]
        again = await access_form(slack)
        shown = {b["block_id"]: b["element"] for b in again["blocks"]}
        assert shown["allowed_groups"]["initial_value"] == "S7"
        assert shown["approval"]["initial_option"]["value"] == "every"
        assert shown["follow_threads"]["initial_option"]["value"] == "no"
        empty = {"allowed_groups": "", "allowed_channels": []}
        slack.submit("UADMIN", again, **empty, approval="as set", follow_threads="as set")
        await slack.until(lambda: not service.chosen[scope])
        slack.say("U1", "C2", "<@UBOT> hi")
        await slack.until(lambda: slack.world.ephemerals)
        assert "have access to this bot" in slack.world.ephemerals[0]["blocks"][0]["text"]
    assert len(service.requests) == 1


async def test_admins_set_what_a_person_may_use_in_a_day(slack, service, app):
    scope = values.Scope("slack", "T1")
    view = await access_form(slack)
    slack.submit("UADMIN", view, allowance_tokens="200,000", allowance_money="lots")
    await slack.until(lambda: service.chosen.get(scope))
    assert service.chosen == {scope: {"allowance_tokens": "200000"}}
    again = await access_form(slack)
    shown = {b["block_id"]: b["element"] for b in again["blocks"]}
    assert shown["allowance_tokens"]["initial_value"] == "200000"
    assert "initial_value" not in shown["allowance_money"]
    slack.submit("UADMIN", again, allowance_tokens="", allowance_money="2.50")
    await slack.until(lambda: service.chosen[scope] == {"allowance_money": "2.50"})


async def test_admin_looks_up_what_somebody_used_and_others_do_not(slack, service, app):
    key = values.SessionKey("slack", "T1", "C1")
    await service.spend(key, "U2", values.Usage(input_tokens=1000, output_tokens=234))
    slack.open_home("UADMIN")
    view = await slack.until(lambda: slack.world.homes.get("UADMIN"))
    assert "Person U2" not in texts(view)
    slack.click_home("UADMIN", "home_person", value="U2")
    view = await slack.until(lambda: "Person U2" in texts(slack.world.homes["UADMIN"]) and view)
    shown = texts(slack.world.homes["UADMIN"])
    assert "*Person U2* today: 1,234 tokens (50,000 allowed)" in shown
    slack.open_home("U1")
    await slack.until(lambda: slack.world.homes.get("U1"))
    slack.world.homes["U1"]["blocks"] = slack.world.homes["UADMIN"]["blocks"]
    slack.click_home("U1", "home_person", value="U2")
    await slack.until(lambda: "U2" not in texts(slack.world.homes["U1"]))


async def test_admin_sees_what_people_think_of_answers(slack, service, app):
    async def script(turn):
        return turn.done("One.\nTwo.")

    service.script = script
    first = slack.say("U1", "C1", "<@UBOT> one")
    second = slack.say("U1", "C1", "<@UBOT> two")
    for ts in (first, second):
        await slack.until(lambda ts=ts: slack.status("C1", ts) == "active")
    clicks = [("U1", first, "up 1"), ("U2", first, "up 1"), ("U1", first, "down 1")]
    clicks += [("U1", first, "down 1"), ("UGUEST", second, "up 2")]
    for number, (user, ts, value) in enumerate(clicks):
        [answer] = slack.answers("C1", ts)
        slack.click(user, "C1", answer["ts"], "feedback", value=value)
        await slack.until(lambda number=number: len(slack.world.responses) == number + 1)
    assert "Guests" in slack.world.responses[-1]["text"]
    assert service.chosen[values.Scope("slack", "T1", person="U1")] == {"feedback:1": "down"}
    slack.open_home("UADMIN")
    view = await slack.until(lambda: slack.world.homes.get("UADMIN"))
    assert "Answers: 1 good, 1 bad" in texts(view)


async def test_session_of_somebody_else_cannot_be_reset_by_a_forged_button(slack, service, app):
    ts = slack.say("U2", "C1", "<@UBOT> theirs")
    await slack.until(lambda: service.ends)
    slack.say("U1", "C1", "<@UBOT> mine")
    await slack.until(lambda: len(service.ends) == 2)
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
    assert service.calls == []


async def test_guest_finds_the_reason_in_their_home(slack, service, app):
    slack.open_home("UGUEST")
    view = await slack.until(lambda: slack.world.homes.get("UGUEST"))
    assert "Guests" in texts(view)


async def test_messages_tab_suggests_what_to_say(slack, service, app):
    slack.open_home("U1", "messages")
    [shown] = await slack.until(lambda: slack.world.prompts)
    assert shown["channel"] == "DU1"
    assert len(shown["prompts"]) == 4


@pytest.mark.slow
async def test_home_fits_with_many_sessions(slack, tmp_path):
    models = tuple(f"model {number}" for number in range(150))
    async with fake.opened(tmp_path, models=models) as service, connect_platform(slack, service):
        for number in range(40):
            slack.say("UADMIN", "DUADMIN", f"session {number} " + "long " * 100)
        await slack.until(lambda: len(service.ends) == 40, seconds=30)
        slack.open_home("UADMIN")
        await slack.until(lambda: slack.world.homes.get("UADMIN"))
