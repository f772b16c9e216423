"""Who may, and who may not."""

import pytest

from tests.fakes import conversations as fake
from tests.fakes.slack_server.servers import Fault
from tests.integration.slack.worlds import connect_platform


async def refused(slack, service, user="U1", channel="C1", **more):
    async with connect_platform(slack, service, **more):
        ts = slack.say(user, channel, "<@UBOT> hi")
        if channel.startswith("D"):
            [told] = await slack.until(lambda: slack.answers(channel, ts))
        else:
            [told] = await slack.until(lambda: slack.world.ephemerals)
            assert (told["user"], told["thread_ts"]) == (user, ts)
        slack.command(user, channel, "/py", "1+1")
        await slack.until(lambda: slack.world.responses)
    assert service.requests == []
    assert slack.world.statuses == []
    return told["blocks"][0]["text"]


async def allowed(slack, service, user="U1", channel="C1", **more):
    async with connect_platform(slack, service, **more):
        ts = slack.say(user, channel, "<@UBOT> hi")
        await slack.until(lambda: slack.answers(channel, ts))
    return len(service.requests) == 1


async def test_guests_are_refused_with_the_reason(slack, service):
    assert "Guests" in await refused(slack, service, "UGUEST")


async def test_guests_are_refused_in_direct_messages_too(slack, service):
    assert "Guests" in await refused(slack, service, "UGUEST", "DUGUEST")


async def test_strangers_of_slack_connect_are_refused(slack, service):
    assert "people of this workspace" in await refused(slack, service, "USTRANGER")


async def test_guests_and_strangers_are_let_in_by_the_settings(slack, service):
    assert await allowed(slack, service, "UGUEST", allows_guests=True)


@pytest.mark.parametrize(
    ("setting", "ids", "sentence"),
    [
        ("allowed_people", ("U2",), "have access to this bot"),
        ("allowed_people", ("S1",), "have access to this bot"),
        ("allowed_people", ("SGONE",), "have access to this bot"),
    ],
)
async def test_who_is_not_on_a_list_is_refused(slack, service, setting, ids, sentence):
    slack.world.groups["S1"] = ["U2"]
    assert sentence in await refused(slack, service, **{setting: ids})


@pytest.mark.parametrize(
    ("setting", "ids"), [("allowed_workspaces", ("T2",)), ("allowed_channels", ("C2",))]
)
async def test_messages_where_the_bot_may_not_be_used_are_not_answered(
    slack, service, setting, ids
):
    async with connect_platform(slack, service, **{setting: ids}):
        ts = slack.say("U1", "C1", "<@UBOT> hi")
        slack.command("U1", "C1", "/py", "1+1")
        [told] = await slack.until(lambda: slack.world.responses)
    assert "can't be used here" in told["text"]
    assert service.requests == slack.world.ephemerals == slack.answers("C1", ts) == []


@pytest.mark.parametrize(
    ("setting", "ids"),
    [
        ("allowed_workspaces", ("T1",)),
        ("allowed_channels", ("C1",)),
        ("allowed_people", ("U1",)),
        ("allowed_people", ("U3", "S1")),
    ],
)
async def test_who_is_on_a_list_is_let_in(slack, service, setting, ids):
    slack.world.groups["S1"] = ["U1"]
    assert await allowed(slack, service, **{setting: ids})


async def test_whom_slack_does_not_know_is_refused(slack, service):
    slack.fail("users.info", *[Fault("error", error="user_not_found")] * 4)
    assert "couldn't look you up" in await refused(slack, service)


async def test_stranger_cannot_press_stop_or_run(slack, service):
    service.script = fake.echo
    async with connect_platform(slack, service, allowed_people=("U1",)):
        ts = slack.say("U1", "C1", "<@UBOT> hi")
        await slack.until(lambda: service.ends)
        slack.shortcut("U2", "run_message", "C1", ts)
        [told] = await slack.until(lambda: slack.world.responses)
    assert "have access to this bot" in told["text"]
    assert len(service.requests) == 1
