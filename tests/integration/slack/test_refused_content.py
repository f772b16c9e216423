"""Answers of which Slack refuses the form: they are shown in a plainer one, and never lost."""

import html

import pytest

from interpreter_bot import values
from tests.fakes import conversations as fake
from tests.fakes.slack_server.servers import Fault
from tests.integration.slack.worlds import connect_platform, has_button

WORDS = [
    "invalid_blocks",
    "invalid_blocks_format",
    "msg_too_long",
    "msg_blocks_too_long",
    "no_text",
]


def shown(message):
    """All that can be read in a message."""
    return "\n".join([message["text"], *texts(message.get("blocks", []))])


def texts(part):
    if isinstance(part, list):
        return [text for one in part for text in texts(one)]
    if isinstance(part, dict):
        text = part.get("text")
        inner = [text] if isinstance(text, str) else texts(text)
        return [*inner, *texts(part.get("elements")), *texts(part.get("rows"))]
    return []


def no_buttons_left(slack, channel, root):
    return "'action_id': 'stop'" not in str(slack.replies(channel, root))


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("method", ["chat.update", "chat.postMessage"])
async def test_answer_of_which_one_call_is_refused_is_shown(slack, service, app, method, word):
    slack.fail(method, Fault("error", error=word))
    ts = slack.say("U1", "C1", "<@UBOT> hi")
    [answer] = await slack.until(lambda: slack.answers("C1", ts))
    await slack.until(lambda: "echo: hi" in str(answer))
    await slack.until(lambda: slack.status("C1", ts) == "active")
    assert no_buttons_left(slack, "C1", ts)
    assert len(slack.replies("C1", ts)) == 1


async def test_stream_that_refuses_its_end_is_shown_by_an_edit(slack, service, app):
    slack.fail("chat.stopStream", Fault("error", error="invalid_blocks"))
    ts = slack.say("U1", "DU1", "hi")
    await slack.until(lambda: slack.status("DU1", ts) == "active")
    [answer] = slack.replies("DU1", ts)
    assert "echo: hi" in shown(answer)


@pytest.mark.parametrize("refuses", ["rich blocks", "all blocks", "every edit"])
async def test_answer_whose_form_is_always_refused_is_shown(slack, service, app, refuses):
    code = "\n".join(f"value_{number} = {number} < 2 & 3" for number in range(600))
    table = values.Table(
        columns=("city", "people"), rows=(("Rome", "<b>"),), row_count=1, column_count=2
    )

    def choose(method, arguments):
        if method not in ("chat.update", "chat.postMessage"):
            return None
        kinds = {block["type"] for block in arguments.get("blocks") or ()}
        is_refused = {
            "rich blocks": kinds & {"markdown", "table", "rich_text"},
            "all blocks": kinds,
            "every edit": method == "chat.update",
        }[refuses]
        return Fault("error", error="invalid_blocks") if is_refused else None

    async def script(turn):
        turn.reply.step(1)
        await turn.run(0, "x", table)
        return f"Look:\n\n```python\n{code}\n```\nThe end."

    service.script = script
    slack.choose_fault = choose
    ts = slack.say("U1", "C1", "<@UBOT> go")
    await slack.until(lambda: slack.status("C1", ts) == "active")
    await slack.until(lambda: no_buttons_left(slack, "C1", ts))
    text = html.unescape("\n".join(map(shown, slack.replies("C1", ts))))
    # A message without blocks holds less.
    shown_lines = 100 if refuses == "all blocks" else 600
    assert all(f"value_{number} = {number} < 2 & 3" in text for number in range(shown_lines))
    assert "Rome" in text or refuses == "all blocks"


@pytest.mark.parametrize("channel", ["C1", "DU1"])
async def test_message_of_which_all_blocks_are_refused_is_shown_as_text(
    slack, service, app, channel
):
    slack.choose_fault = lambda _, arguments: (
        Fault("error", error="invalid_blocks") if arguments.get("blocks") else None
    )
    ts = slack.say("U1", channel, "<@UBOT> limits")
    [message] = await slack.until(lambda: slack.world.ephemerals or slack.replies(channel, ts))
    assert "memory" in message["text"].lower()
    assert not message.get("blocks")


@pytest.mark.parametrize("is_refused", [False, True])
async def test_answer_of_many_pieces_of_code_is_shown_whole(
    slack, service, app, caplog, is_refused
):
    snippets = [f"<!-- part {number} -->" for number in range(40)]

    def choose(method, arguments):
        kinds = {block["type"] for block in arguments.get("blocks") or ()}
        return Fault("error", error="invalid_blocks") if "markdown" in kinds else None

    async def script(turn):
        parts = [f"Text {n}:\n```html\n{part}\n```\n" for n, part in enumerate(snippets)]
        return "".join([*parts, "The end."])

    service.script = script
    slack.choose_fault = choose if is_refused else lambda *_: None
    ts = slack.say("U1", "C1", "<@UBOT> go")
    await slack.until(lambda: "The end." in str(slack.replies("C1", ts)))
    await slack.until(lambda: slack.status("C1", ts) == "active")
    replies = slack.replies("C1", ts)
    text = html.unescape("\n".join(map(shown, replies))).replace("\u200b", "")
    assert all(snippet in text for snippet in snippets)
    assert all(f"Text {number}:" in text for number in range(40))
    assert "context_actions" in str(replies), "its buttons"
    if not is_refused:
        assert "is shown as" not in caplog.text


async def test_question_whose_form_is_refused_still_has_its_buttons(slack, service):
    async def script(turn):
        return f"ran {await turn.reply.approve(0, 'print(1)')}"

    service.script = script
    slack.choose_fault = lambda method, arguments: (
        Fault("error", error="invalid_blocks")
        if "markdown" in {block["type"] for block in arguments.get("blocks") or ()}
        else None
    )
    async with connect_platform(slack, service):
        ts = slack.say("U1", "C1", "<@UBOT> go")
        [question] = await slack.until(
            lambda: [m for m in slack.replies("C1", ts) if has_button(m, "run")]
        )
        assert "print(1)" in shown(question)
        slack.click("U1", "C1", question["ts"], "run")
        await slack.until(lambda: "ran print(1)" in str(slack.replies("C1", ts)))
        await slack.until(lambda: not has_button(question, "run"))


# Code that Slack could take for mentions or links.
CODE = 'if a <!here or b == "@channel":\n    get("https://x.example/<@U2|b>")  # [a](https://b.example)'


@pytest.mark.parametrize("channel", ["C1", "DU1"])
async def test_code_is_shown_byte_for_byte(slack, service, app, channel):
    async def script(turn):
        turn.reply.step(1)
        for letter in f"So:\n```python\n{CODE}\n```\nThat was <!channel>.":
            turn.reply.text(letter)
        await turn.reply.code(0, CODE)
        turn.reply.output(0, values.Text("stdout", f"{CODE}\n"))
        turn.reply.finished(0, fake.finished_well())
        turn.reply.step(2)
        approved = await turn.reply.approve(1, CODE)
        assert approved == CODE
        return "The end.\nReally."

    service.script = script
    ts = slack.say("U1", channel, "<@UBOT> go")
    [question] = await slack.until(
        lambda: [m for m in slack.replies(channel, ts) if has_button(m, "run")]
    )
    assert CODE in shown(question)
    slack.click("U1", channel, question["ts"], "run")
    await slack.until(lambda: slack.status(channel, ts) == "active")
    [answer, *_] = slack.replies(channel, ts)
    assert CODE in shown(answer)
    assert "That was <\u200b!channel>." in shown(answer)
    assert not any("\u200b" in line for line in shown(answer).splitlines() if "get(" in line)
    count = len(slack.replies(channel, ts))
    slack.click("U1", channel, answer["ts"], "code")
    [told] = await slack.until(lambda: slack.world.ephemerals or slack.replies(channel, ts)[count:])
    assert shown(told).count(CODE) == 2


@pytest.mark.parametrize("channel", ["C1", "DU1"])
async def test_code_within_a_line_is_shown_byte_for_byte(slack, service, app, channel):
    line = "Write `<!here>` or `` a`<@U2> ``, not <!channel>."

    async def script(turn):
        turn.reply.step(1)
        text = f"So **this**:\n{line}\n`x < 1` is `1`."
        for letter in text:
            turn.reply.text(letter)
        return text

    service.script = script
    ts = slack.say("U1", channel, "<@UBOT> go")
    await slack.until(lambda: slack.status(channel, ts) == "active")
    [answer] = slack.replies(channel, ts)
    before, shown_line, after = answer["blocks"][:3]
    assert (before["text"], after["text"]) == ("So **this**:\n", "`x < 1` is `1`.")
    [section] = shown_line["elements"]
    assert [(part["text"], part.get("style")) for part in section["elements"]] == [
        ("Write ", None),
        ("<!here>", {"code": True}),
        (" or ", None),
        ("a`<@U2>", {"code": True}),
        (", not <!channel>.", None),
    ]


async def test_code_of_a_person_is_shown_byte_for_byte(slack, service, app):
    async def script(turn):
        await turn.run(0, turn.request.text, "ok\n")
        return turn.done()

    service.script = script
    slack.command("U1", "C1", "/py", CODE.replace("<", "&lt;").replace(">", "&gt;"))
    [answer] = await slack.until(
        lambda: [m for m in slack.world.messages.values() if m.get("bot_id") and CODE in shown(m)]
    )
    await slack.until(lambda: "'stop'" not in str(answer))
    assert CODE in shown(answer)
