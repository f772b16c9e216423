"""Links by which a person reads a thread on the page."""

import pytest

from interpreter_bot import settings, values
from tests.fakes import conversations
from tests.integration.slack.worlds import connect_platform

PAGE = "https://bot.example.org"
# No section of Slack's would hold it.
LONG = f"https://{'a.' * 1500}example.org"


@pytest.fixture(params=[PAGE, LONG], ids=["short", "long"])
async def service(tmp_path, request):
    web = settings.Web(public_url=request.param)
    async with conversations.opened(tmp_path / "bot", web=web) as opened:
        yield opened


def _secret(told):
    """The link of an ephemeral message, which nothing else of the chat holds."""
    [block] = told["blocks"][1:]
    [link] = block["elements"][0]["elements"]
    page, _, secret = link["url"].partition("/visit#")
    assert page in (PAGE, LONG)
    return secret


async def _two_lines(turn):
    return turn.done("One.\nTwo.")


async def _asked(slack, service):
    service.script = _two_lines
    ts = slack.say("U1", "C1", "<@UBOT> hello")
    await slack.until(lambda: service.ends)
    [answer] = await slack.until(
        lambda: slack.status("C1", ts) == "active" and slack.answers("C1", ts)[:1]
    )
    return ts, answer


async def test_a_button_gives_who_presses_it_a_link_of_their_own(slack, service, app):
    ts, answer = await _asked(slack, service)
    slack.click("U2", "C1", answer["ts"], "page")
    [told] = await slack.until(lambda: slack.world.ephemerals)
    assert (told["user"], told["channel"], told["thread_ts"]) == ("U2", "C1", ts)
    visit, _ = await service.visits.enter(_secret(told))
    assert visit.key == values.SessionKey("slack", "T1", "C1", ts)
    assert all("/visit#" not in str(one) for one in slack.answers("C1", ts))


async def test_who_may_not_use_the_bot_gets_none(slack, service):
    async with connect_platform(slack, service, allowed_people=("U1",)):
        _, answer = await _asked(slack, service)
        slack.click("U2", "C1", answer["ts"], "page")
        [told] = await slack.until(lambda: slack.world.responses)
        assert "/visit#" not in str(told)
        assert slack.world.ephemerals == []


async def test_a_mention_asks_for_it_too(slack, service, app):
    ts, _ = await _asked(slack, service)
    slack.say("U1", "C1", "<@UBOT> page", thread=ts)
    [told] = await slack.until(lambda: slack.world.ephemerals)
    visit, _ = await service.visits.enter(_secret(told))
    assert visit.key.thread == ts


async def test_without_a_public_address_no_button_is_there(slack, tmp_path):
    async with conversations.opened(tmp_path / "other") as plain, connect_platform(slack, plain):
        _, answer = await _asked(slack, plain)
        assert "page" not in str(answer["blocks"])
