"""The bot goes and comes again: nothing that was written meanwhile is lost, or answered twice."""

import asyncio

import pytest

from interpreter_bot import events, settings, values
from interpreter_bot.sessions import jobs
from interpreter_bot.wording import session_words
from tests.fakes.discord_server import worlds
from tests.integration.discord import steps


async def test_what_was_written_while_it_was_down_is_answered(
    discord_server, lab, connect, service, until
):
    alice, channel, other = lab.person("alice"), lab.channel("general"), lab.channel("other")
    direct, mention = discord_server.direct(alice), discord_server.bot.mention
    async with connect(service=service):
        thread = await steps.ask_in_thread(discord_server, alice, channel)
        discord_server.say(alice, direct, "directly")
        await steps.wait_for_answers(direct)
    discord_server.say(alice, thread, "in the thread")
    discord_server.say(alice, direct, "directly again")
    discord_server.say(alice, other, f"{mention} in another channel")
    discord_server.say(alice, other, "not for it")
    async with connect(service=service):
        await steps.wait_for_answers(thread, 2)
        await steps.wait_for_answers(direct, 2)
        await steps.wait_for_answers(await steps.wait_for_thread(other))
        discord_server.say(alice, thread, "live")
        await steps.wait_for_answers(thread, 3)
    assert [request.text for request in service.handled_requests[:2]] == ["hello", "directly"]
    assert {request.text for request in service.handled_requests[2:5]} == {
        "in the thread",
        "directly again",
        "in another channel",
    }
    assert [request.text for request in service.handled_requests[5:]] == ["live"]


async def test_what_was_not_for_it_is_not_taken_at_a_later_start(
    discord_server, lab, connect, service
):
    alice, bob, channel = lab.person("alice"), lab.person("bob"), lab.channel("general")
    starter = discord_server.say(alice, channel, "sales")
    thread = discord_server.thread(starter, "sales", alice)
    async with connect(service=service):
        discord_server.say(alice, thread, "FYI the numbers are in")
        discord_server.say(alice, thread, f"{discord_server.bot.mention} plot")
        await steps.wait_for_answers(thread)
        other = discord_server.say(bob, thread, "nice")
        discord_server.say(alice, thread, "is it?")
        await steps.wait_for_answers(thread, 2)
        await asyncio.sleep(0.5)
    discord_server.delete(other)
    discord_server.say(alice, thread, "while it was away")
    async with connect(service=service):
        await steps.wait_for_answers(thread, 3)
        await asyncio.sleep(0.5)
    assert [request.text for request in service.handled_requests] == ["plot", "while it was away"]


async def test_what_is_too_old_is_passed_over(discord_server, lab, connect):
    alice, channel = lab.person("alice"), lab.channel("general")
    discord_server.say(alice, channel, f"{discord_server.bot.mention} before")
    await asyncio.sleep(1.2)
    async with connect(look_back_seconds=0.5) as service:
        discord_server.say(alice, channel, f"{discord_server.bot.mention} after")
        await steps.wait_for_answers(await steps.wait_for_thread(channel))
    assert [request.text for request in service.handled_requests] == ["after"]


async def test_roles_are_looked_up_where_discord_does_not_tell_them(
    discord_server, lab, connect, until
):
    crew = lab.role("crew")
    alice, bob = lab.person("alice", crew), lab.person("bob")
    channel, mention = lab.channel("general"), discord_server.bot.mention
    discord_server.say(alice, channel, f"{mention} of the crew")
    discord_server.say(bob, channel, f"{mention} not of the crew")
    async with connect(roles=(crew.id,)) as service:
        await steps.wait_for_answers(await steps.wait_for_thread(channel))
        told = discord_server.direct(bob)
        await until(lambda: told.bot_messages)
        assert "don't have access" in told.bot_messages[0].content
    assert [request.text for request in service.handled_requests] == ["of the crew"]


async def test_what_was_written_in_a_window_outlives_a_restart(discord_server, lab, connect):
    alice, bob, channel = lab.person("alice"), lab.person("bob"), lab.channel("general")
    about = discord_server.say(bob, channel, "sales are down by 12 percent")
    async with connect():
        code = await discord_server.command(alice, channel, "py", {})
        question = await discord_server.menu(alice, "Ask about this message", about)
    await asyncio.sleep(discord_server.gateway.identify_seconds)
    async with connect() as service:
        file = discord_server.attachment("data.csv", b"a,b\n")
        ran = await discord_server.submit(code, {"text": "print(1)", "files": [file]})
        assert "You said: print(1)" in await steps.wait_for_final_text(ran)
        asked = await discord_server.submit(question, {"text": "why?"})
        assert "You said: why?" in await steps.wait_for_final_text(asked)
    first, second = service.handled_requests
    assert first.is_code
    assert service.contents(first.key)["data.csv"] == b"a,b\n"
    assert "Bob: sales are down by 12 percent" in steps.recent_text(second)


@pytest.mark.parametrize("restricted", ["guilds", "channels"])
async def test_strangers_may_not_write_directly_where_places_are_named(
    discord_server, lab, connect, until, restricted
):
    discord_server.expect(10007)
    other = discord_server.guild("Other")
    alice, eve, channel = lab.person("alice"), other.person("eve"), lab.channel("general")
    hers, evil = discord_server.direct(alice), discord_server.direct(eve)
    allowed = {"guilds": (lab.id,)} if restricted == "guilds" else {"channels": (channel.id,)}
    async with connect(**allowed) as service:
        for _ in range(2):
            discord_server.say(eve, evil, "let me in")
        discord_server.say(alice, hers, "me too")
        await steps.wait_for_answers(hers)
        await until(lambda: len(evil.bot_messages) == 2)
        assert "don't have access" in evil.bot_messages[0].content
        ran = await discord_server.command(alice, hers, "py", {"code": "1"})
        assert "You said: 1" in await steps.wait_for_final_text(ran)
        refused = await discord_server.command(eve, evil, "py", {"code": "1"})
        assert "don't have access" in await steps.wait_for_final_text(refused)
    assert {request.person.id for request in service.handled_requests} == {str(alice.id)}
    # Once for messages and once for commands.
    assert sorted(discord_server.rest.member_lookups) == sorted([alice.id, eve.id] * 2)


async def test_who_installed_it_for_themselves_is_refused(discord_server, connect):
    far = discord_server.guild("Far", has_bot=False)
    eve = far.person("eve")
    async with connect() as service:
        refused = await discord_server.command(
            eve, far.channel("general"), "py", {"code": "1"}, is_user_install=True
        )
        assert "can't be used here" in await steps.wait_for_final_text(refused)
    assert service.handled_requests == []


async def test_a_bot_for_anybody_is_said_to_be_one(discord_server, lab, connect, caplog):
    async with connect(guilds=(lab.id,)):
        assert "Anyone on Discord can use this bot" not in caplog.text
    await asyncio.sleep(discord_server.gateway.identify_seconds)
    async with connect():
        assert "Anyone on Discord can use this bot" in caplog.text
    held = settings.Settings(discord=settings.Discord(token="x"))
    assert held.allowance_on("discord").tokens == 200_000
    assert held.allowance_on("slack").tokens is None
    closed = settings.Settings(discord=settings.Discord(people=(1,)))
    assert closed.allowance_on("discord").tokens is None
    chosen = settings.Settings(allowance=settings.DailyAllowance(tokens=5))
    assert chosen.allowance_on("discord").tokens == 5


async def test_roles_of_a_server_count_in_direct_messages(discord_server, lab, connect, until):
    crew = lab.role("crew")
    alice, bob = lab.person("alice", crew), lab.person("bob")
    hers, his = discord_server.direct(alice), discord_server.direct(bob)
    async with connect(roles=(crew.id,)) as service:
        for _ in range(2):
            discord_server.say(alice, hers, "let me in")
        discord_server.say(bob, his, "me too")
        await steps.wait_for_answers(hers, 2)
        await until(lambda: his.bot_messages)
        assert "don't have access" in his.bot_messages[0].content
        ran = await discord_server.command(alice, hers, "py", {"code": "1"})
        assert "You said: 1" in await steps.wait_for_final_text(ran)
        refused = await discord_server.command(bob, his, "py", {"code": "1"})
        assert "don't have access" in await steps.wait_for_final_text(refused)
    assert {request.person.id for request in service.handled_requests} == {str(alice.id)}
    assert sorted(discord_server.rest.member_lookups) == sorted([alice.id, bob.id] * 2)


async def test_an_edit_of_what_was_answered_before_is_answered_in_its_place(
    discord_server, lab, connect, service, until
):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(service=service):
        asked = discord_server.say(alice, channel, f"{discord_server.bot.mention} one")
        thread = await steps.wait_for_thread(channel)
        await steps.wait_for_answers(thread)
    async with connect(service=service):
        discord_server.edit(asked, f"{discord_server.bot.mention}  one")
        discord_server.edit(asked, f"{discord_server.bot.mention} two")
        discord_server.unfurl(asked)
        await until(lambda: len(service.handled_requests) == 2)
        await until(lambda: thread.bot_messages[-1].content == "You said: two")
    assert len(thread.bot_messages) == 1
    assert service.handled_requests[0].key == service.handled_requests[1].key


async def test_what_was_begun_when_it_left_is_finished(discord_server, connect, lab, until):
    alice = lab.person("alice")
    direct = discord_server.direct(alice)
    async with connect() as service:
        claims, claim = [], service.events.claim

        async def slow_claim(*event, **about):
            claims.append(event)
            await asyncio.sleep(0.5)
            return await claim(*event, **about)

        service.events.claim = slow_claim
        discord_server.say(alice, direct, "just in time")
        await until(lambda: claims)
    assert [message.content for message in direct.bot_messages] == ["You said: just in time"]


async def test_restarts_in_the_middle_of_everything_lose_and_repeat_nothing(
    discord_server, lab, connect, service, until
):
    people = [lab.person(f"person{n}") for n in range(4)]
    channels = [lab.channel(f"channel{n}") for n in range(4)]

    async def speak(number):
        person, channel = people[number], channels[number]
        discord_server.say(person, channel, f"{discord_server.bot.mention} {number}-0.")
        thread = await steps.wait_for_thread(channel)
        for count in range(1, 12):
            # People are a few messages ahead, so each bot leaves some that it has not begun with.
            await wait_until_handled(4 * count - 8)
            discord_server.say(person, thread, f"{number}-{count}.")
        return thread

    async def wait_until_handled(count):
        await until(lambda: len(service.handled_requests) >= count)

    speaking = [asyncio.create_task(speak(number)) for number in range(4)]
    for count in (2, 14, 30):
        async with connect(service=service):
            await wait_until_handled(count)
    async with connect(service=service):
        threads = await asyncio.gather(*speaking)
        await wait_until_handled(48)
    for number, thread in enumerate(threads):
        text = "\n".join(message.content for message in thread.bot_messages)
        said = [text.count(f"You said: {number}-{count}.") for count in range(12)]
        assert said == [1] * 12
    assert len(service.handled_requests) == 48


async def test_a_turn_of_a_bot_that_was_killed_goes_on_in_its_message(
    discord_server, lab, connect, service, until
):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(service=service):
        thread = await steps.ask_in_thread(discord_server, alice, channel)
        key, number = service.handled_requests[0].key, str(int(service.handled_requests[0].id) + 1)
        left = discord_server.post(
            worlds.Message(thread, discord_server.bot, "-# ⏳ running … (began just now)")
        )
        about = {"nonce": "n", "digest": "d", "first_tried_at": 0.0, "message": str(left.id)}
        await service.deliveries.put("discord", number, 0, **about)
        await service.go_on(key, "go on", person=str(alice.id), request_id=number)
        await until(lambda: "You said: go on" in left.content)
    assert len(thread.bot_messages) == 2


async def test_a_turn_with_which_no_bot_can_go_on_ends_in_its_message(
    discord_server, lab, connect, service, until
):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(service=service):
        thread = await steps.ask_in_thread(discord_server, alice, channel)
        key, number = service.handled_requests[0].key, str(int(service.handled_requests[0].id) + 1)
        left = discord_server.post(worlds.Message(thread, discord_server.bot, "-# ⏳ running …"))
        about = {"nonce": "n", "digest": "d", "first_tried_at": 0.0, "message": str(left.id)}
        await service.deliveries.put("discord", number, 0, **about)
        await service.interrupt(key, "print(1)", person=str(alice.id), request_id=number)
        await until(lambda: session_words.TURN_INTERRUPTED in left.content)
        assert "before" in left.content
        assert "Stop" not in left.buttons
        await until(lambda: session_words.ANSWER_INTERRUPTED in thread.bot_messages[-1].content)


async def test_what_a_bot_had_not_begun_with_that_is_gone_is_answered_where_it_was_asked(
    discord_server, lab, connect, service, until
):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(service=service):
        thread = await steps.ask_in_thread(discord_server, alice, channel)
        await service.die_before_beginning()
        await until(lambda: len(service.ends) == 2)
        await steps.wait_for_answers(thread)
        assert len(thread.bot_messages) == 1
        ran = await discord_server.command(alice, channel, "py", {"code": "1"})
        assert "You said: 1" in await steps.wait_for_final_text(ran)
        await service.die_before_beginning()
        await until(lambda: len(service.ends) == 4)
        assert "You said: 1" in await steps.wait_for_final_text(ran)
    assert [request.text for request in service.handled_requests] == ["hello", "hello", "1", "1"]
    assert service.handled_requests[2].id == service.handled_requests[3].id


async def test_a_lost_message_that_is_gone_is_passed_over(discord_server, lab, connect, service):
    discord_server.expect(10008)
    alice = lab.person("alice")
    direct = discord_server.direct(alice)
    async with connect(service=service):
        message = discord_server.say(alice, direct, "hello")
        await steps.wait_for_answers(direct)
        discord_server.delete(message)
        await service.die_before_beginning()
        await asyncio.sleep(0.5)
    assert len(service.handled_requests) == 1


async def test_a_job_shows_how_it_goes_and_its_end_notifies(
    discord_server, lab, connect, service, until
):
    go = asyncio.Event()

    async def working(turn):
        output = values.Text("stdout", "step 1\n@everyone step 2\n")
        turn.reply.emit(events.OutputShown(0, output))
        await go.wait()
        turn.reply.emit(events.CodeFinished(0, values.Finished(values.Ending.OK, 65.0)))

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(service=service):
        thread = await steps.ask_in_thread(discord_server, alice, channel)
        key, number = service.handled_requests[0].key, str(int(service.handled_requests[0].id) + 1)
        answer, service.script = service.script, working
        await service.go_on(key, "work()", person=str(alice.id), request_id=number, is_job=True)
        await until(lambda: "step 2" in thread.bot_messages[-1].content)
        job = thread.bot_messages[-1]
        assert ("running …" in job.content, "step 1" in job.content) == (True, False)
        assert "Stop" in job.buttons
        service.script = answer
        discord_server.say(alice, thread, "how far?")
        await until(lambda: "how far?" in thread.bot_messages[-1].content)
        go.set()
        # What showed its progress is gone then.
        await until(lambda: "in the background is done" in thread.bot_messages[-1].content)
        await until(lambda: job not in thread.bot_messages)
    end = thread.bot_messages[-1]
    assert alice.mention in end.content
    assert "step 1\n@everyone step 2" in end.content
    assert len(thread.bot_messages) == 3


async def test_an_answer_that_was_not_posted_in_full_is_completed_once(
    discord_server, lab, connect, service, until
):
    async def computing(turn):
        turn.reply.step(1)
        await turn.run(0, "compute()", "computed\n")
        turn.reply.step(2)
        (turn.directory / "result.csv").write_bytes(b"a,b\n")
        turn.make(0, "result.csv", b"a,b\n")
        turn.reply.text("It is 42.")
        return "It is 42."

    service.script = computing
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(service=service):
        thread = await steps.ask_in_thread(discord_server, alice, channel)
        [answer] = thread.bot_messages
        buttons = list(answer.buttons)
    # A bot leaves this if it is killed once it has recorded the end.
    answer.content, answer.attachments, answer.components = "-# ⏳ running …", [], []
    async with connect(service=service):
        await service.die_before_showing()
        assert answer.content.startswith("It is 42.")
        assert answer.files == {"result.csv": b"a,b\n"}
        assert list(answer.buttons) == buttons
        await service.die_before_showing()
        assert answer.files == {"result.csv": b"a,b\n"}
    assert thread.bot_messages == [answer]
    assert len(service.turns) == 1


async def test_the_end_of_a_job_is_posted_once_also_if_its_bot_died_then(
    discord_server, lab, connect, service, until
):
    async def working(turn):
        await turn.follow()
        turn.reply.finished(0, values.Finished(values.Ending.OK, 65.0))

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(service=service):
        thread = await steps.ask_in_thread(discord_server, alice, channel)
        key = service.handled_requests[0].key
        [turn] = await service.queries.history(key)
        number = jobs.request_id(turn.record.id, 0)
        service.script = working
        await service.go_on(key, "work()", person=str(alice.id), request_id=number, is_job=True)
        await service.resumptions.close()
        end = thread.bot_messages[-1]
        assert "in the background is done" in end.content
        assert "before" in end.content
        await service.die_before_showing()
        assert thread.bot_messages[-1] is end
        # Another bot is killed before it posts the end.
        discord_server.delete(end)
        await service.deliveries.delete("discord", number, 0)
        await service.die_before_showing()
    assert len(thread.bot_messages) == 2
    assert thread.bot_messages[-1].content == end.content
