"""Schedules on Slack: set up by a card, run in their thread, looked after by commands."""

from tests.integration.slack.worlds import offers


async def set_up(slack, service, text="daily 9:00 UTC: say hello"):
    """Set up a schedule in a thread, whose root is given back."""
    ts = slack.say("U1", "C1", f"<@UBOT> schedule {text}")
    [card] = await slack.until(
        lambda: [reply for reply in slack.replies("C1", ts) if offers(reply, "run")]
    )
    assert "Set up this schedule?" in card["text"]
    assert "Next: " in card["text"]
    slack.click("U1", "C1", card["ts"], "run")
    await slack.until(lambda: "is set up. It runs first on" in str(slack.answers("C1", ts)))
    await service.idle()
    return ts


async def fire(slack, service):
    """Let it be the time of the first schedule."""
    (first,) = await service.services.database.schedules.all(limit=9)
    service.schedules.now = lambda: first.due
    await service.schedules.fire()
    await slack.until(lambda: not service.schedules._tasks)


async def test_a_schedule_runs_in_its_thread_as_its_owner(slack, service, app):
    ts = await set_up(slack, service)
    before = len(slack.replies("C1", ts))
    await fire(slack, service)
    shown = str(slack.answers("C1", ts)[before:])
    assert "echo: say hello" in shown
    assert "Schedule 1: say hello" in shown
    assert (service.handled[-1].person.id, service.handled[-1].text) == ("U1", "say hello")

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
        ("schedules delete 2", "There is no schedule “2” here."),
    ):
        slack.say("U1", "C1", f"<@UBOT> {words}", thread=ts)
        await slack.until(
            lambda answer=answer: answer in str([*slack.world.messages.values()]) + str(slack.calls)
        )
    (schedule,) = await service.services.database.schedules.all(limit=9)
    assert schedule.due is None


async def test_who_leaves_the_channel_leaves_no_schedule_running(slack, service, app):
    await set_up(slack, service)
    for user, kind in (("U2", "channel_leave"), ("U1", "group_leave")):
        event = {"type": "message", "subtype": kind, "channel": "C1", "user": user, "ts": "9.9"}
        before = await service.services.database.schedules.all(limit=9)
        assert before[0].due is not None
        slack.event(event)
        await slack.until(lambda: all(d.acked is not None for d in slack.deliveries))
        await service.idle()
    await slack.until(lambda: "no longer in this channel" in str(slack.world.messages))
    for words in ("schedules resume 1", "schedules run 1"):
        before = len(slack.calls)
        slack.say("U1", "DU1", words)
        await slack.until(lambda before=before: "only be done in" in str(slack.calls[before:]))
    (schedule,) = await service.services.database.schedules.all(limit=9)
    assert schedule.due is None


async def test_words_that_are_no_schedule_are_for_the_model(slack, service, app):
    ts = slack.say("U1", "C1", "<@UBOT> schedule a meeting with Bob")
    await slack.until(lambda: "echo: schedule a meeting with Bob" in str(slack.answers("C1", ts)))
