"""Somebody mentions the bot in a channel."""

import asyncio
import re
import time

import pytest

from interpreter_bot import values
from tests.fakes.discord_server import worlds
from tests.integration.discord import steps

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 100


async def test_opens_a_thread_and_answers_there(discord_server, lab, connect, until):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect() as service:
        discord_server.say(alice, channel, f"{discord_server.bot.mention} what is *two* and two?")
        thread = await steps.wait_for_thread(channel)
        await until(lambda: steps.is_final(thread))

    assert thread.name == "what is *two* and two?"
    assert [m.content for m in thread.bot_messages] == ["You said: what is *two* and two?"]
    assert channel.bot_messages == []
    request = service.handled_requests[0]
    assert request.key == values.SessionKey("discord", str(lab.id), str(channel.id), str(thread.id))
    assert (request.person.id, request.person.name) == (str(alice.id), "Alice")
    assert (request.text, request.is_code) == ("what is *two* and two?", False)


async def test_the_role_that_discord_makes_for_the_bot_stands_for_it(
    discord_server, lab, connect, until
):
    alice, channel = lab.person("alice"), lab.channel("general")
    own_role, staff = worlds.Role("interpreter", bot=discord_server.bot), lab.role("staff")
    lab.roles.append(own_role)
    async with connect() as service:
        discord_server.say(alice, channel, f"{staff.mention} lunch?")
        discord_server.say(alice, channel, f"{own_role.mention} hello")
        thread = await steps.wait_for_thread(channel)
        await until(lambda: steps.is_final(thread))
    assert [request.text for request in service.handled_requests] == ["hello"]


async def test_text_is_edited_in_place_at_the_pace(discord_server, lab, connect, until):
    pace, began = 0.2, 0.0

    async def script(turn):
        turn.reply.step(1)
        for number in range(40):
            turn.reply.text(f"{number} ")
            await asyncio.sleep(0.02)
        return turn.done(" ".join(map(str, range(40))))

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(script, pace_seconds=pace) as service:
        take = service.handle

        async def handle(request, reply):
            nonlocal began
            began = time.monotonic()
            return await take(request, reply)

        service.handle = handle
        discord_server.say(alice, channel, f"{discord_server.bot.mention} count")
        thread = await steps.wait_for_thread(channel)
        await until(lambda: steps.is_final(thread))

    (answer,) = thread.bot_messages
    times = [when - began for when, _ in answer.forms]
    assert answer.content == " ".join(map(str, range(40)))
    assert len(times) >= 3
    # Any may be late on a busy machine, so that the next seems to come soon; none is early.
    assert all(when >= number * pace for number, when in enumerate(times[:-1])), times
    assert discord_server.rest.buckets.breaches == []
    assert thread.id in discord_server.rest.typing


async def test_the_last_words_come_first_then_pictures_and_files(
    discord_server, lab, connect, until
):
    going = asyncio.Event()

    async def script(turn):
        turn.reply.step(1)
        turn.reply.text("Let me see.")
        turn.reply.writing("print('he")
        await turn.run(
            0, "print('hello')\nplot()", "hello\n", values.Image(mime="image/png", data=PNG)
        )
        turn.reply.step(2)
        await going.wait()
        turn.make(0, "report.csv", b"a,b\n1,2\n")
        return turn.done("That was it.", seconds=3.0)

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(script):
        discord_server.say(alice, channel, f"{discord_server.bot.mention} plot")
        thread = await steps.wait_for_thread(channel)
        await until(lambda: thread.bot_messages and thread.bot_messages[0].files)
        assert re.search(r"Let me see\.[^🔹]*```\nhello\n```", thread.bot_messages[0].content)
        going.set()
        await until(lambda: "Show code" in thread.bot_messages[-1].buttons)
        [answer] = thread.bot_messages
        assert re.fullmatch(r"That was it\.\n-# 1 run · \S+ s", answer.content)
        assert answer.files == {"image-1.png": PNG, "report.csv": b"a,b\n1,2\n"}
        assert list(answer.buttons) == ["Show code", "Re-run", "Notebook"]
        shown = await discord_server.click(alice, answer, "Show code")
        text = await steps.wait_for_final_text(shown)
    assert text == (
        "-# Let me see.\n```py\nprint('hello')\nplot()\n```\n-# Output:\n```\nhello\n```"
    )


async def test_words_before_code_stay_below_the_last_if_they_say_more(discord_server, lab, connect):
    finding = "Sales fell:\n- in May by 3 %\n- in June by 4 %"

    async def script(turn):
        turn.reply.step(1)
        turn.reply.text(finding)
        await turn.run(0, "plot()", "hello\n", values.Image(mime="image/png", data=PNG))
        turn.reply.step(2)
        return turn.done("The chart shows it.")

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(script):
        thread = await steps.ask_in_thread(discord_server, alice, channel)
    [answer] = thread.bot_messages
    assert answer.content.startswith(f"The chart shows it.\n\n{finding}\n")


@pytest.mark.parametrize("code", ["", "2**100"])
async def test_a_short_answer_carries_nothing_below_it(discord_server, lab, connect, until, code):
    async def script(turn):
        turn.reply.step(1)
        if code:
            await turn.run(0, code, "1267650600228229401496703205376\n")
            turn.reply.step(2)
        return turn.done("It is about 1.27e30.")

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(script):
        thread = await steps.ask_in_thread(discord_server, alice, channel)
    [answer] = thread.bot_messages
    output = "\n```\n1267650600228229401496703205376\n```" if code else ""
    assert answer.content == f"It is about 1.27e30.{output}"
    assert answer.buttons == {}


async def test_while_people_wait_they_see_time_and_limit(discord_server, lab, connect, until):
    gates = [asyncio.Event() for _ in range(3)]

    async def script(turn):
        turn.reply.step(1)
        await gates[0].wait()
        turn.reply.progress("Starting Python.", None)
        await gates[1].wait()
        turn.reply.progress("", None)
        await turn.reply.code(0, "slow()")
        await gates[2].wait()
        turn.reply.finished(0, values.Finished(values.Ending.OK, 0.1))
        return turn.done("Done.")

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(script):
        discord_server.say(alice, channel, f"{discord_server.bot.mention} go")
        thread = await steps.wait_for_thread(channel)
        await until(lambda: thread.bot_messages)
        [answer] = thread.bot_messages
        for gate, words in zip(gates, ("thinking …", "Starting Python.", "running …"), strict=True):
            await until(lambda words=words: f"{words} (began" in answer.content)
            began = re.search(r"\(began <t:(\d+):R>", answer.content)
            assert abs(time.time() - int(began[1])) < 15
            assert (", at most 1 min" in answer.content) == (words == "running …")
            gate.set()
        await until(lambda: answer.content.endswith("Done."))


async def test_traceback_of_code_that_failed_is_a_button_away(discord_server, lab, connect):
    error = values.Error("KeyError", "'a'", "Cell 1, line 1\n    x['a']\nKeyError: 'a'")

    async def script(turn):
        turn.reply.step(1)
        await turn.run(0, "x['a']", error, ending=values.Ending.ERROR)
        turn.reply.step(2)
        return turn.done("There is no column a.")

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(script):
        thread = await steps.ask_in_thread(discord_server, alice, channel)
        [answer] = thread.bot_messages
        assert re.fullmatch(r"There is no column a\.\n-# 1 run · \S+ s", answer.content)
        shown = await steps.wait_for_final_text(
            await discord_server.click(alice, answer, "Show code")
        )
    assert "```\nCell 1, line 1\n    x['a']\nKeyError: 'a'\n```" in shown


async def test_where_it_may_not_write_the_person_is_told_directly(
    discord_server, lab, connect, until
):
    discord_server.expect(50013)
    alice = lab.person("alice")
    denied = {"send_messages", "send_messages_in_threads", "create_public_threads"}
    channel, direct = lab.channel("quiet", denied=denied), discord_server.direct(alice)
    async with connect():
        discord_server.say(alice, channel, f"{discord_server.bot.mention} hello")
        await until(lambda: direct.bot_messages)
    assert f"cannot answer in <#{channel.id}>" in direct.bot_messages[0].content
    assert [message.thread for message in channel.messages.values()] == [None]


async def test_more_than_ten_files_take_more_messages(discord_server, lab, connect, until):
    async def script(turn):
        turn.reply.step(1)
        await turn.run(0, "make()")
        for number in range(23):
            turn.make(0, f"file-{number}.txt", b"x" * (number + 1))
        return turn.done("Here they are.")

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(script):
        discord_server.say(alice, channel, f"{discord_server.bot.mention} go")
        thread = await steps.wait_for_thread(channel)
        await until(lambda: steps.is_final(thread))

    assert [len(m.attachments) for m in thread.bot_messages] == [10, 10, 3]
    assert {name for m in thread.bot_messages for name in m.files} == {
        f"file-{number}.txt" for number in range(23)
    }


async def test_without_permission_for_threads_it_replies(discord_server, lab, connect, until):
    alice = lab.person("alice")
    channel = lab.channel("strict", denied={"create_public_threads"})
    async with connect() as service:
        asked = discord_server.say(alice, channel, f"{discord_server.bot.mention} hello")
        await until(lambda: steps.is_final(channel))

    (answer,) = channel.bot_messages
    assert answer.reference is asked
    assert answer.content == "You said: hello"
    assert service.handled_requests[0].key.thread == ""
    assert answer.pings == {alice.id}


async def test_refused_threads_are_replied_to(discord_server, lab, connect, until):
    discord_server.plan("POST", "/threads$", status=400, code=160006)
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect():
        asked = discord_server.say(alice, channel, f"{discord_server.bot.mention} hello")
        await until(lambda: steps.is_final(channel))

    assert channel.bot_messages[0].reference is asked


async def test_a_thread_that_is_there_already_is_used(discord_server, lab, connect, until):
    alice, channel = lab.person("alice"), lab.channel("general")
    discord_server.expect(160004)
    async with connect():
        fault = discord_server.plan("POST", "/threads$", kind="cut")
        discord_server.say(alice, channel, f"{discord_server.bot.mention} hello")
        thread = await steps.wait_for_thread(channel)
        await until(lambda: steps.is_final(thread))
    assert fault.times == 0
    assert channel.bot_messages == []


async def test_a_post_in_a_named_forum_needs_no_mention(discord_server, lab, connect):
    alice, forum = lab.person("alice"), lab.channel("help", worlds.FORUM)
    async with connect(forum_channels=(forum.id,)) as service:
        post = discord_server.forum_post(alice, forum, "Sales", "Why did they fall?")
        await steps.wait_for_answers(post)
    assert [request.text for request in service.handled_requests] == ["Why did they fall?"]


async def test_in_a_voice_channel_it_replies(discord_server, lab, connect, until):
    alice, channel = lab.person("alice"), lab.channel("talk", worlds.VOICE)
    async with connect():
        discord_server.say(alice, channel, f"{discord_server.bot.mention} hello")
        await until(lambda: steps.is_final(channel))
    assert channel.bot_messages[0].content == "You said: hello"


async def test_what_is_not_for_it_is_left_alone(discord_server, lab, connect, until):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect() as service:
        discord_server.say(alice, channel, "nobody in particular")
        other = worlds.User("other-bot", is_bot=True)
        lab.members[other] = set()
        discord_server.say(other, channel, f"{discord_server.bot.mention} hello")
        hook = lab.person("hook")
        discord_server.say(hook, channel, f"{discord_server.bot.mention} hello", webhook_id=5)
        discord_server.say(alice, channel, f"{discord_server.bot.mention} last")
        thread = await steps.wait_for_thread(channel)
        await until(lambda: steps.is_final(thread))
    assert [request.text for request in service.handled_requests] == ["last"]
