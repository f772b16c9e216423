"""A burst is carried out in the order in which it was sent, whatever takes longer for one of it."""

import asyncio

from interpreter_bot.platforms.slack import installations
from tests.fakes.slack_server.servers import Fault

WORDS = [f"number {number}" for number in range(6)]


def slow_first(method):
    """Let the first call of a method take longer than all that come later."""
    seen = []

    def fault(name, arguments):
        if name == method:
            seen.append(arguments)
        return Fault("slow", seconds=0.4) if name == method and len(seen) == 1 else None

    return fault


async def test_messages_in_a_thread_run_as_they_were_sent(slack, service, app):
    root = slack.say("U1", "C1", "<@UBOT> begin")
    await slack.until(lambda: service.ends)
    slack.choose_fault = slow_first("conversations.replies")
    for words in WORDS:
        slack.say("U1", "C1", words, thread=root)
        await asyncio.sleep(0.01)
    await slack.until(lambda: len(service.ends) == 7)
    assert [request.text for request in service.requests[1:]] == WORDS


async def test_messages_of_several_people_run_as_they_were_sent(slack, service, app):
    root = slack.say("U1", "DU1", "begin")
    await slack.until(lambda: service.ends)
    slack.choose_fault = slow_first("agents.sessions.setStatus")
    for words in WORDS:
        slack.say("U1", "DU1", words, thread=root)
        await asyncio.sleep(0.01)
    await slack.until(lambda: len(service.ends) == 7)
    assert [request.text for request in service.requests[1:]] == WORDS


async def test_commands_in_a_channel_run_as_they_were_sent(slack, service, app):
    slack.choose_fault = slow_first("users.info")
    for number, user in enumerate(("U1", "U2", "U1", "UADMIN")):
        slack.command(user, "C1", "/py", f"x = {number}")
        await asyncio.sleep(0.01)
    await slack.until(lambda: len(service.ends) == 4)
    assert [request.text for request in service.requests] == [f"x = {n}" for n in range(4)]


async def test_events_of_a_workspace_that_is_looked_up_keep_their_order():
    class Store:
        calls = 0

        async def async_find_bot(self, *, enterprise_id, team_id):
            Store.calls += 1
            await asyncio.sleep(0.1 if Store.calls == 1 else 0)

            class Bot:
                bot_token, bot_user_id, bot_id = "xoxb-loopback", "UBOT", "BBOT"

            return Bot

    known = installations.InstalledWorkspaces(store=Store())
    done = []

    async def hear(number):
        await known.get("T1")
        done.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(hear(number))
            await asyncio.sleep(0.01)
    assert done == [0, 1, 2, 3]
    assert Store.calls == 1
