"""What an answer leaves out is a button away: code as it ran, and what it printed."""

import pytest

from tests.integration.slack.worlds import connect_platform

SHORT = "print(1)"
CUT = "\n".join(f"x{n} = '<!channel> ``` & <@U2> *a* \\t{n}'" for n in range(20)) + "\n"


def running(*codes):
    async def script(turn):
        turn.reply.step(1)
        for cell, code in enumerate(codes):
            await turn.run(cell, code, "done\n")
        turn.reply.step(2)
        turn.reply.text("Done.\nAll of it.")
        return turn.done("Done.\nAll of it.")

    return script


async def answered(slack, service, *codes, channel="C1"):
    service.script = running(*codes)
    count = len(service.ends)
    ts = slack.say("U1", channel, "<@UBOT> go")
    await slack.until(lambda: len(service.ends) > count)
    [answer] = await slack.until(
        lambda: slack.status(channel, ts) == "active" and slack.answers(channel, ts)[:1]
    )
    return answer


def shown_code(*messages):
    """The code of messages, a text for each block."""
    return [
        block["elements"][0]["elements"][0]["text"]
        for message in messages
        for block in message["blocks"]
        if block["type"] == "rich_text"
    ]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_whole_code_is_shown_to_who_presses_alone(slack, service, is_restarted):
    async with connect_platform(slack, service):
        answer = await answered(slack, service, SHORT, CUT)
        before = len(slack.world.messages)
        if not is_restarted:
            slack.click("U2", "C1", answer["ts"], "code")
            await slack.until(lambda: slack.world.ephemerals)
    if is_restarted:
        async with connect_platform(slack, service):
            slack.click("U2", "C1", answer["ts"], "code")
            await slack.until(lambda: slack.world.ephemerals)
    [told] = slack.world.ephemerals
    assert (told["channel"], told["user"]) == ("C1", "U2")
    assert shown_code(told) == [SHORT, "done", CUT, "done"]
    notes = [block["elements"][0]["text"] for block in told["blocks"] if block["type"] == "context"]
    assert notes == ["Output:", "Output:"]
    assert len(slack.world.messages) == before


async def test_code_of_an_answer_without_words_is_a_button_away(slack, service, app):
    async def script(turn):
        turn.reply.step(1)
        await turn.run(0, "y = 2\n\n\n\n\nprint(y)\n", "2\n")
        return turn.done()

    service.script = script
    ts = slack.say("U1", "C1", "<@UBOT> go")
    await slack.until(lambda: slack.status("C1", ts) == "active")
    [answer] = slack.answers("C1", ts)
    assert answer["text"].startswith("```\n2\n```")
    slack.click("U2", "C1", answer["ts"], "code")
    [told] = await slack.until(lambda: slack.world.ephemerals)
    assert shown_code(told) == ["y = 2\n\n\n\n\nprint(y)\n", "2"]


async def test_code_that_a_stream_leaves_out_is_a_button_away(slack, service, app):
    code = "import requests\nrequests.get('https://example.org')"
    answer = await answered(slack, service, code, channel="DU1")
    assert "example.org" not in str([answer["blocks"], slack.called("chat.appendStream")])
    slack.click("U1", "DU1", answer["ts"], "code")
    await slack.until(lambda: shown_code(*slack.replies("DU1", answer["thread_ts"])))
    assert shown_code(*slack.replies("DU1", answer["thread_ts"])) == [code, "done"]


@pytest.mark.parametrize(
    "code",
    [
        "\n".join(f"name_{n} = {n}" for n in range(1_500)),
        f"data = '{'x' * 20_000}'",
        f"{CUT}a = 'one\u202etwo\u200b'",
        CUT.replace("\n", "\r\n"),
    ],
    ids=["very long", "long line", "hidden characters", "carriage returns"],
)
async def test_code_that_a_message_cannot_hold_as_it_is_comes_as_a_file(slack, service, app, code):
    answer = await answered(slack, service, code)
    slack.click("U2", "C1", answer["ts"], "code")
    [batch] = await slack.until(lambda: slack.world.batches)
    contents = {file["name"]: slack.world.contents[file["id"]] for file in batch["files"]}
    assert contents == {"code.py": code.encode(), "output.txt": b"done"}
    assert batch["channel"] == "DU2"
    assert "thread_ts" not in batch
    [told] = await slack.until(lambda: slack.world.ephemerals)
    assert told["user"] == "U2"
    assert told["text"] == "That is too long to show here, so I sent it to you as a file."


async def test_own_code_that_its_heading_cuts_is_a_button_away(slack, service, app):
    async def script(turn):
        await turn.run(0, turn.request.text, "ok\n")
        return turn.done()

    service.script = script
    code = "\n".join(f"name_{n} = {n}" for n in range(300))
    slack.command("U1", "C1", "/py", code)
    await slack.until(lambda: "Show code" in str(slack.world.messages))
    [answer] = [one for one in slack.world.messages.values() if "Show code" in str(one)]
    slack.click("U1", "C1", answer["ts"], "code")
    [told] = await slack.until(lambda: slack.world.ephemerals)
    assert shown_code(told) == [code, "ok"]


async def test_code_is_not_shown_to_who_may_not_use_the_bot_nor_elsewhere(slack, service, app):
    answer = await answered(slack, service, CUT)
    slack.click("UGUEST", "C1", answer["ts"], "code")
    await slack.until(lambda: slack.world.responses)
    [row] = [one for one in answer["blocks"] if "Show code" in str(one)]
    row["elements"][0]["value"] = row["elements"][0]["value"].replace("/C1/", "/C2/")
    slack.click("U1", "C1", answer["ts"], "code")
    await slack.until(lambda: len(slack.world.responses) == 2)
    assert "Guests" in slack.world.responses[0]["text"]
    assert slack.world.responses[1]["text"] == "That answer is too old to show."
    assert slack.world.ephemerals == []


async def test_code_of_a_conversation_that_was_deleted_is_gone(slack, service, app):
    answer = await answered(slack, service, CUT)
    await service.delete(service.requests[0].key)
    slack.click("U1", "C1", answer["ts"], "code")
    [told] = await slack.until(lambda: slack.world.responses)
    assert told["text"] == "That answer is too old to show."
