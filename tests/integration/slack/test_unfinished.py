"""Messages of a bot that is gone: the next one goes on in them."""

import pytest

from interpreter_bot import values
from interpreter_bot.wording import file_words, session_words
from tests.fakes import conversations as fake
from tests.integration.slack.worlds import has_button

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


def stop_button(value):
    text = {"type": "plain_text", "text": "Stop"}
    button = {"type": "button", "action_id": "stop", "value": value, "text": text}
    return {"type": "actions", "elements": [button]}


def leave(slack, channel, root, *blocks, nonce="n1"):
    """Put a message of a bot that is gone into a thread."""
    ts = slack.world.next_ts()
    message = {"type": "message", "user": "UBOT", "bot_id": "BBOT", "ts": ts, "edits": 0}
    message |= {"thread_ts": root, "text": "…", "blocks": list(blocks)}
    message["metadata"] = {"event_type": "interpreter_bot", "event_payload": {"id": nonce}}
    slack.world.messages[channel, ts] = message
    return message


async def note(service, request, message, /, *, position=0, **more):
    """Record a message as that of an answer, as its bot did."""
    fields = {"digest": "", "first_tried_at": 1.0, "message": message["ts"], **more}
    nonce = message.get("metadata", {}).get("event_payload", {}).get("id", "n0")
    await service.deliveries.put("slack", request, position, nonce=nonce, **fields)


async def begun(slack, service, channel):
    """A conversation, and its key; the first answer is over."""
    root = slack.say("U1", channel, "<@UBOT> begin")
    await slack.until(lambda: service.ends and slack.status(channel, root) == "active")
    return root, service.handled_requests[0].key


@pytest.mark.parametrize("is_noted", [True, False])
async def test_turn_goes_on_in_its_message_and_the_others_go(slack, service, app, is_noted):
    root, key = await begun(slack, service, "C1")
    before = len(slack.replies("C1", root))
    asked = slack.world.next_ts()
    sign = leave(slack, "C1", root, stop_button(f"T1/C1/{root}/C1/{asked}"))
    # It may have been killed between the post and its response.
    await note(service, f"C1/{asked}", sign, message=sign["ts"] if is_noted else "")
    question = leave(slack, "C1", root, stop_button("q"), nonce="n2")
    await note(service, f"C1/{asked}", question, position=1)
    other = leave(slack, "C1", root, nonce="n3")
    await service.go_on(key, "go on", person="U1", request_id=f"C1/{asked}")
    await slack.until(lambda: "echo: go on" in str(sign["blocks"]))
    await slack.until(lambda: question not in slack.replies("C1", root))
    assert session_words.KEPT_RUNNING in str(sign["blocks"])
    assert not has_button(sign, "stop")
    assert other["edits"] == 0
    assert len(slack.replies("C1", root)) == before + 2


@pytest.mark.parametrize("is_noted", [True, False])
async def test_turn_goes_on_in_the_message_that_was_streamed(slack, service, app, is_noted):
    root, key = await begun(slack, service, "DU1")
    asked = slack.world.next_ts()
    message = leave(slack, "DU1", root)
    del message["metadata"]
    message |= {"stream": "open", "started": 1e9, "markdown": "x", "tasks": {}}
    await note(service, f"DU1/{asked}", message, message=message["ts"] if is_noted else "")
    await service.go_on(key, "go on", person="U1", request_id=f"DU1/{asked}")
    await slack.until(lambda: "echo: go on" in str(message["blocks"]))
    assert message["stream"] == "closed"


async def test_everything_recorded_is_shown_by_the_next_bot(slack, service, app):
    root, key = await begun(slack, service, "C1")
    message = leave(slack, "C1", root, stop_button("x"))
    await note(service, "ab12", message)
    await service.go_on(key, "print('before')", person="U1", request_id="ab12")
    await slack.until(lambda: "before" in str(message["blocks"]))
    assert "Person U1" in str(message["blocks"]), "whose code it is"


async def test_turn_with_which_no_bot_can_go_on_ends_in_its_message(slack, service, app):
    root, key = await begun(slack, service, "C1")
    asked = f"C1/{slack.world.next_ts()}"
    message = leave(slack, "C1", root, stop_button(f"T1/C1/{root}/{asked}"))
    await note(service, asked, message)
    await service.interrupt(key, "print('before')", person="U1", request_id=asked)
    await slack.until(lambda: session_words.TURN_INTERRUPTED in str(message["blocks"]))
    assert "before" in str(message["blocks"])
    assert not has_button(message, "stop")
    await slack.until(lambda: session_words.ANSWER_INTERRUPTED in str(slack.replies("C1", root)))


async def computing(turn):
    """Compute for long, in an answer with a picture and a file."""
    turn.reply.step(1)
    picture = values.Image(mime="image/png", data=PNG)
    await turn.run(0, "compute()", "computed\n", picture)
    turn.reply.step(2)
    turn.reply.text("It is 42.")
    (turn.directory / "result.csv").write_bytes(b"a,b\n")
    turn.make(0, "result.csv", b"a,b\n")
    return "It is 42."


async def test_answer_that_was_not_posted_in_full_is_completed_once(slack, service, app):
    def list_ts():
        return [reply["ts"] for reply in slack.replies("C1", root)]

    service.script = computing
    root = slack.say("U1", "C1", "<@UBOT> compute")
    await slack.until(lambda: service.ends and slack.status("C1", root) == "active")
    request = service.requests[0]
    *others, last = slack.replies("C1", root)
    [message] = [reply for reply in others if "It is 42." in str(reply.get("blocks"))]
    [file] = last["files"]
    assert file["name"] == "result.csv"
    position = len(await service.deliveries.list_for_request("slack", request.id)) - 1

    async def lose_file():
        del slack.world.messages["C1", list_ts()[-1]]
        await service.deliveries.delete("slack", request.id, position)

    # A bot leaves this if it is killed once it has recorded the end.
    message["blocks"] = [stop_button(request.id)]
    await lose_file()
    await service.die_before_showing()
    assert "It is 42." in str(message["blocks"])
    assert (has_button(message, "again"), has_button(message, "stop")) == (True, False)
    *kept, completed = slack.replies("C1", root)
    assert [file["name"] for file in completed["files"]] == ["result.csv"]
    assert kept == others
    # Now all of it is posted, so the next bot posts and deletes nothing; not even a lost file.
    before = list_ts()
    await service.die_before_showing()
    (service.directory(request.key) / "result.csv").unlink()
    await service.die_before_showing()
    assert list_ts() == before
    await lose_file()
    await service.die_before_showing()
    assert file_words.CHANGED_SINCE in str(slack.replies("C1", root)[-1])
    assert len(list_ts()) == len(before)
    assert len(service.turns) == 1, "its code runs once"


async def test_bot_that_ends_leaves_what_waits_to_the_next(slack, service, app):
    service.script = fake.echo
    root, _ = await begun(slack, service, "C1")
    service._lanes.close()
    second = slack.say("U1", "C1", "<@UBOT> again?", thread=root)
    await slack.until(lambda: session_words.ANSWER_CONTINUES in str(slack.replies("C1", root)))
    assert second
    assert "ask again" not in str(slack.replies("C1", root))


async def test_a_reply_answers_what_code_of_the_channels_python_asks_again(slack, service, app):
    async def asking(turn):
        await turn.reply.code(0, "input()")
        service.given = await turn.reply.ask(0, values.InputRequested("?", is_password=False))
        turn.reply.finished(0, fake.finished_well())

    service.script = asking
    first = leave(slack, "C1", "")
    del first["thread_ts"]
    await note(service, "ab12", first)
    key = values.SessionKey("slack", "T1", "C1")
    await service.go_on(key, "input()", person="U1", request_id="ab12")
    await slack.until(
        lambda: any(has_button(m, "answer") for m in slack.replies("C1", first["ts"]))
    )
    slack.say("U1", "C1", "Ada", thread=first["ts"])
    await slack.until(lambda: service.ends)
    assert service.given == "Ada"
