"""Slash commands, windows and menus."""

import asyncio
import json

import pytest

from interpreter_bot import values
from interpreter_bot.platforms import command_table
from interpreter_bot.platforms.discord import markdown
from interpreter_bot.wording import command_words
from tests import waiting
from tests.fakes import optional_features
from tests.fakes.discord_server import worlds
from tests.integration.discord import steps


async def run_code(turn):
    """Run what was sent as code; answer words with words."""
    if not turn.request.is_code:
        turn.reply.step(1)
        return turn.done(f"{turn.request.text} / {steps.recent_text(turn.request)}")
    shown = [f"{name} is there\n" for name in sorted(turn.files)] or ["2\n"]
    await turn.run(0, turn.request.text, *shown)
    return turn.done()


async def test_py_runs_code_and_shows_it(discord_server, lab, connect):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(run_code) as service:
        done = await discord_server.command(alice, channel, "py", {"code": "print(1 + 1)"})
        text = await steps.wait_for_final_text(done)
    assert "```py\nprint(1 + 1)\n```" in text
    assert "```\n2\n```" in text
    assert service.handled_requests[0].is_code
    assert service.handled_requests[0].key == values.SessionKey(
        "discord", str(lab.id), str(channel.id)
    )
    assert list(done.messages[-1].buttons) == ["Re-run", "Notebook"]


async def test_py_takes_files(discord_server, lab, connect):
    alice, channel = lab.person("alice"), lab.channel("general")
    files = {
        "file": discord_server.attachment("a.csv", b"1"),
        "file2": discord_server.attachment("b.csv", b"2"),
    }
    async with connect(run_code):
        done = await discord_server.command(alice, channel, "py", {"code": "ls()", **files})
        text = await steps.wait_for_final_text(done)
    assert "a.csv is there\nb.csv is there" in text


async def test_py_alone_opens_an_editor_that_takes_files(discord_server, lab, connect):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(run_code) as service:
        opened = await discord_server.command(alice, channel, "py")
        inputs = [item["component"] for item in opened.modal["components"]]
        assert [(i["type"], i.get("style")) for i in inputs] == [(4, 2), (19, None)]
        file = discord_server.attachment("c.csv", b"3")
        sent = await discord_server.submit(opened, {"text": "a = 1\nb = 2", "files": [file]})
        text = await steps.wait_for_final_text(sent)
    assert service.handled_requests[0].text == "a = 1\nb = 2"
    assert "c.csv is there" in text


async def test_a_slow_start_is_still_answered_within_three_seconds(discord_server, lab, connect):
    async def slow(turn):
        await asyncio.sleep(4)
        return await run_code(turn)

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(slow):
        done = await discord_server.command(alice, channel, "py", {"code": "1"})
        assert "2" in await steps.wait_for_final_text(done)


async def test_cells_are_looked_for_after_the_first_sign_and_run(
    discord_server, lab, connect, monkeypatch
):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(run_code) as service:

        async def found_late(key):
            # As from a database that is far; nothing before it could show a message.
            await waiting.until(lambda: begun and begun[0].answer, subject="a first sign")
            return ("x = 1", "y = 2")

        monkeypatch.setattr(service.branches, "find_lost_cells", found_late)
        begun = []
        begun.append(await discord_server.command(alice, channel, "interpreter again"))
        await steps.wait_for_final_text(begun[0])
    assert (service.handled_requests[0].text, service.handled_requests[0].is_code) == (
        "x = 1\n\ny = 2",
        True,
    )


async def test_run_this_message(discord_server, lab, connect):
    alice, bob, channel = lab.person("alice"), lab.person("bob"), lab.channel("general")
    told = discord_server.say(bob, channel, "try this:\n```py\nprint(1)\n```\nor `x`")
    async with connect(run_code) as service:
        await steps.wait_for_final_text(await discord_server.menu(alice, "Run this message", told))
    assert (service.handled_requests[0].text, service.handled_requests[0].is_code) == (
        "print(1)",
        True,
    )
    assert service.handled_requests[0].person.name == "Alice"


async def test_ask_about_this_message(discord_server, lab, connect):
    alice, bob, channel = lab.person("alice"), lab.person("bob"), lab.channel("general")
    file = discord_server.attachment("d.csv", b"4")
    told = discord_server.say(bob, channel, "the sales of May", files=[file])
    async with connect(run_code) as service:
        opened = await discord_server.menu(alice, "Ask about this message", told)
        sent = await discord_server.submit(opened, {"text": "how much?"})
        text = await steps.wait_for_final_text(sent)
    assert text.startswith("how much? / Bob: the sales of May")
    assert service.contents(service.handled_requests[0].key) == {"d.csv": b"4"}


async def test_outliving_the_token_goes_on_as_ordinary_messages(discord_server, lab, connect):
    # Long enough for the first of the answer, on a busy machine too.
    discord_server.register.token_seconds = 1.5
    discord_server.expect(50027)

    async def long(turn):
        await turn.reply.code(0, "slow()")
        for number in range(12):
            turn.reply.output(0, values.Text("stdout", f"{number}\n"))
            await asyncio.sleep(0.2)
        turn.reply.finished(0, values.Finished(values.Ending.OK, 2.4))
        turn.make(0, "late.txt", b"late")
        return turn.done()

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(long):
        done = await discord_server.command(alice, channel, "py", {"code": "slow()"})
        text = await steps.wait_for_final_text(done)
    assert "11" in text
    assert done.original.files == {"late.txt": b"late"}
    assert [message for message in channel.bot_messages if message is not done.original] == []


SAID = {
    "limits": "- Memory: 1.7 GiB",
    "usage": "120 tokens",
    "help": "Mention me in a channel",
    "files": "There are no files",
    "variables": "- In Python now: ",
    "network": "- Network: none",
    "tools": "- Tools: none",
    "model": "- small: in use",
    "settings": "approval",
}


@pytest.mark.first_case
@pytest.mark.parametrize("name", SAID)
async def test_interpreter_says(discord_server, lab, connect, name):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect() as service:
        key = values.SessionKey("discord", str(lab.id), str(channel.id))
        await service.spend(key, str(alice.id), values.Usage(input_tokens=100, output_tokens=20))
        done = await discord_server.command(alice, channel, f"interpreter {name}")
        assert SAID[name] in await steps.wait_for_final_text(done)
    assert all(message.seen_by is alice for message in done.messages if message.content)


@pytest.mark.parametrize(
    ("name", "answer"),
    [("connect", "No tool server called 'jira'"), ("disconnect", "were not logged in to jira")],
)
async def test_logins_are_between_the_bot_and_one_person(
    discord_server, lab, connect, name, answer
):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect():
        done = await discord_server.command(alice, channel, f"interpreter {name}", {"name": "jira"})
        assert answer in await steps.wait_for_final_text(done)
    assert all(message.seen_by is alice for message in done.messages if message.content)


async def test_reset_tells_everybody(discord_server, lab, connect):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect() as service:
        done = await discord_server.command(alice, channel, "interpreter reset", {"files": True})
        assert "files are deleted." in await steps.wait_for_final_text(done)
    assert service.calls[0] == (
        "reset",
        values.SessionKey("discord", str(lab.id), str(channel.id)),
        True,
    )
    assert done.original.seen_by is None


async def test_files_are_completed_and_handed_out(discord_server, lab, connect):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect() as service:
        key = values.SessionKey("discord", str(lab.id), str(channel.id))
        directory = service.directory(key)
        (directory / "sub").mkdir()
        for name, data in {"report.csv": b"1,2", "other.txt": b"", "sub/plot.png": b"p"}.items():
            (directory / name).write_bytes(data)
        offered = await discord_server.command(
            alice, channel, "interpreter files", {"name": "p"}, focused="name"
        )
        assert [c["value"] for c in offered.choices] == ["report.csv", "sub/plot.png"]
        done = await discord_server.command(
            alice, channel, "interpreter files", {"name": "sub/plot.png"}
        )
        await steps.wait_for_final_text(done)
        missing = await discord_server.command(
            alice, channel, "interpreter files", {"name": "nothing"}
        )
        assert "no such file" in await steps.wait_for_final_text(missing)
    assert done.messages[-1].files == {"plot.png": b"p"}


async def test_a_list_that_is_too_long_counts_what_is_missing(discord_server, lab, connect):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect() as service:
        key = values.SessionKey("discord", str(lab.id), str(channel.id))
        for number in range(90):
            (service.directory(key) / f"measurements-{number:03}.csv").write_bytes(b"1,2")
        done = await discord_server.command(alice, channel, "interpreter files")
        lines = (await steps.wait_for_final_text(done)).split("\n")
    shown = [line for line in lines if "measurements" in line]
    assert 20 < len(shown) < 90
    assert lines[-1] == f"… and {90 - len(shown)} more"


async def test_notebook_is_a_file(discord_server, lab, connect):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect():
        done = await discord_server.command(alice, channel, "interpreter notebook")
        await steps.wait_for_final_text(done)
    [(name, data)] = done.messages[-1].files.items()
    assert (name, json.loads(data)["cells"]) == ("conversation.ipynb", [])
    assert done.messages[-1].seen_by is alice


async def test_model_is_chosen_and_completed(discord_server, lab, connect):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect() as service:
        offered = await discord_server.command(
            alice, channel, "interpreter model", {"name": "la"}, focused="name"
        )
        assert [choice["value"] for choice in offered.choices] == ["large"]
        await steps.wait_for_final_text(
            await discord_server.command(alice, channel, "interpreter model", {"name": "large"})
        )
        wrong = await discord_server.command(
            alice, channel, "interpreter model", {"name": "@everyone"}
        )
        assert "There is no model" in await steps.wait_for_final_text(wrong)
    assert list(service.models.values()) == ["large"]


async def test_a_model_that_a_person_chose_does_not_replace_that_of_a_conversation(
    discord_server, lab, connect
):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(run_code) as service:
        setting = {"name": "model", "value": "large", "scope": "me"}
        done = await discord_server.command(alice, channel, "interpreter settings", setting)
        assert "model is now large for you" in await steps.wait_for_final_text(done)
        await steps.ask_in_thread(discord_server, alice, channel, "one")
        done = await discord_server.command(alice, channel, "py", {"code": "1"})
        await steps.wait_for_final_text(done)
    # The turn looks for the model of its conversation first, then for that of its person.
    assert [request.model for request in service.handled_requests] == ["", ""]


async def test_settings_hold_for_person_channel_and_server(discord_server, lab, connect):
    boss = lab.person("boss", lab.role("boss", "manage_guild", "manage_channels"))
    alice, channel = lab.person("alice"), lab.channel("general")

    async def choose(person, name, value, scope="me"):
        done = await discord_server.command(
            person, channel, "interpreter settings", {"name": name, "value": value, "scope": scope}
        )
        return await steps.wait_for_final_text(done)

    async def finished_settings(person):
        return await steps.wait_for_final_text(
            await discord_server.command(person, channel, "interpreter settings")
        )

    async with connect() as service:
        assert "Only people who manage" in await choose(alice, "approval", "every", "server")
        assert "every on this server" in await choose(boss, "approval", "every", "server")
        assert "off in this channel" in await choose(boss, "threads", "off", "channel")
        weaker = await choose(alice, "approval", "never")
        assert "approval is now never for you. That is weaker than" in weaker
        assert "In effect for you here: every." in weaker
        shown = await finished_settings(alice)
        assert "`approval`: every" in shown
        assert "can be one of" in await choose(alice, "approval", "perhaps")
        discord_server.say(alice, channel, f"{discord_server.bot.mention} one")
        await steps.wait_for_answers(channel)
        discord_server.say(boss, channel, f"{discord_server.bot.mention} two")
        await steps.wait_for_answers(channel, 2)
        assert {request.approval for request in service.handled_requests} == {"never"}
        assert "reset to the default" in await choose(alice, "approval", "default")


async def test_help_offers_only_what_is_on(discord_server, lab, connect):
    alice, channel = lab.person("alice"), lab.channel("general")
    for models, expected in ((("small", "large"), True), ((), False)):
        async with connect(models=models):
            done = await discord_server.command(alice, channel, "interpreter help")
            text = await steps.wait_for_final_text(done)
        assert ("model" in text.partition("has: ")[2].split("\n")[0]) == expected
        assert not {"network", "tools", "page"} & set(text.partition("has: ")[2].split(", "))
        await asyncio.sleep(discord_server.gateway.identify_seconds)


@pytest.mark.parametrize(
    "things", [("network",), ("logins",), tuple(optional_features.COMMANDS_BY_FEATURE)], ids=str
)
async def test_help_lists_what_is_on(discord_server, lab, connect, tmp_path, things):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with (
        optional_features.open_conversations(tmp_path, *things) as service,
        connect(service=service),
    ):
        done = await discord_server.command(alice, channel, "interpreter help")
        text = await steps.wait_for_final_text(done)
    shown = set(text.partition("has: ")[2].split("\n")[0].rstrip(".").split(", "))
    table = command_table.commands_of("discord")
    always = {
        name for name, row in table.items() if row.needs in optional_features.ON_BY_DEFAULT
    } - {"py"}
    assert shown == always | {
        command for thing in things for command in optional_features.COMMANDS_BY_FEATURE[thing]
    }


TYPED = "Try this: ```py\nprint(\u201c1+1\u201d)\u00a0``` thanks"


@pytest.mark.parametrize("way", ["/py", "form", "menu", "mention"])
async def test_code_is_read_alike_however_it_comes(discord_server, lab, connect, until, way):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(run_code, models=()) as service, asyncio.timeout(20):
        if way == "/py":
            await discord_server.command(alice, channel, "py", {"code": TYPED})
        elif way == "form":
            opened = await discord_server.command(alice, channel, "py")
            await discord_server.submit(opened, {"text": TYPED})
        elif way == "menu":
            message = discord_server.say(alice, channel, TYPED)
            await discord_server.menu(alice, "Run this message", message)
        else:
            discord_server.say(alice, channel, f"{discord_server.bot.mention} {TYPED}")
        [request] = await until(lambda: service.handled_requests)
    assert (request.text, request.is_code) == ('print("1+1")', True)


@pytest.mark.first_case
@pytest.mark.parametrize("value", [None, "", "  "])
@pytest.mark.parametrize(
    ("name", "chosen"), [("approval", "every"), ("threads", "off"), ("show_code", "on")]
)
async def test_a_setting_without_a_value_is_shown_and_kept(
    discord_server, lab, connect, name, chosen, value
):
    alice, channel = lab.person("alice"), lab.channel("general")

    async def settings(**options):
        done = await discord_server.command(alice, channel, "interpreter settings", options)
        return await steps.wait_for_final_text(done)

    async with connect():
        assert f"is now {chosen} for you." in await settings(name=name, value=chosen)
        empty = {} if value is None else {"value": value}
        assert f"`{name}`: {chosen}" in await settings(name=f" {name.upper()} ", **empty)
        assert f"`{name}`: {chosen}" in await settings()
        assert "reset to the default" in await settings(name=name, value="default")
        assert f"`{name}`: {chosen}" not in await settings(name=name)
        assert "no such setting" in await settings(name="nope")


async def test_commands_of_an_older_version_are_replaced(discord_server, lab, connect):
    async with connect():
        [py] = [c for c in discord_server.rest.commands if c["name"] == "py"]
        current = py["description"]
    py["description"] = "of an older version"
    async with connect():
        assert current in {command["description"] for command in discord_server.rest.commands}
    names = {command["name"] for command in discord_server.rest.commands}
    assert names == {"py", "interpreter", "Run this message", "Ask about this message"}


async def test_works_in_direct_messages(discord_server, connect):
    alice = worlds.User("alice")
    direct = discord_server.direct(alice)
    async with connect(run_code) as service:
        done = await discord_server.command(alice, direct, "py", {"code": "1"})
        await steps.wait_for_final_text(done)
    assert service.handled_requests[0].key == values.SessionKey("discord", "", str(direct.id))


async def test_a_thread_is_copied_into_another_and_its_last_answer_taken_back(
    discord_server, lab, connect
):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect() as service:
        thread = await steps.ask_in_thread(discord_server, alice, channel)
        forked = await discord_server.command(alice, thread, "interpreter fork")
        assert "copied this conversation" in await steps.wait_for_final_text(forked)
        [copy] = [m.thread for m in channel.messages.values() if m.thread not in (None, thread)]
        undone = await discord_server.command(alice, thread, "interpreter undo")
        assert "Undone" in await steps.wait_for_final_text(undone)
        again = await discord_server.command(alice, thread, "interpreter again")
        assert "Nothing to rebuild" in await steps.wait_for_final_text(again)
        source, target = (
            values.SessionKey("discord", str(lab.id), str(channel.id), str(one.id))
            for one in (thread, copy)
        )
        assert await service.queries.history(source) == ()
        past = await service.queries.history(target)
        assert [turn.record.request for turn in past] == ["", "hello"]


async def test_commands_in_words_are_carried_out(discord_server, lab, connect, until):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect() as service:
        key = values.SessionKey("discord", str(lab.id), str(channel.id))
        (service.directory(key) / "report.csv").write_bytes(b"1,2")

        async def said(words):
            before = len(channel.bot_messages)
            discord_server.say(alice, channel, f"{discord_server.bot.mention} {words}")
            await until(lambda: len(channel.bot_messages) > before)
            return channel.bot_messages[-1]

        assert (await said("files report.csv")).files == {"report.csv": b"1,2"}
        assert (await said("stop")).content == "Nothing is running."
        assert "Only people who manage" in (await said("approval every server")).content
        assert service.handled_requests == []


async def test_a_person_alone_reads_what_is_said_of_private_commands_in_words(
    discord_server, lab, connect, until
):
    alice, channel = lab.person("alice"), lab.channel("general")
    direct = discord_server.direct(alice)
    async with connect() as service:
        key = values.SessionKey("discord", str(lab.id), str(channel.id))
        (service.directory(key) / "report.csv").write_bytes(b"1,2")
        for words, answer in {
            **{name: SAID[name] for name in ("variables", "tools", "settings", "model")},
            "usage": "You, today: ",
            "files": "`report.csv`",
            "Settings threads off": "threads is now off for you.",
        }.items():
            before = len(direct.bot_messages)
            discord_server.say(alice, channel, f"{discord_server.bot.mention} {words}")
            await until(lambda before=before: len(direct.bot_messages) > before)
            assert answer in direct.bot_messages[-1].content
        assert channel.bot_messages == []
        # Also when no direct message can be sent.
        direct.is_closed = True
        discord_server.expect(50007)
        discord_server.say(alice, channel, f"{discord_server.bot.mention} usage")
        await until(lambda: channel.bot_messages)
    assert [message.content for message in channel.bot_messages] == [
        markdown.escape(command_words.NO_DIRECT_MESSAGE)
    ]


@pytest.mark.parametrize(
    ("words", "button", "call"),
    [
        ("reset", "Reset", ("reset", False)),
        ("reset files", "Reset and delete", ("reset", True)),
        ("reset", "Cancel", None),
    ],
)
async def test_what_cannot_be_taken_back_is_asked_about(
    discord_server, lab, connect, until, words, button, call
):
    alice, bob, channel = lab.person("alice"), lab.person("bob"), lab.channel("general")
    async with connect() as service:
        discord_server.say(alice, channel, f"{discord_server.bot.mention} {words}")
        await until(lambda: channel.bot_messages)
        [question] = channel.bot_messages
        assert list(question.buttons) == [button if call else "Reset", "Cancel"]
        refused = await discord_server.click(bob, question, button)
        assert "Only the person who asked" in refused.text
        await discord_server.click(alice, question, button)
        await until(lambda: not question.buttons)
        assert question.content.startswith("Reset." if call else "-# Cancelled.")
    calls = [(name, *files) for name, _, *files in service.calls if name == "reset"]
    assert calls == ([call] if call else [])


async def test_undo_in_words_takes_back_the_answer_that_was_last_then(
    discord_server, lab, connect, until
):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(threads=False) as service:
        discord_server.say(alice, channel, f"{discord_server.bot.mention} one")
        await steps.wait_for_answers(channel)
        discord_server.say(alice, channel, f"{discord_server.bot.mention} undo")
        await until(lambda: "Undo" in channel.bot_messages[-1].buttons)
        question = channel.bot_messages[-1]
        discord_server.say(alice, channel, f"{discord_server.bot.mention} two")
        await steps.wait_for_answers(channel, 3)
        await discord_server.click(alice, question, "Undo")
        await until(lambda: not question.buttons)
    assert "no longer the last answer" in question.content
    assert len(service.handled_requests) == 2
