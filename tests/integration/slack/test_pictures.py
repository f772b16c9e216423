"""Last words, then pictures in their order, whatever this Slack can show; and files."""

import asyncio

import pytest

from interpreter_bot import events, values
from tests.fakes import conversations as fake
from tests.fakes.slack_server import servers
from tests.integration.slack.worlds import connect_platform

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
PICTURES = ["figure-1.png", "figure-2.png", "figure-3.png"]
READ = ["three", *PICTURES]


def drawing(*, pause=0.0):
    """Say one, draw, say two, draw twice, say three."""

    async def script(turn):
        for step, (word, figures) in enumerate((("one", 1), ("two", 2), ("three", 0))):
            turn.reply.step(step + 1)
            turn.reply.text(f"{word}!")
            if figures:
                await turn.reply.code(step, f"plot({step})")
                for _ in range(figures):
                    turn.reply.output(
                        step, values.Image(mime="image/png", data=PNG, plain="<Figure>")
                    )
                turn.reply.finished(step, fake.finished_well())
            await asyncio.sleep(pause)
        return "three!"

    return script


def read(slack, channel, ts):
    """Read a thread as people see it: words and names of pictures, in order."""
    seen = []
    for message in slack.answers(channel, ts):
        parts = [file["name"] for file in message.get("files", ())]
        parts += [message.get("markdown", "")] if "markdown" in message else []
        for block in message.get("blocks", ()):
            parts += [block["title"]["text"]] if block["type"] == "image" else []
            parts += [block["text"]] if block["type"] == "markdown" else []
        for part in parts:
            words = [word for word in ("one", "two", "three") if f"{word}!" in part]
            seen += [part] if part.endswith(".png") else words
    return seen


async def answered(slack, channel="C1", said="<@UBOT> draw"):
    ts = slack.say("U1", channel, said)
    await slack.until(lambda: slack.status(channel, ts) == "active")
    return ts


@pytest.mark.parametrize("channel", ["C1", "DU1"])
@pytest.mark.parametrize("pause", [0.0, 0.3])
async def test_last_words_come_first_then_pictures_in_order(slack, service, app, channel, pause):
    service.script = drawing(pause=pause)
    ts = await answered(slack, channel)
    assert read(slack, channel, ts) == READ
    assert slack.world.batches == []
    assert slack.answers(channel, ts)[0]["blocks"][-1]["type"] == "context_actions"


async def test_quick_answer_is_two_messages_with_its_pictures_in_the_second(slack, service):
    service.script = drawing()
    async with connect_platform(slack, service, editing_seconds=5):
        ts = await answered(slack)
    first, second = slack.answers("C1", ts)
    kinds = [block["type"] for block in second["blocks"]]
    assert kinds == ["image", "image", "image"]
    assert [block["type"] for block in first["blocks"]] == [
        "markdown",
        "actions",
        "context_actions",
    ]


@pytest.mark.parametrize("channel", ["C1", "DU1"])
@pytest.mark.parametrize("pause", [0.0, 0.3])
async def test_where_no_block_shows_pictures_they_are_files_in_their_places(
    slack, service, app, channel, pause
):
    slack.has_picture_blocks = False
    service.script = drawing(pause=pause)
    ts = await answered(slack, channel)
    slack.forgive("chat.postMessage: invalid_blocks")
    assert read(slack, channel, ts) == READ
    assert [len(batch["files"]) for batch in slack.world.batches] == [3]
    service.script = drawing()
    kept = len(slack.called("files.completeUploadExternal"))
    again = await answered(slack, channel, "<@UBOT> again")
    assert read(slack, channel, again) == READ
    # That it cannot be is remembered: no picture is brought there twice.
    assert len(slack.called("files.completeUploadExternal")) == kept + 1


async def test_picture_that_slack_does_not_look_at_in_time_is_a_file(slack, service):
    slack.sharing_seconds = 0.3
    service.script = drawing()
    async with connect_platform(slack, service, sharing_seconds=0.1):
        ts = await answered(slack)
    assert [word for word in read(slack, "C1", ts) if word[0] != "f"] == ["three"]
    # Slack is as slow to share them, so they may have been sent again.
    names = [file["name"] for batch in slack.world.batches for file in batch["files"]]
    assert names[:3] == PICTURES


@pytest.mark.parametrize("channel", ["C1", "DU1"])
async def test_answer_without_last_words_has_words_output_and_pictures_in_order(
    slack, service, app, channel
):
    async def script(turn):
        for step in (1, 2):
            turn.reply.step(step)
            turn.reply.text(f"{('one', 'two')[step - 1]}!")
            figure = values.Image(mime="image/png", data=PNG, plain="<Figure>")
            await turn.run(step - 1, "plot()", "three!\n", figure)
        return events.TurnEnded(status=values.TurnStatus.FAILED, sentence="The model is away.")

    service.script = script
    ts = await answered(slack, channel)
    in_order = ["one", "three", "figure-1.png", "two", "three", "figure-2.png"]
    assert read(slack, channel, ts) == in_order


async def test_raw_code_has_its_pictures_in_the_thread_below(slack, service, app):
    service.script = drawing()
    slack.command("U1", "C1", "/py", "plot()")
    await slack.until(lambda: service.ends)

    def shown():
        return [
            (message, block)
            for message in slack.world.messages.values()
            for block in message.get("blocks", ())
            if block["type"] == "image"
        ]

    # One comes before the others: an edit may pass between them.
    await slack.until(lambda: len(shown()) == 3)
    images = shown()
    [root] = [m for m in slack.world.messages.values() if not m.get("thread_ts")]
    assert "ran:" in str(root["blocks"])
    assert {message["thread_ts"] for message, _ in images} == {root["ts"]}


async def test_many_pictures_are_in_as_few_messages_as_hold_them(slack, service, app):
    async def script(turn):
        await turn.reply.code(0, "plots()")
        for _ in range(60):
            turn.reply.output(0, values.Image(mime="image/png", data=PNG, plain="<Figure>"))
        turn.reply.finished(0, fake.finished_well())

    service.script = script
    ts = await answered(slack)
    names = read(slack, "C1", ts)
    assert names == [f"figure-{number}.png" for number in range(1, 61)]
    assert len(slack.answers("C1", ts)) <= 4


async def test_what_slack_refuses_in_the_middle_of_an_answer_repeats_and_loses_nothing(
    slack, service
):
    async def script(turn):
        turn.reply.step(1)
        turn.reply.text("one!")
        await turn.reply.code(0, "plots()")
        for _ in range(60):
            turn.reply.output(0, values.Image(mime="image/png", data=PNG, plain="<Figure>"))
        turn.reply.finished(0, fake.finished_well())
        turn.reply.step(2)
        turn.reply.text("two!")
        return "two!"

    posted = []

    def choose_fault(method, arguments):
        if method != "chat.postMessage" or "'image'" not in str(arguments.get("blocks")):
            return None
        posted.append(method)
        return servers.Fault("error", error="invalid_blocks") if len(posted) > 1 else None

    slack.choose_fault = choose_fault
    service.script = script
    async with connect_platform(slack, service, editing_seconds=5):
        ts = await answered(slack)
        await slack.until(lambda: "two" in read(slack, "C1", ts))
    figures = [f"figure-{number}.png" for number in range(1, 61)]
    assert read(slack, "C1", ts) == ["two", *figures]
    # Nor is it tried again and again.
    assert len(posted) == 2


async def test_answer_in_a_channel_grows_for_all_who_look_on(slack, service, app):
    going = asyncio.Event()

    async def script(turn):
        turn.reply.step(1)
        turn.reply.text("first words")
        await asyncio.sleep(0.2)
        turn.reply.text(", and more of them")
        await going.wait()

    service.script = script
    ts = slack.say("U1", "C1", "<@UBOT> go")
    try:
        for user in ("U1", "U2"):
            await slack.until(
                lambda user=user: (
                    slack.replies("C1", ts)
                    and "and more of them"
                    in slack.text_seen_by(user, "C1", slack.replies("C1", ts)[0]["ts"])
                )
            )
        assert slack.status("C1", ts) == "processing"
    finally:
        going.set()
    await slack.until(lambda: slack.status("C1", ts) == "active")


@pytest.mark.parametrize("times", [1, 2])
async def test_file_that_slack_forgets_to_share_is_sent_again_or_said(slack, service, app, times):
    async def script(turn):
        turn.reply.text("Here.")
        turn.make(0, "a.csv", b"a\n")

    slack.unshared_batches = times
    service.script = script
    ts = slack.say("U1", "C1", "<@UBOT> go")
    said = "`a.csv` could not be sent: Slack took it and does not show it."
    if times == 1:
        [batch] = await slack.until(lambda: slack.world.batches)
        assert [file["name"] for file in batch["files"]] == ["a.csv"]
    else:
        await slack.until(lambda: said in str(slack.answers("C1", ts)))
    assert len(slack.called("files.completeUploadExternal")) == 2
