"""Single requests to Discord fail; answers arrive all the same, and once."""

import asyncio
import itertools
import random
import re

import pytest

from interpreter_bot import values
from tests.fakes.discord_server import worlds
from tests.integration.discord import steps

SEND, EDIT = ("POST", r"/messages$"), ("PATCH", r"/messages/\d+$")


async def _grow(turn):
    turn.reply.step(1)
    for number in range(6):
        turn.reply.text(f"{number} ")
        await asyncio.sleep(0.1)
    return turn.done("0 1 2 3 4 5 and done")


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "limit", "times": 2},
        {"kind": "limit", "times": 1, "is_global": True},
        {"kind": "limit", "times": 3, "is_shared": True, "retry_after": 0.5},
        {"kind": "cut", "times": 1},
        {"kind": "status", "status": 500, "times": 1},
        {"kind": "status", "status": 503, "times": 3},
        {"kind": "ban", "times": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("where", [SEND, EDIT], ids=["send", "edit"])
async def test_an_answer_arrives_once(discord_server, connect, where, fault):
    planned = discord_server.plan(*where, **fault)
    alice = worlds.User("alice")
    direct = discord_server.direct(alice)
    async with connect(_grow):
        discord_server.say(alice, direct, "go")
        await steps.wait_for_answers(direct)
    assert planned.times == 0
    assert [message.content for message in direct.bot_messages] == ["0 1 2 3 4 5 and done"]


async def test_a_deleted_channel_stops_the_turn(discord_server, lab, connect, until):
    discord_server.expect(10003)
    stopped = asyncio.Event()

    async def script(turn):
        turn.reply.step(1)
        try:
            for number in range(600):
                turn.reply.text(f"{number} ")
                await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            stopped.set()
            raise

    alice, channel = lab.person("alice"), lab.channel("general", denied={"create_public_threads"})
    async with connect(script):
        discord_server.say(alice, channel, f"{discord_server.bot.mention} go")
        await until(lambda: channel.bot_messages)
        channel.is_deleted = True
        await asyncio.wait_for(stopped.wait(), 30)


async def test_an_archived_thread_is_opened_again_by_answering(discord_server, lab, connect):
    discord_server.expect(50083)
    alice, channel = lab.person("alice"), lab.channel("general")

    async def script(turn):
        turn.reply.step(1)
        turn.reply.text("begun")
        await asyncio.sleep(0.5)
        thread.is_archived = True
        return turn.done("ended")

    async with connect(script):
        discord_server.say(alice, channel, f"{discord_server.bot.mention} go")
        thread = await steps.wait_for_thread(channel)
        await steps.wait_for_answers(thread)
    assert [message.content for message in thread.bot_messages] == ["ended"]


def _noise(count):
    return random.Random(1).randbytes(count)


async def _give(discord_server, connect, lab, name, data, **chosen):
    async def script(turn):
        turn.reply.step(1)
        await turn.run(0, "make()", "ok\n")
        turn.make(0, name, data)
        turn.make(0, "small.txt", b"small")
        return turn.done("Made.")

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(script, **chosen):
        thread = await steps.ask_in_thread(discord_server, alice, channel)
    files = {name: data for m in thread.bot_messages for name, data in m.files.items()}
    return files, "\n".join(message.content for message in thread.bot_messages)


async def test_a_large_file_is_compressed(discord_server, lab, connect):
    import io
    import zipfile

    data = b"0123456789" * 1_200_000
    files, _ = await _give(discord_server, connect, lab, "big.csv", data)
    assert set(files) == {"big.csv.zip", "small.txt"}
    with zipfile.ZipFile(io.BytesIO(files["big.csv.zip"])) as archive:
        assert archive.read("big.csv") == data


async def test_a_file_that_does_not_compress_is_refused_with_the_reason(
    discord_server, lab, connect
):
    data = _noise(12 * worlds.MIB)
    files, text = await _give(discord_server, connect, lab, "noise.bin", data)
    assert set(files) == {"small.txt"}
    assert "`noise.bin` (12 MiB) is too large to send here" in text
    assert "the limit is 9.94 MiB" in text


async def test_a_better_server_takes_larger_files(discord_server, lab, connect):
    lab.tier = 2
    data = _noise(12 * worlds.MIB)
    files, _ = await _give(discord_server, connect, lab, "noise.bin", data)
    assert files["noise.bin"] == data


async def test_a_file_of_exactly_the_limit_arrives(discord_server, lab, connect):
    data = bytes(10 * worlds.MIB)
    files, _ = await _give(discord_server, connect, lab, "even.bin", data)
    assert set(files) == {"even.bin.zip", "small.txt"}


async def test_a_file_that_is_too_large_for_any_request_comes_in_another_form(
    discord_server, lab, connect
):
    discord_server.expect(40005)
    lab.tier = 3
    data = bytes(26 * worlds.MIB)
    files, text = await _give(discord_server, connect, lab, "huge.bin", data)
    assert set(files) == {"huge.bin.zip", "small.txt"}
    assert "refused" not in text


async def test_files_for_somebody_who_may_send_larger_ones_all_arrive(discord_server, lab, connect):
    data = bytes(12 * worlds.MIB)

    async def script(turn):
        await turn.run(0, "make()", "ok\n")
        turn.make(0, "a.bin", data)
        turn.make(0, "b.bin", data + b"b")
        return turn.done()

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(script):
        done = await discord_server.command(
            alice, channel, "py", {"code": "1"}, user_limit=500 * worlds.MIB
        )
        await steps.wait_for_final_text(done)
        await steps.wait_for_answers(channel)
    found = {name for m in channel.bot_messages for name in m.files}
    assert found == {"a.bin.zip", "b.bin.zip"}


async def test_an_answer_stands_once_even_when_discord_was_away_for_long(discord_server, connect):
    # The few minutes for which Discord knows a nonce are less than half a second here.
    discord_server.rest.nonce_seconds = 0.4
    alice = worlds.User("alice")
    direct = discord_server.direct(alice)
    discord_server.plan("POST", r"/messages$", kind="cut")
    async with connect(_grow, pace_seconds=0.6):
        discord_server.say(alice, direct, "go")
        await steps.wait_for_answers(direct)
    assert [message.content for message in direct.bot_messages] == ["0 1 2 3 4 5 and done"]


async def test_where_threads_are_limited_for_minutes_it_answers_by_a_reply(
    discord_server, lab, connect
):
    alice, channel = lab.person("alice"), lab.channel("general")
    fault = discord_server.plan(
        "POST", "/threads$", kind="limit", retry_after=219.0, is_shared=True
    )
    async with connect():
        asked = discord_server.say(alice, channel, f"{discord_server.bot.mention} hello")
        async with asyncio.timeout(30):
            await steps.wait_for_answers(channel)
    assert fault.times == 0
    assert channel.bot_messages[0].content == "You said: hello"
    assert channel.bot_messages[0].reference is asked
    assert discord_server.rest.typing[0] == channel.id


async def test_a_thread_is_used_before_the_next_one_may_be_opened(discord_server, lab, connect):
    alice, channel = lab.person("alice"), lab.channel("general")
    discord_server.rest.buckets.max_threads = 1
    async with connect(closing_seconds=0.5):
        async with asyncio.timeout(30):
            await steps.ask_in_thread(discord_server, alice, channel)


async def test_long_answers_come_in_pieces_with_fences_closed(discord_server, connect):
    text = "Look:\n```py\n" + "\n".join(f"x{n} = {n}" for n in range(400)) + "\n```\nThat is all."

    async def script(turn):
        turn.reply.step(1)
        turn.reply.text(text)
        return turn.done(text)

    alice = worlds.User("alice")
    direct = discord_server.direct(alice)
    async with connect(script):
        discord_server.say(alice, direct, "go")
        await steps.wait_for_answers(direct, 3)
    assert all(message.content.count("```") == 2 for message in direct.bot_messages)
    joined = "\n".join(message.content for message in direct.bot_messages)
    assert all(f"x{n} = {n}\n" in joined for n in range(400))


_SECTION = """\
#### Part {n}

The words of part {n} go on for a while, so that there is something to read in it. {words}

```py
{code}
```

| name | value |
|---|---|
{rows}

- [x] done {n}
- [ ] open {n}
"""


def _long_answer(parts):
    sections = [
        _SECTION.format(
            n=n,
            words="More of them follow. " * (3 * n),
            code="\n".join(f"part_{n}_line_{k} = {k}" for k in range(12 * n)),
            rows="\n".join(f"| part {n} row {k} | {k} |" for k in range(16 * n)),
        )
        for n in range(1, parts + 1)
    ]
    return "".join(sections) + "\nThis is the conclusion."


async def test_while_an_answer_is_written_its_messages_only_grow(discord_server, connect):
    text = _long_answer(6)

    async def script(turn):
        turn.reply.step(1)
        for place in range(0, len(text), 97):
            turn.reply.text(text[place : place + 97])
            await asyncio.sleep(0.02)
        return turn.done(text)

    alice = worlds.User("alice")
    direct = discord_server.direct(alice)
    async with connect(script, pace_seconds=0.05):
        discord_server.say(alice, direct, "go")
        await steps.wait_for_answers(direct, 4)
    messages = direct.bot_messages
    assert sum(len(message.forms) for message in messages) > 12
    for message in messages:
        forms = [re.sub(r"\n*-# [✍⏳].*", "", form) for _, form in message.forms]
        shrunk = [(a, b) for a, b in itertools.pairwise(forms) if not b.startswith(a)]
        assert shrunk == []
        assert message.content.count("```") % 2 == 0
    assert "This is the conclusion." in messages[-1].content
    joined = "\n".join(message.content for message in messages)
    for n in range(1, 5):
        # Code that fits into one message is in one.
        code = "\n".join(f"part_{n}_line_{k} = {k}" for k in range(12 * n))
        assert f"```py\n{code}\n```" in joined
    tables = [block for block in joined.split("```")[1::2] if " row " in block]
    assert len(tables) > 6
    assert all(block.startswith("\nname") for block in tables)


async def test_very_long_answers_come_as_a_file_too(discord_server, connect):
    text = "\n".join(f"Line {n} of a very long answer." for n in range(1000))

    async def script(turn):
        turn.reply.step(1)
        turn.reply.text(text)
        return turn.done(text)

    alice = worlds.User("alice")
    direct = discord_server.direct(alice)
    async with connect(script):
        discord_server.say(alice, direct, "go")
        await steps.wait_for_answers(direct, 3)
    assert direct.bot_messages[-2].files == {"answer-1.md": text.encode()}
    assert "characters are only in the file" in direct.bot_messages[-2].content
    assert direct.bot_messages[-1].content.endswith("Line 999 of a very long answer.")
    assert len(direct.bot_messages) <= 10


@pytest.mark.parametrize("ends_in_words", [True, False])
async def test_long_output_is_cut_and_attached(discord_server, connect, ends_in_words):
    printed = "".join(f"line {n}\n" for n in range(3000))

    async def script(turn):
        turn.reply.step(1)
        await turn.run(0, "loop()", printed)
        return turn.done("Many lines." if ends_in_words else "")

    alice = worlds.User("alice")
    direct = discord_server.direct(alice)
    async with connect(script):
        discord_server.say(alice, direct, "go")
        await steps.wait_for_answers(direct)
    files = {name: data for m in direct.bot_messages for name, data in m.files.items()}
    assert files == {"output-1.txt": printed.encode()}
    assert ("line 0\n" in direct.bot_messages[0].content) != ends_in_words
    assert len(direct.bot_messages[0].content) < 1500


async def test_tables_are_aligned_and_wide_ones_attached(discord_server, connect):
    narrow = values.Table(
        columns=("", "price"), rows=(("0", "1.5"), ("1", "22.25")), row_count=2, column_count=1
    )
    wide = values.Table(
        columns=tuple(f"column {n}" for n in range(30)),
        rows=(tuple("1234567890" for _ in range(30)),),
        row_count=1,
        column_count=30,
    )

    async def script(turn):
        turn.reply.step(1)
        await turn.run(0, "df", narrow, wide)
        return turn.done("| a | b |\n|---|---|\n| 1 | long cell |")

    alice = worlds.User("alice")
    direct = discord_server.direct(alice)
    async with connect(script):
        discord_server.say(alice, direct, "go")
        await steps.wait_for_answers(direct)
    text = "\n".join(message.content for message in direct.bot_messages)
    assert "   price\n-  -----\n0    1.5\n1  22.25\n" in text
    assert "a  b\n─  ─────────\n1  long cell" in text
    files = {name for m in direct.bot_messages for name in m.files}
    assert files == {"table-1.csv"}
