"""Answers to interactions: in time, once, and somewhere, whatever goes wrong."""

import asyncio
import itertools

import discord

from interpreter_bot import values
from interpreter_bot.platforms.discord import api_errors
from tests.integration.discord import steps

CALLBACK = ("POST", r"/interactions/.*/callback$")


async def _pictures(turn):
    """Show what takes three messages."""
    await turn.reply.code(0, "draw()")
    for number in range(3):
        data = b"\x89PNG" + bytes([number]) * 10
        turn.reply.output(0, values.Image(mime="image/png", data=data))
        turn.reply.output(0, values.Result(plain=f"that was {number}"))
    turn.reply.finished(0, values.Finished(values.Ending.OK, 0.1))
    return turn.done()


async def test_a_slow_database_costs_no_interaction(discord_server, lab, connect):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect() as service:
        thread = await steps.ask_in_thread(discord_server, alice, channel, "one\ntwo")
        service.claim_seconds = 3.5
        done = await asyncio.gather(
            discord_server.command(alice, channel, "py", {"code": "1"}),
            discord_server.command(alice, channel, "interpreter usage"),
            discord_server.command(alice, channel, "interpreter model", {"name": "large"}),
            discord_server.command(alice, channel, "py"),
            discord_server.click(alice, thread.bot_messages[-1], "Notebook"),
        )
        assert done[3].modal
        for one in (*done[:3], done[4]):
            await steps.wait_for_final_text(one)
    assert discord_server.register.faults == []


async def test_a_first_sign_that_is_cut_off_costs_nothing(discord_server, lab, connect):
    discord_server.expect(40060)
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect() as service:
        for name, options in (("py", {"code": "1"}), ("interpreter limits", None)):
            fault = discord_server.plan(*CALLBACK, kind="cut")
            done = await discord_server.command(alice, channel, name, options)
            assert await steps.wait_for_final_text(done)
            assert fault.times == 0
    assert len(service.handled_requests) == 1


async def test_of_two_bots_one_handles_an_interaction(discord_server, lab, connect, service, until):
    # Both acknowledge it, Discord takes one, and the claim decides.
    discord_server.expect(40060)
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(service=service):
        await asyncio.sleep(discord_server.gateway.identify_seconds)
        async with connect(service=service):
            assert len(discord_server.gateway.sessions) == 2
            done = await discord_server.command(alice, channel, "py", {"code": "1"})
            await steps.wait_for_final_text(done)
            reset = await discord_server.command(alice, channel, "interpreter reset")
            assert "history are cleared" in await steps.wait_for_final_text(reset)
    assert [request.text for request in service.handled_requests] == ["1"]
    assert [name for name, *_ in service.calls].count("reset") == 1


async def test_a_follow_up_that_is_cut_off_does_not_stand_there_twice(discord_server, lab, connect):
    discord_server.expect(50001)
    alice, channel = lab.person("alice"), lab.channel("hidden", denied={"view_channel"})
    direct = discord_server.direct(alice)
    async with connect(_pictures):
        fault = discord_server.plan("POST", r"/webhooks/\d+/\w+$", kind="cut")
        done = await discord_server.command(alice, channel, "py", {"code": "1"})
        await steps.wait_for_answers(direct, 3)
    assert fault.times == 0
    directly = "\n".join(message.content for message in direct.bot_messages)
    # What may or may not have arrived, and all that follows, comes directly.
    for text in (directly, done.text):
        assert all(text.count(f"that was {number}") <= 1 for number in range(3))
    assert "that was 2" in directly
    assert done.original.buttons == {}


async def test_follow_ups_that_are_certain_not_to_have_been_sent_are_sent_again(
    discord_server, lab, connect, monkeypatch
):
    discord_server.expect(50001)
    alice, channel = lab.person("alice"), lab.channel("hidden", denied={"view_channel"})
    send, left = discord.Webhook.send, [1]

    class UnsentError(api_errors.UNSENT):
        def __init__(self):
            self.args = ("cannot connect",)

        def __str__(self):
            return "cannot connect"

    async def flaky(*arguments, **fields):
        if left:
            left.pop()
            raise UnsentError
        return await send(*arguments, **fields)

    async with connect(_pictures):
        monkeypatch.setattr(discord.Webhook, "send", flaky)
        done = await discord_server.command(alice, channel, "py", {"code": "1"})
        await steps.wait_for_final_text(done)
    assert len(done.messages) == 4
    assert discord_server.directs == []


async def test_who_takes_no_direct_messages_is_not_run_for(discord_server, lab, connect, caplog):
    discord_server.expect(50027, 50001, 50007)
    stopped = asyncio.Event()

    async def endless(turn):
        # Only now: a token that expires earlier is one of a request that never begins.
        discord_server.register.token_seconds = 0.4
        try:
            await turn.reply.code(0, "slow()")
            for number in itertools.count():
                turn.reply.output(0, values.Text("stdout", f"{number}\n"))
                await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            stopped.set()
            raise

    alice, channel = lab.person("alice"), lab.channel("hidden", denied={"view_channel"})
    discord_server.direct(alice).is_closed = True
    async with connect(endless):
        await discord_server.command(alice, channel, "py", {"code": "1"})
        await asyncio.wait_for(stopped.wait(), 100)
    assert "ended in an error" not in caplog.text


async def test_a_late_answer_in_a_channel_that_it_does_not_see_comes_directly(
    discord_server, lab, connect
):
    discord_server.expect(50027, 50001)

    async def long(turn):
        discord_server.register.token_seconds = 0.5
        await turn.reply.code(0, "slow()")
        await asyncio.sleep(0.9)
        turn.reply.finished(0, values.Finished(values.Ending.OK, 0.9))
        return turn.done("at last")

    alice, channel = lab.person("alice"), lab.channel("hidden", denied={"view_channel"})
    direct = discord_server.direct(alice)
    async with connect(long):
        await discord_server.command(alice, channel, "py", {"code": "1"})
        await steps.wait_for_answers(direct)
    assert "at last" in direct.bot_messages[-1].content


async def test_a_deleted_first_answer_is_let_be(discord_server, lab, connect, until):
    discord_server.expect(10008)
    gate = asyncio.Event()

    async def script(turn):
        await gate.wait()
        await turn.run(0, "1", "done\n")
        return turn.done()

    alice, channel = lab.person("alice"), lab.channel("general")
    loop = asyncio.get_running_loop()
    async with connect(script, pace_seconds=30.0) as service:
        discord_server.plan("PATCH", r"/webhooks/", status=404, code=10008, times=1000)
        await discord_server.command(alice, channel, "py", {"code": "1"})
        gate.set()
        await until(lambda: service.ends)
        started = loop.time()
    # Less than what leaving waits for those who do not end.
    assert loop.time() - started < 9


async def test_a_wrong_word_after_the_first_sign_is_told(discord_server, lab, connect):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect():
        done = await discord_server.command(
            alice, channel, "interpreter files", {"name": "../../etc/passwd"}
        )
        assert "no such file" in await steps.wait_for_final_text(done)
    assert done.messages[-1].seen_by is alice
    assert not done.original.is_loading
