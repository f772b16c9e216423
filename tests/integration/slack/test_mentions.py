"""A mention in a channel, and what comes of it."""

import asyncio
import io
import random
import re
import zipfile

import pytest

from interpreter_bot import events, values
from tests.fakes import conversations as fake
from tests.integration.slack.worlds import connect_platform, recent_text

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


async def test_mention_is_answered_in_its_thread(slack, service, app):
    ts = slack.say("U1", "C1", "<@UBOT> what is 2 &lt; 3?")
    [answer] = await slack.until(lambda: slack.answers("C1", ts))
    assert answer["blocks"][0]["text"] == "echo: what is 2 < 3?"
    assert answer["thread_ts"] == ts
    [request] = service.requests
    assert request.key == values.SessionKey("slack", "T1", "C1", ts)
    assert request.text == "what is 2 < 3?"
    assert (request.person.id, request.person.name) == ("U1", "Person U1")
    await slack.until(lambda: slack.status("C1", ts) == "active")
    assert [s["status"] for s in slack.world.statuses] == ["processing", "active"]
    kinds = [block["type"] for block in answer["blocks"]]
    assert kinds == ["markdown"], "a brief answer has nothing below it"


@pytest.mark.parametrize("channel", ["C1", "DU1"])
async def test_the_last_words_come_first_then_table_pictures_and_one_batch_of_files(
    slack, service, app, channel
):
    going = asyncio.Event()

    async def script(turn):
        turn.reply.step(1)
        turn.reply.text("I will **look**.")
        turn.reply.writing("print(")
        await turn.reply.code(0, "print('hi')\nplot()")
        turn.reply.output(0, values.Text("stdout", "hi\n"))
        turn.reply.output(0, values.Image(mime="image/png", data=PNG, plain="<Figure 1>"))
        turn.reply.output(
            0,
            values.Table(
                columns=("", "a"), rows=(("0", "1"),), row_count=1, column_count=1, index_count=1
            ),
        )
        turn.reply.finished(0, fake.finished_well())
        await going.wait()
        turn.reply.step(2)
        turn.reply.text("There it is.")
        turn.make(0, "out/report.csv", b"a,b\n1,2\n")
        turn.reply.usage(values.Usage(steps=2, input_tokens=10, output_tokens=5))
        return events.TurnEnded(status=values.TurnStatus.DONE, text="There it is.", seconds=1.2)

    service.script = script
    ts = slack.say("U1", channel, "<@UBOT> plot")
    is_streamed = channel == "DU1"
    await slack.until(lambda: "I will **look**." in str(slack.replies(channel, ts)))
    if not is_streamed:
        # What code printed is seen while it runs, where it can be taken away again.
        await slack.until(lambda: "```\\nhi\\n```" in str(slack.replies(channel, ts)))
    [answer, *_] = slack.replies(channel, ts)
    going.set()
    await slack.until(lambda: slack.world.batches)
    [answer, pictures, files] = slack.answers(channel, ts)
    kinds = [block["type"] for block in answer["blocks"]]
    assert kinds == ["markdown", "table", "actions", "context_actions"]
    assert answer["blocks"][0]["text"].startswith("There it is.\n\n_1 run · ")
    assert ("own Python" in answer["blocks"][0]["text"]) == (channel == "DU1")
    assert [block["type"] for block in pictures["blocks"]] == ["image"]
    [batch] = slack.world.batches
    assert [f["name"] for f in batch["files"]] == ["report.csv"]
    assert batch["thread_ts"] == ts == files["thread_ts"]
    assert slack.world.contents[batch["files"][0]["id"]] == b"a,b\n1,2\n"
    slack.click("U1", channel, answer["ts"], "code")
    await slack.until(
        lambda: "Output:" in str([slack.world.ephemerals, slack.answers(channel, ts)])
    )


async def test_a_picture_that_was_saved_and_shown_is_posted_once(slack, service, app):
    async def script(turn):
        await turn.reply.code(0, "plot()")
        turn.reply.output(0, values.Image(mime="image/png", data=PNG, plain="<Figure 1>"))
        turn.reply.finished(0, fake.finished_well())
        turn.make(0, "plot.png", PNG)
        turn.make(0, "report.csv", b"a,b\n1,2\n")
        return events.TurnEnded(status=values.TurnStatus.DONE, text="There it is.", seconds=1.2)

    service.script = script
    slack.say("U1", "DU1", "<@UBOT> plot")
    await slack.until(lambda: slack.world.batches)
    [batch] = slack.world.batches
    assert [file["name"] for file in batch["files"]] == ["report.csv"]


async def test_words_of_others_before_a_mention_come_along_as_names_and_text(slack, service, app):
    root = slack.say("U2", "C1", "Sales fell &lt;again&gt;")
    slack.say("U3", "C1", "by 3 %", thread=root)
    slack.say("U1", "C1", "<@UBOT> why?", thread=root)
    await slack.until(lambda: service.ends)
    [request] = service.requests
    assert recent_text(request) == "Person U2: Sales fell <again>\nPerson U3: by 3 %"
    assert request.text == "why?"


@pytest.mark.parametrize(
    ("limit", "expected"), [(2, "another app: disk full\nPerson U2: again"), (0, "")]
)
async def test_mention_brings_the_last_messages_of_its_channel(slack, service, limit, expected):
    async with connect_platform(slack, service, context_messages=limit, heard_bots=("B9",)):
        slack.say("U2", "C1", "long ago")
        slack.say("U9", "C1", "disk full", bot_id="B9", subtype="bot_message")
        slack.say("U2", "C1", "again")
        slack.say("U1", "C1", "<@UBOT> what does this alert mean?")
        await slack.until(lambda: service.ends)
    [request] = service.requests
    assert recent_text(request) == expected


async def test_words_in_a_thread_of_others_are_left_alone(slack, service, app):
    root = slack.say("U1", "C1", "lunch?")
    slack.say("U1", "C1", "anyone?", thread=root)
    await slack.until(lambda: all(d.acknowledged_after is not None for d in slack.deliveries))
    assert service.requests == []
    assert slack.called("conversations.replies") == []


async def test_mentions_in_generated_text_reach_nobody(slack, service, app):
    nasty = "<!channel> <!here|x> <@U2> <!subteam^S1> @channel <#C1> <https://evil.example|bank>"

    async def script(turn):
        turn.reply.step(1)
        for letter in nasty:
            turn.reply.text(letter)
        await turn.reply.code(0, f"print('{nasty}')")
        turn.reply.announcement(0, nasty)
        turn.reply.output(0, values.Text("stdout", nasty))
        turn.reply.output(0, values.Result(plain=nasty))
        turn.reply.finished(0, values.Finished(values.Ending.ERROR, 1.0, nasty))
        turn.reply.step(2)
        turn.reply.text("[https://bank.com](https://evil.example/x)")
        turn.make(0, f"{nasty.replace('/', '')}.txt", b"x")
        return events.TurnEnded(status=values.TurnStatus.FAILED, sentence=nasty)

    service.script = script
    ts = slack.say("U1", "C1", "<@UBOT> go")
    await slack.until(lambda: slack.world.batches)
    answer = slack.answers("C1", ts)[0]
    assert "channel>" in str(answer["blocks"]), "it is shown all the same"
    assert "bank.com" not in str(answer)
    assert slack.pings == []


def words(message):
    if "markdown" in message:
        return message["markdown"]
    return "".join(block["text"] for block in message["blocks"] if block["type"] == "markdown")


async def test_text_of_all_scripts_survives(slack, service, app):
    said = "مرحبا שלום 你好 👩‍👩‍👧‍👦 🏴󠁧󠁢󠁥󠁮󠁧󠁿 é\n\n" * 300
    ts = slack.say("U1", "DU1", f"<@UBOT> {said}")
    await slack.until(lambda: service.ends)
    answers = await slack.until(
        lambda: slack.status("DU1", ts) == "active" and slack.answers("DU1", ts)
    )
    joined = "".join(map(words, answers))
    assert joined.replace("\n", "") == f"echo: {said}".replace("\n", "").strip()


async def test_long_answer_goes_on_in_further_messages_with_fences_closed(slack, service, app):
    code = "\n".join(f"line {number:05}" for number in range(2_000))

    async def script(turn):
        turn.reply.step(1)
        text = f"Look:\n\n```python\n{code}\n```\nDone."
        for start in range(0, len(text), 100):
            turn.reply.text(text[start : start + 100])
        return text

    service.script = script
    ts = slack.say("U1", "DU1", "<@UBOT> long")
    await slack.until(lambda: slack.status("DU1", ts) == "active")
    answers = [words(answer) for answer in slack.answers("DU1", ts)]
    assert len(answers) == 4
    for answer in answers:
        assert len(answer) <= 10_000
        assert answer.count("```") % 2 == 0
    assert all("python" in answer.split("\n")[0] for answer in answers[1:])
    shown = [line for a in answers for line in a.splitlines() if line.startswith("line")]
    assert shown == code.splitlines()


async def test_stream_that_slack_ended_goes_on_by_editing(slack, service, app):
    async def script(turn):
        turn.reply.step(1)
        turn.reply.text("one ")
        message = await slack.until(lambda: slack.replies(*turn.request.id.split("/")))
        message[0]["stream"] = "expired"
        turn.reply.text("two ")
        await asyncio.sleep(0.3)
        turn.reply.text("three")
        return

    service.script = script
    ts = slack.say("U1", "DU1", "<@UBOT> slow")
    await slack.until(lambda: slack.status("DU1", ts) == "active")
    [answer] = slack.answers("DU1", ts)
    assert answer["blocks"][0]["text"] == "one two three"


@pytest.mark.parametrize("fault", ["no streams", "not there"])
async def test_without_streams_the_answer_is_posted_and_edited(slack, service, app, fault):
    slack.can_stream = fault != "no streams"
    slack.world.channels["DU1"].can_stream = fault != "not there"
    going = asyncio.Event()

    async def script(turn):
        turn.reply.step(1)
        turn.reply.text("it has begun")
        await going.wait()
        turn.reply.text(" and ended")
        return

    service.script = script
    ts = slack.say("U1", "DU1", "<@UBOT> go")
    [answer] = await slack.until(
        lambda: [
            m
            for m in slack.replies("DU1", ts)
            if m.get("blocks", [{}])[0].get("text") == "it has begun"
        ]
    )
    assert answer["blocks"][-1]["elements"][0]["action_id"] == "stop"
    going.set()
    await slack.until(lambda: "stop" not in str(answer["blocks"]))
    assert answer["blocks"][0]["text"] == "it has begun and ended"
    assert len(slack.replies("DU1", ts)) == 1


async def test_final_words_take_the_place_of_what_was_streamed(slack, service, app):
    async def script(turn):
        turn.reply.step(1)
        turn.reply.text("See [it](sandbox:/mnt/data/x.csv).")
        await slack.until(lambda: slack.replies(*turn.request.id.split("/")))
        return "See it."

    service.script = script
    ts = slack.say("U1", "DU1", "<@UBOT> go")
    await slack.until(lambda: slack.status("DU1", ts) == "active")
    [answer] = slack.answers("DU1", ts)
    assert words(answer) == "See it."


async def test_long_output_is_a_file_with_both_ends_shown(slack, service, app):
    printed = "".join(f"{number}\n" for number in range(5_000))

    async def script(turn):
        turn.reply.step(1)
        await turn.reply.code(0, "for …")
        turn.reply.output(0, values.Text("stdout", printed))
        turn.reply.finished(0, fake.finished_well())

    service.script = script
    ts = slack.say("U1", "C1", "<@UBOT> count")
    await slack.until(lambda: slack.world.batches)
    [file] = slack.world.batches[0]["files"]
    assert slack.world.contents[file["id"]].decode() == printed
    text = slack.answers("C1", ts)[0]["text"]
    assert "0\n1\n2\n" in text
    assert " of 5,000 lines shown …\n" in text
    assert "\n4999" in text
    assert "\n3000" not in text


async def test_table_too_large_for_a_block_is_csv(slack, service, app):
    rows = tuple((str(n), "x" * 200) for n in range(99))
    table = values.Table(columns=("n", "x"), rows=rows, row_count=99, column_count=2)

    async def script(turn):
        turn.reply.step(1)
        await turn.reply.code(0, "df")
        turn.reply.output(0, table)
        turn.reply.finished(0, fake.finished_well())

    service.script = script
    slack.say("U1", "C1", "<@UBOT> df")
    await slack.until(lambda: slack.world.batches)
    [file] = slack.world.batches[0]["files"]
    assert file["name"].endswith(".csv")
    assert slack.world.contents[file["id"]].decode().count("\n") == 100


async def test_file_too_large_is_zipped_else_refused_with_the_reason(slack, service, app):
    slack.max_upload_bytes = 2_000_000
    noise = random.Random(1).randbytes(5_000_000)

    async def script(turn):
        turn.reply.step(1)
        turn.reply.text("Files:")
        turn.make(0, "zeros.bin", bytes(5_000_000))
        turn.make(0, "noise.bin", noise)
        turn.make(0, "empty.txt", b"")

    service.script = script
    ts = slack.say("U1", "C1", "<@UBOT> go")
    await slack.until(lambda: slack.status("C1", ts) == "active")
    _, files, told = slack.answers("C1", ts)
    assert [f["name"] for f in files["files"]] == ["zeros.bin.zip"]
    packed = zipfile.ZipFile(io.BytesIO(slack.world.contents[files["files"][0]["id"]]))
    assert packed.read("zeros.bin") == bytes(5_000_000)
    said = told["blocks"][0]["text"]
    assert "`noise.bin` (4.77 MiB) is too large to send here: it is 4.77 MiB compressed" in said
    assert "`empty.txt` could not be sent: it is empty" in said


@pytest.mark.parametrize("shows", [False, True])
async def test_code_is_shown_if_that_is_chosen(slack, service, app, shows):
    async def script(turn):
        turn.reply.step(1)
        await turn.reply.code(0, "print(12345)")
        turn.reply.finished(0, fake.finished_well())
        turn.reply.step(2)
        turn.reply.text("Done.")

    service.script = script
    await service.places.choose(values.Scope("slack", "T1", person="U1"), "show_code", shows)
    ts = slack.say("U1", "DU1", "<@UBOT> go")
    await slack.until(lambda: slack.status("DU1", ts) == "active")
    [answer] = slack.answers("DU1", ts)
    assert ("```py\nprint(12345)\n```" in words(answer)) == shows


async def test_request_that_waits_says_so_and_is_answered(slack, service, app):
    slack.has_agents = False
    going = asyncio.Event()

    async def script(turn):
        await going.wait()
        return await fake.echo(turn)

    service.script = script
    ts = slack.say("U1", "C1", "<@UBOT> one")
    await slack.until(lambda: service.requests)
    slack.say("U2", "C1", "<@UBOT> two", thread=ts)
    await slack.until(
        lambda: [
            m for m in slack.replies("C1", ts) if "Queued: 1 request ahead" in str(m["blocks"])
        ]
    )
    going.set()
    await slack.until(lambda: len(service.ends) == 2)
    await slack.until(
        lambda: (
            [m["blocks"][0]["text"] for m in slack.replies("C1", ts)] == ["echo: one", "echo: two"]
        )
    )


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_long_text_and_large_table_both_fit(slack, service, app, is_streamed):
    slack.has_agents = is_streamed
    rows = tuple((str(n), "x" * 85) for n in range(95))
    table = values.Table(columns=("n", "x"), rows=rows, row_count=95, column_count=2)

    async def script(turn):
        turn.reply.step(1)
        await turn.reply.code(0, "df")
        turn.reply.output(0, table)
        turn.reply.finished(0, fake.finished_well())
        turn.reply.step(2)
        turn.reply.text("word " * 1_700)

    service.script = script
    ts = slack.say("U1", "DU1", "<@UBOT> df")
    await slack.until(
        lambda: [b for m in slack.answers("DU1", ts) for b in m["blocks"] if b["type"] == "table"]
    )
    await slack.until(lambda: service.ends)


async def test_request_that_waits_in_a_direct_message_says_so(slack, service, app):
    going = asyncio.Event()

    async def script(turn):
        await going.wait()
        return await fake.echo(turn)

    service.script = script
    ts = slack.say("U1", "DU1", "<@UBOT> one")
    await slack.until(lambda: service.requests)
    slack.say("U1", "DU1", "<@UBOT> two", thread=ts)
    await slack.until(lambda: "Queued: 1 request ahead" in str(slack.replies("DU1", ts)))
    going.set()
    await slack.until(lambda: len(slack.answers("DU1", ts)) == 2)


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_what_a_turn_waits_for_is_shown_and_goes_away(slack, service, app, is_streamed):
    slack.can_stream = is_streamed
    going = asyncio.Event()

    async def script(turn):
        turn.reply.progress("Downloading the demo model (1.1 GB). Free.", 0.25)
        await going.wait()
        turn.reply.progress("", None)
        return await fake.echo(turn)

    service.script = script
    ts = slack.say("U1", "DU1", "<@UBOT> one")
    said = "⏳ 25%: Downloading the demo model (1.1 GB). Free. ("
    if is_streamed:
        [message] = await slack.until(
            lambda: [m for m in slack.replies("DU1", ts) if m.get("tasks")]
        )
        await slack.until(lambda: said in message["tasks"]["status"]["title"])
    else:
        await slack.until(
            lambda: [m for m in slack.replies("DU1", ts) if said in str(m.get("blocks"))]
        )
    going.set()
    [answer] = await slack.until(
        lambda: [m for m in slack.answers("DU1", ts) if "echo: one" in str(m)]
    )
    if is_streamed:
        assert message["tasks"]["status"]["status"] == "complete"
    assert "Downloading" not in str(answer["blocks"])


@pytest.mark.first_case
@pytest.mark.parametrize("channel", ["C1", "DU1"])
@pytest.mark.parametrize("runs", [True, False])
async def test_who_waits_sees_for_how_long_and_for_what(slack, service, app, channel, runs):
    gate = asyncio.Event()

    async def script(turn):
        turn.reply.step(1)
        if runs:
            await turn.reply.code(0, "sleep()")
        await gate.wait()
        if runs:
            turn.reply.finished(0, fake.finished_well())
        return "over"

    service.script = script
    ts = slack.say("U1", channel, "<@UBOT> go")
    words = r"running … \([5-9] s, at most 1 min\)" if runs else r"thinking … \([5-9] s\)"
    await slack.until(lambda: re.search(words, str(slack.replies(channel, ts))))
    gate.set()
    await slack.until(lambda: slack.status(channel, ts) == "active")
    assert not re.search(words, str([message["blocks"] for message in slack.replies(channel, ts)]))
