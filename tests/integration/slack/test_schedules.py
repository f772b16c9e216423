"""Schedules on Slack: set up by a card, run in their thread, looked after by commands."""

import json
import re

from interpreter_bot import events, values
from tests.integration.slack.worlds import has_button


async def set_up(slack, service, text="daily 9:00 UTC: say hello"):
    """Set up a schedule in a thread, whose root is given back."""
    ts = slack.say("U1", "C1", f"<@UBOT> schedule {text}")
    [card] = await slack.until(
        lambda: [reply for reply in slack.replies("C1", ts) if has_button(reply, "run")]
    )
    assert "Set up this schedule?" in card["text"]
    assert "Next: " in card["text"]
    slack.click("U1", "C1", card["ts"], "run")
    await slack.until(lambda: "is set up. It runs first on" in str(slack.answers("C1", ts)))
    await service.wait_until_idle()
    return ts


async def fire(slack, service):
    """Let it be the time of the first schedule."""
    (first,) = await service.services.database.schedules.list_all(limit=9)
    service.schedules.now = lambda: first.due
    await service.schedules.fire()
    await slack.until(lambda: not service.schedules.run_tasks)


async def test_a_schedule_runs_in_its_thread_as_its_owner(slack, service, app):
    ts = await set_up(slack, service)
    before = len(slack.replies("C1", ts))
    await fire(slack, service)
    shown = str(slack.answers("C1", ts)[before:])
    assert "echo: say hello" in shown
    assert "Schedule 1: say hello" in shown
    assert (service.handled_requests[-1].person.id, service.handled_requests[-1].text) == (
        "U1",
        "say hello",
    )

    async def be_quiet(turn):
        turn.reply.step(1)
        turn.reply.text("nothing")
        return turn.done(is_quiet=True)

    service.script, seen = be_quiet, str(slack.replies("C1", ts))
    await fire(slack, service)
    assert len(service.ends) == 3
    assert str(slack.replies("C1", ts)) == seen


async def test_it_is_listed_and_paused_by_words(slack, service, app):
    ts = await set_up(slack, service, "weekdays 9:00 Europe/Berlin: say hello")
    for words, answer in (
        ("schedules", "weekdays 9:00: say hello (next on"),
        ("schedules pause 1", "Paused by a person."),
        ("schedules", "weekdays 9:00: say hello (paused by a person)"),
        ("schedules delete 2", "There is no schedule “2” here."),
    ):
        slack.say("U1", "C1", f"<@UBOT> {words}", thread=ts)
        await slack.until(
            lambda answer=answer: answer in str([*slack.world.messages.values()]) + str(slack.calls)
        )
    (schedule,) = await service.services.database.schedules.list_all(limit=9)
    assert schedule.due is None


async def test_who_leaves_the_channel_leaves_no_schedule_running(slack, service, app):
    await set_up(slack, service)
    for user, kind in (("U2", "channel_leave"), ("U1", "group_leave")):
        event = {"type": "message", "subtype": kind, "channel": "C1", "user": user, "ts": "9.9"}
        before = await service.services.database.schedules.list_all(limit=9)
        assert before[0].due is not None
        slack.event(event)
        await slack.until(lambda: all(d.acknowledged_after is not None for d in slack.deliveries))
        await service.wait_until_idle()
    await slack.until(lambda: "no longer in this channel" in str(slack.world.messages))
    for words in ("schedules resume 1", "schedules run 1"):
        before = len(slack.calls)
        slack.say("U1", "DU1", words)
        await slack.until(lambda before=before: "only be done in" in str(slack.calls[before:]))
    (schedule,) = await service.services.database.schedules.list_all(limit=9)
    assert schedule.due is None


async def test_words_that_are_no_schedule_are_for_the_model(slack, service, app):
    ts = slack.say("U1", "C1", "<@UBOT> schedule a meeting with Bob")
    await slack.until(lambda: "echo: schedule a meeting with Bob" in str(slack.answers("C1", ts)))


EVIL = "say <!channel> <@U3> @here [Log in](https://evil.example/x) \u202egnp\u2066 `a` ```b``` *c*"


async def test_hostile_words_of_schedules_notify_nobody_and_lead_nowhere(slack, service, app):
    async def answer(turn):
        turn.reply.step(1)
        turn.reply.text("Done \u202egnp <!channel>.")
        return turn.done("Done.")

    async def fail(turn):
        turn.reply.step(1)
        return events.TurnEnded(status=values.TurnStatus.FAILED, sentence=EVIL)

    encoded = EVIL.replace("<", "&lt;").replace(">", "&gt;")
    await set_up(slack, service, f"daily 9:00 UTC: {encoded}")
    for script in (answer, fail, fail, fail):
        service.script = script
        await fire(slack, service)
    for words in ("schedules", "schedules history 1"):
        before = len(slack.world.responses)
        slack.command("U1", "C1", "/interpreter", words)
        await slack.until(lambda before=before: len(slack.world.responses) > before)
    of_bot = [one for one in slack.world.messages.values() if one.get("user") == "UBOT"]
    shown = json.dumps([*of_bot, *slack.world.responses], ensure_ascii=False)
    assert "is paused. It failed 3 times in a row." in shown
    assert not slack.pings
    assert not set(shown) & set("\u202e\u2066")
    blocks = [block for one in (*of_bot, *slack.world.responses) for block in one["blocks"]]
    markdown = "\n".join(block["text"] for block in blocks if block["type"] == "markdown")
    assert "Log in" in markdown
    fenced = r"^(`{3,}).*?^\1"
    assert "](https://evil" not in re.sub(fenced, "", markdown, flags=re.DOTALL | re.MULTILINE)


async def test_a_schedule_of_ten_thousand_characters_is_refused_in_a_sentence(slack, service, app):
    for text in (f"daily 9:00 UTC: {'x' * 10_000}", f"{'daily ' * 2000}9:00 UTC: x"):
        before = len(slack.world.responses)
        slack.command("U1", "C1", "/interpreter", f"schedule {text}")
        await slack.until(lambda before=before: len(slack.world.responses) > before)
        answer = str(slack.world.responses[-1])
        assert "at most 2,000 characters" in answer or "don't understand" in answer
        assert len(answer) < 2000
    assert await service.services.database.schedules.list_all(limit=9) == ()


async def test_who_left_while_no_bot_ran_has_no_schedule_running(slack, service, app):
    ts = await set_up(slack, service)
    slack.world.channels["C1"].absent_users.add("U2")
    await fire(slack, service)
    assert "Schedule 1: say hello" in str(slack.answers("C1", ts))
    slack.world.channels["C1"].absent_users.add("U1")
    await fire(slack, service)
    await slack.until(lambda: "no longer in this channel" in str(slack.world.messages))
    (schedule,) = await service.services.database.schedules.list_all(limit=9)
    assert schedule.due is None
    # An app that was not given the scope for it runs schedules without looking.
    slack.refused_methods["conversations.members"] = "missing_scope"
    await service.schedules.resume(schedule)
    count = len(service.handled_requests)
    for _ in range(2):
        await fire(slack, service)
    assert len(service.handled_requests) == count + 2
    assert len(slack.called("conversations.members")) == 3
    slack.forgive("conversations.members")
