"""Messages that people sent while no bot was connected are answered when one is again."""

import asyncio

from tests.integration.slack.worlds import connect_platform


async def begun(slack, service, **more):
    """Begin a conversation in each place; gives the roots of the threads."""
    async with connect_platform(slack, service, **more):
        roots = [slack.say("U1", where, "<@UBOT> one") for where in ("C1", "DU1")]
        await slack.until(lambda: len(service.ends) == 2)
        await slack.until(
            lambda: all(slack.answers(c, r) for c, r in zip(("C1", "DU1"), roots, strict=True))
        )
    return roots


async def test_what_was_sent_while_the_bot_was_away_is_answered_once(slack, service):
    root, direct = await begun(slack, service)
    deliver, slack.event = slack.event, lambda *_, **__: None
    slack.say("U2", "C1", "<@UBOT> a mention")
    slack.say("U1", "C1", "in the thread", thread=root)
    slack.say("U1", "DU1", "a new question")
    slack.say("U1", "DU1", "in the direct thread", thread=direct)
    slack.say("U2", "C1", "not for the bot")
    slack.edit("C1", root, "<@UBOT> one, worded otherwise")
    slack.event = deliver
    expected = ["a mention", "a new question", "in the direct thread", "in the thread"]
    for _ in range(2):
        async with connect_platform(slack, service):
            await slack.until(lambda: len(service.ends) >= 6)
            await slack.until(lambda: slack.called("conversations.history"))
            await asyncio.sleep(0.5)
    assert sorted(request.text for request in service.requests[2:]) == expected


async def test_messages_that_are_too_old_are_not_answered(slack, service):
    await begun(slack, service, look_back_seconds=0.0)
    deliver, slack.event = slack.event, lambda *_, **__: None
    slack.say("U2", "C1", "<@UBOT> a mention")
    slack.event = deliver
    async with connect_platform(slack, service, look_back_seconds=0.0):
        last = slack.say("U2", "C1", "<@UBOT> now")
        await slack.until(lambda: slack.answers("C1", last))
    assert [request.text for request in service.requests[2:]] == ["now"]


async def test_what_was_not_for_the_bot_is_not_taken_at_a_later_start(slack, service):
    async with connect_platform(slack, service):
        root = slack.say("U1", "C1", "FYI the numbers are in")
        slack.say("U1", "C1", "they look odd", thread=root)
        slack.say("U1", "C1", "<@UBOT> plot", thread=root)
        await slack.until(lambda: len(service.ends) == 1)
        other = slack.say("U2", "C1", "nice", thread=root)
        slack.say("U1", "C1", "is it?", thread=root)
        await slack.until(lambda: "Several people" in str(slack.replies("C1", root)))
        await asyncio.sleep(0.5)
    del slack.world.messages["C1", other]
    slack.world.messages["C1", root]["thread_ts"] = root
    deliver, slack.event = slack.event, lambda *_, **__: None
    slack.say("U1", "C1", "while it was away", thread=root)
    slack.event = deliver
    async with connect_platform(slack, service):
        await slack.until(lambda: len(service.ends) >= 2)
        await asyncio.sleep(0.5)
    assert [request.text for request in service.requests] == ["plot", "while it was away"]
