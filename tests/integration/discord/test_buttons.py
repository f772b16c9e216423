"""Buttons, also after a restart; questions and approval."""

import asyncio

import pytest

from interpreter_bot import code_activity, values
from tests.fakes.discord_server import worlds
from tests.integration.discord import steps


async def endless(turn):
    turn.reply.step(1)
    await turn.reply.code(0, "while True: pass")
    await asyncio.sleep(60)


async def run_once(turn):
    turn.reply.step(1)
    await turn.run(0, "print(41 + 1)", "42\n")
    return turn.done("It is 42.\nIndeed.")


async def test_stop_stops_its_own_request_alone(discord_server, lab, connect, until):
    gate = asyncio.Event()

    async def script(turn):
        turn.reply.step(1)
        await gate.wait()
        return turn.done(f"Done: {turn.request.text}")

    alice, bob, channel = lab.person("alice"), lab.person("bob"), lab.channel("general")
    async with connect(script) as service:
        discord_server.say(alice, channel, f"{discord_server.bot.mention} hers")
        thread = await steps.wait_for_thread(channel)
        await until(lambda: thread.bot_messages)
        first = thread.bot_messages[0]
        discord_server.say(bob, thread, f"{discord_server.bot.mention} his")
        await until(lambda: "Queued: 1 request ahead" in thread.bot_messages[-1].content)
        await discord_server.click(bob, thread.bot_messages[-1], "Stop")
        await until(lambda: "withdrawn" in thread.bot_messages[-1].content)
        components = first.components
        gate.set()
        await until(lambda: "Done: hers" in first.content)
        gate.clear()
        discord_server.say(bob, thread, f"{discord_server.bot.mention} another")
        await until(lambda: len(service.handled_requests) == 2)
        first.components = components
        late = await discord_server.click(alice, first, "Stop")
        assert "Nothing is running" in await steps.wait_for_final_text(late)
        gate.set()
        await until(lambda: "Done: another" in thread.bot_messages[-1].content)


async def test_all_of_a_table_is_given_as_csv(discord_server, lab, connect, service):
    def table(handle):
        return values.Table(
            columns=("a",), rows=(("1",),), row_count=9, column_count=1, handle=handle
        )

    async def script(turn):
        turn.reply.step(1)
        await turn.run(0, "df; other", table("t7"), table("t8"), table(""), table("t1'; rm"))
        return turn.done("There.")

    alice, bob, channel = lab.person("alice"), lab.person("bob"), lab.channel("general")
    service.script = script
    async with connect(service=service):
        thread = await steps.ask_in_thread(discord_server, alice, channel)
    labels = [label for label in thread.bot_messages[-1].buttons if "CSV" in label]
    assert labels == ["Table 1 as CSV", "Table 2 as CSV"]
    service.tables["t8"] = b"a\n1\n2\n"
    async with connect(service=service):
        given = await discord_server.click(bob, thread.bot_messages[-1], "Table 2 as CSV")
        await steps.wait_for_final_text(given)
        gone = await discord_server.click(bob, thread.bot_messages[-1], "Table 1 as CSV")
        assert "no longer there" in await steps.wait_for_final_text(gone)
    assert given.messages[-1].files == {"table-t8.csv": b"a\n1\n2\n"}
    assert given.messages[-1].seen_by is bob


async def test_only_who_asked_and_moderators_stop(discord_server, lab, connect, until):
    alice, bob, channel = lab.person("alice"), lab.person("bob"), lab.channel("general")
    moderator = lab.person("mod", lab.role("mod", "manage_messages"))
    async with connect(endless):
        discord_server.say(alice, channel, f"{discord_server.bot.mention} hang")
        thread = await steps.wait_for_thread(channel)
        await until(lambda: thread.bot_messages and "Stop" in thread.bot_messages[0].buttons)
        refused = await discord_server.click(bob, thread.bot_messages[0], "Stop")
        await until(lambda: "Only the person who asked" in refused.text)
        assert refused.messages[-1].seen_by is bob
        await discord_server.click(moderator, thread.bot_messages[0], "Stop")
        await steps.wait_for_answers(thread)
    assert "Stopped" in thread.bot_messages[-1].content


async def test_buttons_work_after_a_restart(discord_server, lab, connect, service):
    alice, bob, channel = lab.person("alice"), lab.person("bob"), lab.channel("general")
    service.script = run_once
    async with connect(service=service):
        thread = await steps.ask_in_thread(discord_server, alice, channel, "what is it?")
    answer = thread.bot_messages[-1]
    async with connect(service=service):
        shown = await discord_server.click(bob, answer, "Show code")
        assert "```py\nprint(41 + 1)\n```" in await steps.wait_for_final_text(shown)
        assert shown.messages[-1].seen_by is bob
        notebook = await discord_server.click(bob, answer, "Notebook")
        await steps.wait_for_final_text(notebook)
        assert list(notebook.messages[-1].files) == ["conversation.ipynb"]
        again = await discord_server.click(bob, answer, "Re-run")
        assert "It is 42." in await steps.wait_for_final_text(again)
    assert [(r.text, r.person.name) for r in service.handled_requests] == [
        ("what is it?", "Alice"),
        ("what is it?", "Bob"),
    ]
    assert service.handled_requests[0].key == service.handled_requests[1].key


async def test_long_code_comes_as_a_file(discord_server, lab, connect):
    async def script(turn):
        turn.reply.step(1)
        await turn.run(0, "\n".join(f"x{n} = {n}" for n in range(500)), "ok\n")
        return turn.done("Done.")

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(script):
        thread = await steps.ask_in_thread(discord_server, alice, channel)
        shown = await discord_server.click(alice, thread.bot_messages[-1], "Show code")
        await steps.wait_for_final_text(shown)
    assert b"x499 = 499" in shown.messages[-1].files["code.py"]


async def test_code_that_discord_cannot_show_as_it_is_comes_as_a_file(discord_server, lab, connect):
    code = "fence = '```'\nprint(fence, '``')"

    async def script(turn):
        turn.reply.step(1)
        await turn.run(0, code, "ok\n")
        return turn.done("Done.\nReally.")

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(script):
        thread = await steps.ask_in_thread(discord_server, alice, channel)
        shown = await discord_server.click(alice, thread.bot_messages[-1], "Show code")
        await steps.wait_for_final_text(shown)
    assert code in shown.messages[-1].files["code.py"].decode()


async def with_queries(turn):
    turn.reply.step(1)
    await turn.run(0, turn.request.text.partition(" ")[2] or turn.request.text)
    hostile = "select '``` @everyone'"
    turn.queries = (code_activity.ShownQuery("sales", hostile, rows=3, seconds=0.5),)
    return turn.done("Done.")


async def test_queries_stand_below_the_code_of_an_answer(discord_server, lab, connect):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(with_queries):
        thread = await steps.ask_in_thread(discord_server, alice, channel, "x = 1")
        shown = await discord_server.click(alice, thread.bot_messages[-1], "Show code")
        said = await steps.wait_for_final_text(shown)
    assert "```sql\n-- sales: 3 rows in 0.5 s\nselect" in said
    assert said.count("```") == 4


async def test_queries_of_long_code_come_as_a_file_beside_it(discord_server, lab, connect):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(with_queries):
        code = "; ".join(f"x{n}" for n in range(250)) + "#" * 500
        thread = await steps.ask_in_thread(discord_server, alice, channel, code)
        shown = await discord_server.click(alice, thread.bot_messages[-1], "Show code")
        await steps.wait_for_final_text(shown)
    assert set(shown.messages[-1].files) == {"code.py", "queries.sql"}
    assert b"3 rows" in shown.messages[-1].files["queries.sql"]


async def ask_name(turn):
    turn.reply.step(1)
    await turn.reply.code(0, "input('name? ')")
    request = values.InputRequested("name? ", "secret" in turn.request.text)
    answer = await turn.reply.ask(0, request)
    turn.reply.output(0, values.Text("stdout", f"hello {len(answer)}\n"))
    turn.reply.finished(0, values.Finished(values.Ending.OK, 0.1))
    return turn.done(f"Length {len(answer)}.")


async def test_a_choice_is_made_by_a_button(discord_server, lab, connect, until):
    chosen = []

    async def ask(turn):
        await turn.reply.code(0, "reach()")
        for subject, choices in (("request", ("session",)), ("import", ())):
            chosen.append(
                await turn.reply.approve(0, "What it is.", subject=subject, choices=choices)
            )
        turn.reply.finished(0, values.Finished(values.Ending.OK, 0.1))
        return turn.done("Done.")

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(ask, follow_threads=False):
        discord_server.say(alice, channel, f"{discord_server.bot.mention} go")
        thread = await steps.wait_for_thread(channel)
        await until(lambda: thread.bot_messages and "Send" in thread.bot_messages[-1].buttons)
        assert "Send this request?" in thread.bot_messages[-1].content
        assert "Edit" not in thread.bot_messages[-1].buttons
        await discord_server.click(alice, thread.bot_messages[-1], "For this session")
        # That of the question before stands there until it is edited.
        await until(lambda: "Install and run again" in thread.bot_messages[-1].buttons)
        await discord_server.click(alice, thread.bot_messages[-1], "Install and run again")
        await until(lambda: len(chosen) == 2)
    assert chosen == ["session", "What it is."]


async def test_the_model_is_answered_by_a_button_or_in_a_window(
    discord_server, lab, connect, until
):
    answers = []

    async def ask(turn):
        turn.reply.step(1)
        for question in ("Which region?", "Which year?"):
            answers.append(await turn.reply.ask_for_model(question, "@everyone", "<@1> *2*"))
        return turn.done("Done.")

    alice, bob, channel = lab.person("alice"), lab.person("bob"), lab.channel("general")
    async with connect(ask, follow_threads=False):
        discord_server.say(alice, channel, f"{discord_server.bot.mention} go")
        thread = await steps.wait_for_thread(channel)
        await until(lambda: thread.bot_messages and "@everyone" in thread.bot_messages[-1].buttons)
        refused = await discord_server.click(bob, thread.bot_messages[-1], "<@1> *2*")
        await until(lambda: "Only the person who asked" in refused.text)
        await discord_server.click(alice, thread.bot_messages[-1], "<@1> *2*")
        await until(lambda: "Which year" in thread.bot_messages[-1].content)
        opened = await discord_server.click(alice, thread.bot_messages[-1], "Other answer")
        await discord_server.submit(opened, {"text": "All of them"})
        await until(lambda: "Done." in thread.bot_messages[-1].content)
    assert answers == ["<@1> *2*", "All of them"]


@pytest.mark.first_case
@pytest.mark.parametrize(
    "custom_id",
    [
        *("ib:nope:1:2", "ib:stop:x:y", "ib:stop:1", "other", "ib:csv:9999999999999999999:1"),
        *("ib:code:9999999999999999999:1", "ib:again:0:1", "ib:answer:1:{0}", "ib::1:2"),
    ],
)
async def test_a_button_that_means_nothing_here_is_answered_by_a_sentence(
    discord_server, lab, connect, until, custom_id, caplog
):
    alice, channel = lab.person("alice"), lab.channel("general")
    button = {"type": 2, "style": 2, "label": "Old", "custom_id": custom_id.format(alice.id)}
    row = {"type": 1, "components": [button]}
    async with connect():
        message = worlds.Message(channel, discord_server.bot, "Old.", components=[row])
        discord_server.post(message)
        done = await discord_server.click(alice, message, "Old")
        await until(lambda: done.text and not done.messages[-1].is_loading)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("custom_id", ["ibw:nope:1:ff", "other", "ibw:answer:1:ff"])
async def test_a_form_that_means_nothing_here_is_answered_by_a_sentence(
    discord_server, lab, connect, until, custom_id, caplog
):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect():
        opened = await discord_server.command(alice, channel, "py")
        opened.modal["custom_id"] = custom_id
        done = await discord_server.submit(opened, {"text": "1"})
        await until(lambda: done.text)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def _asked(until, thread):
    await until(lambda: thread.bot_messages and "Answer" in thread.bot_messages[-1].buttons)
    return thread.bot_messages[-1]


async def test_input_is_answered_by_a_message_of_who_asked(discord_server, lab, connect, until):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(ask_name, follow_threads=False) as service:
        discord_server.say(alice, channel, f"{discord_server.bot.mention} greet")
        thread = await steps.wait_for_thread(channel)
        question = await _asked(until, thread)
        assert "name? " in question.content
        discord_server.gateway.duplicates = 1
        discord_server.say(alice, thread, "Ada")
        await until(lambda: "Length" in thread.bot_messages[-1].content)
    text = "\n".join(message.content for message in thread.bot_messages)
    assert "Length 3." in text
    assert "```\nname? Ada\nhello 3\n```" in text
    assert len(service.handled_requests) == 1
    # Should the bot die, it is not taken for a request.
    assert None in [about.get("content", "") for _, about in service.claimed]


@pytest.mark.parametrize("way", ["/py", "reply", "thread of two"])
async def test_among_others_input_is_answered_by_a_reply_alone(
    discord_server, lab, connect, until, way
):
    alice, bob = lab.person("alice"), lab.person("bob")
    denied = {"create_public_threads"} if way == "reply" else set()
    place = lab.channel("general", denied=denied)
    async with connect(ask_name, closing_seconds=0.5) as service:
        if way == "/py":
            await discord_server.command(alice, place, "py", {"code": "input()"})
        else:
            discord_server.say(alice, place, f"{discord_server.bot.mention} greet")
        if way == "thread of two":
            place = await steps.wait_for_thread(place)
        question = await _asked(until, place)
        discord_server.say(bob, place, "lol")
        discord_server.say(alice, place, "who is hungry?")
        discord_server.say(bob, place, "me", reference=question)
        discord_server.say(alice, place, "Ada", reference=question)
        await until(lambda: any("Length 3." in m.content for m in place.bot_messages))
    assert "Ada" not in [request.text for request in service.handled_requests]


@pytest.mark.parametrize("spelling", ["{0} stop", "{0} please stop it!", "cancel that, {0}"])
async def test_a_mention_is_never_what_input_waits_for(
    discord_server, lab, connect, until, spelling
):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(ask_name) as service:
        discord_server.say(alice, channel, f"{discord_server.bot.mention} greet")
        thread = await steps.wait_for_thread(channel)
        await _asked(until, thread)
        discord_server.say(alice, thread, spelling.format(discord_server.bot.mention))
        await until(lambda: any("⏹️ Stopped." in m.content for m in thread.bot_messages))
        discord_server.say(alice, thread, "Stop!")
        await until(lambda: thread.bot_messages[-1].content == "Nothing is running.")
    assert [request.text for request in service.handled_requests] == ["greet"]


@pytest.mark.parametrize("is_direct", [True, False])
async def test_a_password_is_taken_from_the_form_alone(
    discord_server, lab, connect, until, is_direct
):
    alice = lab.person("alice")
    place = discord_server.direct(alice) if is_direct else lab.channel("general")
    async with connect(ask_name, closing_seconds=0.5) as service:
        discord_server.say(alice, place, f"{discord_server.bot.mention} a secret")
        place = place if is_direct else await steps.wait_for_thread(place)
        question = await _asked(until, place)
        assert "press Answer, so that nobody else reads it" in question.content
        discord_server.say(alice, place, "hunter2", reference=question)
        await until(lambda: "don't take passwords" in place.bot_messages[-1].content)
        refusal = place.bot_messages[-1]
        discord_server.say(alice, place, "hunter3")
        await until(lambda: place.bot_messages[-1] is not refusal)
        assert "don't take passwords" in place.bot_messages[-1].content
        discord_server.say(alice, place, f"{discord_server.bot.mention} what now?")
        await until(lambda: "Queued: 1 request ahead" in place.bot_messages[-1].content)
        opened = await discord_server.click(alice, question, "Answer")
        await discord_server.submit(opened, {"text": "swordfish"})
        await until(lambda: any("Length 9." in m.content for m in place.bot_messages))
    assert not any("swordfish" in form for m in place.bot_messages for _, form in m.forms)
    assert "hunter" not in str(service.requests)


async def test_who_may_moderate_stops_by_words_what_others_run(discord_server, lab, connect, until):
    alice, bob, eve = (
        lab.person("alice"),
        lab.person("bob", lab.role("m", "manage_messages")),
        (lab.person("eve")),
    )
    channel = lab.channel("general")
    async with connect(ask_name):
        discord_server.say(alice, channel, f"{discord_server.bot.mention} greet")
        thread = await steps.wait_for_thread(channel)
        await _asked(until, thread)
        discord_server.say(eve, thread, f"{discord_server.bot.mention} stop")
        await until(
            lambda: thread.bot_messages[-1].content == "Only the person who asked can do that."
        )
        discord_server.say(bob, thread, f"{discord_server.bot.mention} stop")
        await until(lambda: any("⏹️ Stopped." in m.content for m in thread.bot_messages))


async def test_input_is_answered_in_a_window(discord_server, lab, connect, until):
    alice, bob, channel = lab.person("alice"), lab.person("bob"), lab.channel("general")
    async with connect(ask_name):
        discord_server.say(alice, channel, f"{discord_server.bot.mention} greet")
        thread = await steps.wait_for_thread(channel)
        question = await _asked(until, thread)
        refused = await discord_server.click(bob, question, "Answer")
        await until(lambda: "Only the person who asked" in refused.text)
        opened = await discord_server.click(alice, question, "Answer")
        twice = await discord_server.click(alice, question, "Answer")
        await discord_server.submit(opened, {"text": "Grace"})
        await steps.wait_for_answers(thread)
        late = await discord_server.submit(twice, {"text": "again"})
        await until(lambda: "has expired" in late.text)
    assert "Length 5." in thread.bot_messages[-1].content


async def test_a_question_that_nobody_answers_is_closed(discord_server, lab, connect, until):
    patience = None

    async def impatient(turn):
        nonlocal patience
        await turn.reply.code(0, "input()")
        try:
            async with asyncio.timeout(30) as patience:
                await turn.reply.ask(0, values.InputRequested("", is_password=False))
        except TimeoutError:
            turn.reply.finished(0, values.Finished(values.Ending.STOPPED, 0.5, "No answer came."))
        return turn.done("Nobody answered.")

    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect(impatient):
        discord_server.say(alice, channel, f"{discord_server.bot.mention} wait")
        thread = await steps.wait_for_thread(channel)
        question = await _asked(until, thread)
        components = question.components
        patience.reschedule(0)
        await steps.wait_for_answers(thread)
        question.components = components
        late = await discord_server.click(alice, question, "Answer")
        await until(lambda: "has expired" in late.text)
    assert "This question has expired." in "\n".join(m.content for m in thread.bot_messages)


async def approved(turn):
    turn.reply.step(1)
    code = await turn.reply.approve(0, "delete('everything')")
    if code is None:
        return turn.done("Then not.")
    await turn.run(0, code, "ran\n")
    return turn.done(f"Ran {code}")


async def _approve(server, until, person, thread, label, filled=None):
    await until(lambda: thread.bot_messages and "Run" in thread.bot_messages[-1].buttons)
    done = await server.click(person, thread.bot_messages[-1], label)
    if filled is not None:
        assert done.modal["components"][0]["component"]["value"] == "delete('everything')"
        await server.submit(done, {"text": filled})
    await steps.wait_for_answers(thread)
    return "\n".join(message.content for message in thread.bot_messages)


async def test_code_is_approved_edited_or_refused(discord_server, lab, connect, until):
    alice = lab.person("alice")
    async with connect(approved):
        for label, filled, expected in (
            ("Run", None, "Ran delete('everything')"),
            ("Refuse", None, "Then not."),
            ("Edit", "print()", "Ran print()"),
        ):
            channel = lab.channel(label.lower())
            discord_server.gateway.push("CHANNEL_CREATE", channel.payload(), guild=lab)
            discord_server.say(alice, channel, f"{discord_server.bot.mention} go")
            thread = await steps.wait_for_thread(channel)
            text = await _approve(discord_server, until, alice, thread, label, filled)
            assert expected in text


async def test_an_admin_approves_code_but_answers_no_input(discord_server, lab, connect, until):
    boss = lab.person("boss", lab.role("boss", "administrator"))
    eve = lab.person("eve", lab.role("helper", "manage_messages", "manage_guild"))
    alice, channel, other = lab.person("alice"), lab.channel("general"), lab.channel("other")

    async def script(turn):
        return await (ask_name if turn.request.text == "greet" else approved)(turn)

    async with connect(script, closing_seconds=0.5):
        discord_server.say(alice, channel, f"{discord_server.bot.mention} go")
        thread = await steps.wait_for_thread(channel)
        await until(lambda: thread.bot_messages and "Run" in thread.bot_messages[-1].buttons)
        assert thread.bot_messages[-1].pings == {alice.id}
        refused = await discord_server.click(eve, thread.bot_messages[-1], "Run")
        await until(lambda: "Only the person who asked" in refused.text)
        shown = await discord_server.click(boss, thread.bot_messages[-1], "Edit")
        await until(lambda: "Only the person who asked can edit it." in shown.text)
        assert not shown.modal
        assert list(shown.messages[-1].files) == ["to-approve.py"]
        mine = await discord_server.click(alice, thread.bot_messages[-1], "Edit")
        mine.user = boss
        submitted = await discord_server.submit(mine, {"text": "print('other')"})
        await until(lambda: "Only the person who asked" in submitted.text)
        assert "Ran delete" in await _approve(discord_server, until, boss, thread, "Run")
        discord_server.say(alice, other, f"{discord_server.bot.mention} greet")
        thread = await steps.wait_for_thread(other)
        question = await _asked(until, thread)
        refused = await discord_server.click(boss, question, "Answer")
        await until(lambda: refused.text and not refused.modal)


async def test_only_who_asked_approves_what_acts_with_their_account(
    discord_server, lab, connect, until
):
    async def script(turn):
        await turn.reply.code(0, "jira.delete()")
        answer = await turn.reply.approve(
            1, "tools.jira.delete()", choices=("session",), is_personal=True
        )
        turn.reply.finished(0, values.Finished(values.Ending.OK, 0.1))
        return turn.done(f"Allowed: {answer}")

    boss, alice = lab.person("boss", lab.role("boss", "administrator")), lab.person("alice")
    channel = lab.channel("general")
    async with connect(script):
        discord_server.say(alice, channel, f"{discord_server.bot.mention} go")
        thread = await steps.wait_for_thread(channel)
        await until(lambda: thread.bot_messages and "Run" in thread.bot_messages[-1].buttons)
        for label in ("Run", "For this session", "Edit", "Refuse"):
            pressed = await discord_server.click(boss, thread.bot_messages[-1], label)
            await until(lambda pressed=pressed: "Only the person who asked" in pressed.text)
        text = await _approve(discord_server, until, alice, thread, "For this session")
    assert "Allowed: session" in text


async def test_nobody_approves_what_they_cannot_see(discord_server, lab, connect, until):
    hidden = "if admin: \u202e # dewolla \u2066\n    delete('\u200beverything')"
    long = "\n".join(f"line_{number} = {number}" for number in range(200))
    scripts = iter([hidden, long])

    async def ask(turn):
        turn.reply.step(1)
        assert await turn.reply.approve(0, next(scripts)) is not None
        return turn.done("Ran.")

    alice = lab.person("alice")
    direct = discord_server.direct(alice)
    async with connect(ask):
        discord_server.say(alice, direct, "go")
        await until(lambda: direct.bot_messages and "Run" in direct.bot_messages[-1].buttons)
        shown = direct.bot_messages[-1].content
        assert "⟨U+202E⟩ # dewolla ⟨U+2066⟩\n    delete('⟨U+200B⟩everything')" in shown
        assert "3 characters that nobody can see" in shown
        await discord_server.click(alice, direct.bot_messages[-1], "Run")
        await steps.wait_for_answers(direct)
        discord_server.say(alice, direct, "more")
        await until(lambda: "Run" in direct.bot_messages[-1].buttons)
        assert direct.bot_messages[-1].files == {"to-approve.py": long.encode()}
        await discord_server.click(alice, direct.bot_messages[-1], "Run")
        await until(lambda: "Ran." in direct.bot_messages[-1].content)


async def test_nobody_approves_code_that_may_not_be_attached(discord_server, lab, connect, until):
    discord_server.expect(50013)
    long = "\n".join(f"line_{number} = {number}" for number in range(200))

    async def ask(turn):
        turn.reply.step(1)
        code = await turn.reply.approve(0, long)
        return turn.done("Then not." if code is None else "Ran.")

    alice = lab.person("alice")
    channel = lab.channel("words", denied={"attach_files", "create_public_threads"})
    async with connect(ask):
        discord_server.say(alice, channel, f"{discord_server.bot.mention} go")
        await until(lambda: channel.bot_messages and "Refuse" in channel.bot_messages[-1].buttons)
        assert "Run" not in channel.bot_messages[-1].buttons
        assert "You cannot see all of the code here" in channel.bot_messages[-1].content
        done = await discord_server.click(alice, channel.bot_messages[-1], "Edit")
        assert done.modal["components"][0]["component"]["value"] == long
        await discord_server.click(alice, channel.bot_messages[-1], "Refuse")
        await until(lambda: "Then not." in channel.bot_messages[-1].content)


async def test_long_code_that_may_not_be_attached_is_seen_and_run(
    discord_server, lab, connect, until
):
    discord_server.expect(50013)
    long = "\n".join(f"line_{number} = {number}" for number in range(400))
    assert len(long) > 4000

    async def ask(turn):
        turn.reply.step(1)
        code = await turn.reply.approve(0, long)
        return turn.done("Ran." if code == long else "Then not.")

    alice = lab.person("alice")
    channel = lab.channel("words", denied={"attach_files", "create_public_threads"})
    async with connect(ask):
        discord_server.say(alice, channel, f"{discord_server.bot.mention} go")
        await until(lambda: channel.bot_messages and "Refuse" in channel.bot_messages[-1].buttons)
        assert "Run" not in channel.bot_messages[-1].buttons
        seen = await discord_server.click(alice, channel.bot_messages[-1], "Edit")
        await steps.wait_for_final_text(seen)
        shown = seen.messages[-1]
        assert shown.seen_by is alice
        assert shown.files == {"to-approve.py": long.encode()}
        await discord_server.click(alice, shown, "Run")
        await until(lambda: "Ran." in channel.bot_messages[-1].content)
