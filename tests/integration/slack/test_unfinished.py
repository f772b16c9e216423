"""Messages of a bot that is gone: the next one goes on in them, or closes them."""

import pytest

from interpreter_bot.wording import session_words
from tests.fakes import conversations as fake
from tests.integration.slack.test_asking import asking

PIXEL = b"\x89PNG\r\n\x1a\n" + b"0" * 20


def stop_button(value):
    text = {"type": "plain_text", "text": "Stop"}
    button = {"type": "button", "action_id": "stop", "value": value, "text": text}
    return {"type": "actions", "elements": [button]}


def leave(slack, channel, root, request, *blocks, **facts):
    """Put a message of a bot that is gone into a thread."""
    ts = slack.world.ts()
    message = {"type": "message", "user": "UBOT", "bot_id": "BBOT", "ts": ts, "edits": 0}
    message |= {"thread_ts": root, "text": "…", "blocks": list(blocks)}
    payload = {"id": "x", "request": request, **facts}
    message["metadata"] = {"event_type": "interpreter_bot", "event_payload": payload}
    slack.world.messages[channel, ts] = message
    return message


async def begun(slack, service, channel):
    """A conversation, and its key; the first answer is over."""
    root = slack.say("U1", channel, "<@UBOT> begin")
    await slack.until(lambda: service.ends and slack.status(channel, root) == "active")
    return root, service.handled[0].key


async def test_turn_goes_on_below_the_pictures_that_are_shown(slack, service, app):
    root, key = await begun(slack, service, "C1")
    asked = slack.world.ts()
    first = leave(slack, "C1", root, asked, {"type": "markdown", "text": "one"})
    picture = leave(slack, "C1", root, asked, {"type": "markdown", "text": "x"}, pictures=1)
    last = leave(slack, "C1", root, asked, stop_button(f"T1/C1/{root}/{asked}"))
    question = leave(
        slack, "C1", root, asked, stop_button("q"), is_question=True, asks="U1", question="q1"
    )
    before = len(slack.replies("C1", root))
    await service.go_on(key, "go on", person="U1", request_id=asked)
    await slack.until(lambda: "echo: go on" in str(last["blocks"]))
    await slack.until(lambda: "'action_id': 'stop'" not in str(slack.replies("C1", root)))
    assert session_words.KEPT_RUNNING in str(last["blocks"])
    assert "closed" in str(question["blocks"])
    assert (first["edits"], picture["edits"]) == (0, 0)
    assert len(slack.replies("C1", root)) == before


def leave_file(slack, channel, root, name, mimetype):
    """Put a file of a bot that is gone into a thread: Slack keeps no metadata with it."""
    message = leave(slack, channel, root, "")
    del message["metadata"]
    message["files"] = [{"id": "F1", "name": name, "mimetype": mimetype}]
    return message


@pytest.mark.parametrize("file", [("result.csv", "text/csv"), ("plot.png", "image/png")])
async def test_file_of_the_answer_before_stays_and_counts_for_nothing(slack, service, app, file):
    root, key = await begun(slack, service, "C1")
    asked = slack.world.ts()
    sign = leave(slack, "C1", root, asked, stop_button(f"T1/C1/{root}/{asked}"))
    other = leave_file(slack, "C1", root, *file)
    await service.go_on(key, "go on", person="U1", request_id=asked)
    await slack.until(lambda: "echo: go on" in str(sign["blocks"]))
    await slack.until(lambda: "'action_id': 'stop'" not in str(slack.replies("C1", root)))
    assert other in slack.replies("C1", root)
    assert other["edits"] == 0


async def test_turn_goes_on_below_the_pictures_that_were_sent_as_files(slack, service, app):
    root, key = await begun(slack, service, "C1")
    asked = slack.world.ts()
    first = leave(slack, "C1", root, asked, {"type": "markdown", "text": "one"})
    leave_file(slack, "C1", root, "plot.png", "image/png")
    last = leave(slack, "C1", root, asked, stop_button(f"T1/C1/{root}/{asked}"), shown=1)
    before = len(slack.replies("C1", root))
    await service.go_on(key, "go on", person="U1", request_id=asked)
    await slack.until(lambda: "echo: go on" in str(last["blocks"]))
    await slack.until(lambda: "'action_id': 'stop'" not in str(slack.replies("C1", root)))
    assert first["edits"] == 0
    assert len(slack.replies("C1", root)) == before


async def test_turn_goes_on_in_the_message_that_was_streamed(slack, service, app):
    root, key = await begun(slack, service, "DU1")
    asked = slack.say("U1", "DU1", "limits", thread=root)
    await slack.until(lambda: "Time for one piece" in str(slack.replies("DU1", root)))
    message = leave(slack, "DU1", root, asked)
    del message["metadata"]
    message |= {"stream": "open", "started": 1e9, "markdown": "x", "tasks": {}}
    await service.go_on(key, "go on", person="U1", request_id=asked)
    await slack.until(lambda: "echo: go on" in str(message["blocks"]))
    assert message["stream"] == "closed"


async def test_everything_recorded_is_shown_by_the_next_bot(slack, service, app):
    root, key = await begun(slack, service, "C1")
    message = leave(slack, "C1", root, "123456789.000001", stop_button("x"))
    await service.go_on(key, "print('before')", person="U1", request_id="123456789.000001")
    await slack.until(lambda: "before" in str(message["blocks"]))
    assert "Person U1" in str(message["blocks"]), "whose code it is"


async def test_what_nobody_goes_on_with_is_closed(slack, service, app):
    root, key = await begun(slack, service, "C1")
    message = leave(
        slack, "C1", root, "1.2", {"type": "markdown", "text": "half"}, stop_button("T1/C1/x/1.2")
    )
    await service.notify(key, session_words.ANSWER_INTERRUPTED)
    await slack.until(lambda: session_words.ANSWER_INTERRUPTED in str(slack.replies("C1", root)))
    assert "interrupted" in str(message["blocks"])
    assert "half" in str(message["blocks"])
    assert "'stop'" not in str(message["blocks"])


@pytest.mark.parametrize("name", ["stop", "input_answer"])
async def test_dead_button_is_taken_away_when_it_is_pressed(slack, service, app, name):
    service.script = asking
    root = slack.say("U1", "C1", "<@UBOT> ask me")
    await slack.until(lambda: "input_answer" in str(slack.replies("C1", root)))
    button = stop_button(f"T1/C1/{root}/1.2")
    button["elements"][0]["action_id"] = name
    message = leave(slack, "C1", root, "1.2", button)
    slack.click("U1", "C1", message["ts"], name)
    await slack.until(lambda: "interrupted" in str(message["blocks"]))
    await slack.until(lambda: slack.world.responses)
    assert "input_answer" in str([m for m in slack.replies("C1", root) if m is not message])


async def test_bot_that_ends_leaves_what_waits_to_the_next(slack, service, app):
    service.script = fake.echo
    root, _ = await begun(slack, service, "C1")
    service._lanes.close()
    second = slack.say("U1", "C1", "<@UBOT> again?", thread=root)
    await slack.until(lambda: session_words.ANSWER_CONTINUES in str(slack.replies("C1", root)))
    assert second
    assert "ask again" not in str(slack.replies("C1", root))
