"""What hostile words and files do on Discord: nothing. And who may use the bot."""

import re

import pytest

from interpreter_bot import values
from tests.fakes.discord_server import worlds
from tests.integration.discord import steps

EVIL = (
    "@everyone @here <@1> <@&2> <#3> <@!4>\n"
    "```\n@everyone in code\n````\n@everyone after a longer fence\n```\n"
    "`````py\n@everyone\n```\n@everyone\n`````\n"
    "`inline ``` @everyone`\n"
    "\u202e\u200b@\u200beveryone\u2066\u00ad\n"
    "[https://good.example](https://evil.example/?q=secret) ![x](https://evil.example/x.png)\n"
    "https://evil.example/plain and <https://evil.example/wrapped>\n"
    "||spoiler|| # heading\n" + "x" * 5000
)


async def _evil(turn):
    turn.reply.step(1)
    turn.reply.text(EVIL)
    turn.reply.announcement(0, EVIL[:400])
    await turn.run(
        0,
        EVIL,
        EVIL,
        values.Result(plain=EVIL),
        values.Json(json=EVIL),
        values.Latex(latex=EVIL),
        values.Notice(EVIL[:300]),
        values.Error("Evil", EVIL, EVIL),
        values.Table(columns=(EVIL, "b"), rows=((EVIL, EVIL),), row_count=1, column_count=2),
        values.Html(html=EVIL.encode(), plain=EVIL),
        ending=values.Ending.ERROR,
        reason=EVIL[:300],
    )
    turn.make(0, "@everyone ```<@1>.txt", b"x")
    turn.make(0, "\u202egnp.exe", b"y")
    return turn.done(EVIL)


@pytest.mark.parametrize("is_code", [True, False])
async def test_hostile_words_notify_nobody_and_break_out_of_nothing(
    discord_server, lab, connect, is_code
):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(_evil):
        if is_code:
            done = await discord_server.command(alice, channel, "py", {"code": EVIL[:5000]})
            await steps.wait_for_final_text(done)
        else:
            thread = await steps.ask_in_thread(discord_server, alice, channel, "evil")
    # All of it stands only now that the bot has left.
    messages = [*done.messages, *channel.bot_messages] if is_code else thread.bot_messages
    assert len(messages) >= 2
    for message in messages:
        assert message.pings <= {alice.id}
        assert len(message.content) <= 2000
        assert message.content.count("```") % 2 == 0
        assert not set(message.content) & set("\u202e\u2066\u00ad")
        outside = re.sub(r"```.*?```|`[^`\n]+`", "", message.content, flags=re.DOTALL)
        assert "@everyone" not in outside
        assert not re.search(r"(?<!\\)<[@#][!&]?\d", outside)
        bare = re.sub(r"<https?://[^>\s]*>", "", outside)
        assert "://" not in bare
        for name in message.files:
            assert re.fullmatch(r"[A-Za-z0-9._-]+", name)
    assert not any("](<https://evil.example/?q=secret>)" in m.content for m in messages)


async def test_the_author_alone_is_notified_of_a_question(discord_server, lab, connect, until):
    async def script(turn):
        await turn.reply.code(0, "input()")
        prompt = "@everyone <@&7> who?"
        await turn.reply.ask(0, values.InputRequested(prompt, is_password=False))
        turn.reply.finished(0, values.Finished(values.Ending.OK, 0.1))
        return turn.done("ok")

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(script):
        discord_server.say(alice, channel, f"{discord_server.bot.mention} go")
        thread = await steps.wait_for_thread(channel)
        await until(lambda: thread.bot_messages and "Answer" in thread.bot_messages[-1].buttons)
        assert thread.bot_messages[-1].pings == {alice.id}
        discord_server.say(alice, thread, "me")
        await steps.wait_for_answers(thread)


async def test_lists_by_guild_channel_role_and_person(discord_server, lab, connect, until):
    crew = lab.role("crew")
    alice, bob = lab.person("alice", crew), lab.person("bob")
    allowed, other = lab.channel("allowed"), lab.channel("other")
    elsewhere = discord_server.guild("Elsewhere")
    carol, far = elsewhere.person("carol"), elsewhere.channel("far")
    mention = discord_server.bot.mention
    async with connect(
        guilds=(lab.id,), channels=(allowed.id,), roles=(crew.id,), people=(5,)
    ) as service:
        discord_server.say(carol, far, f"{mention} wrong guild")
        discord_server.say(alice, other, f"{mention} wrong channel")
        discord_server.say(bob, allowed, f"{mention} wrong person")
        direct = discord_server.direct(bob)
        await until(lambda: direct.bot_messages)
        assert "don't have access" in direct.bot_messages[0].content
        refused = await discord_server.command(bob, allowed, "py", {"code": "1"})
        assert "don't have access" in await steps.wait_for_final_text(refused)
        assert refused.messages[0].seen_by is bob
        discord_server.say(bob, direct, "and here?")
        await until(lambda: len(direct.bot_messages) == 2)
        thread = await steps.ask_in_thread(discord_server, alice, allowed)
        discord_server.expect(50007)
        direct.is_closed = True
        discord_server.say(bob, thread, f"{mention} let me in")
        await until(lambda: "don't have access" in thread.bot_messages[-1].content)
    assert allowed.bot_messages == []
    assert [request.text for request in service.handled_requests] == ["hello"]
    assert far.bot_messages == other.bot_messages == []


async def test_direct_messages_can_be_switched_off(discord_server, connect, until):
    alice = worlds.User("alice")
    direct = discord_server.direct(alice)
    async with connect(direct_messages=False) as service:
        discord_server.say(alice, direct, "hello")
        done = await discord_server.command(alice, direct, "py", {"code": "1"})
        assert "can't be used here" in await steps.wait_for_final_text(done)
    assert service.handled_requests == []


async def test_buttons_ask_for_permission_too(discord_server, lab, connect):
    alice, bob, channel = lab.person("alice"), lab.person("bob"), lab.channel("general")
    async with connect(people=(alice.id,)) as service:
        thread = await steps.ask_in_thread(discord_server, alice, channel, "one\ntwo")
        refused = await discord_server.click(bob, thread.bot_messages[-1], "Re-run")
        assert "don't have access" in await steps.wait_for_final_text(refused)
    assert len(service.handled_requests) == 1


async def test_the_token_is_nowhere_to_be_read(discord_server, lab, connect, caplog):
    caplog.set_level("DEBUG", logger="interpreter_bot")
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect():
        thread = await steps.ask_in_thread(discord_server, alice, channel)
        await discord_server.gateway.drop()
        discord_server.say(alice, thread, "again")
        await steps.wait_for_answers(thread, 2)
    assert discord_server.token not in caplog.text
