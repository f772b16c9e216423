"""Stop, feedback, `input()`, and leave to run code."""

import asyncio

import aiohttp
import pytest

from interpreter_bot import events, values
from interpreter_bot.platforms.chat import in_flight
from interpreter_bot.platforms.slack import (
    api_errors,
    handler_dependencies,
    installations,
    markdown,
    message_posting,
    transport,
)
from interpreter_bot.sessions import requests
from tests.fakes import conversations as fake
from tests.fakes.slack_server.servers import Fault
from tests.integration.slack.worlds import (
    connect_platform,
    has_button,
    make_settings,
    recent_text,
)


async def endless(turn):
    turn.reply.step(1)
    await turn.reply.code(0, "while True: pass")
    turn.reply.output(0, values.Text("stdout", "so far\n"))
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        turn.reply.finished(0, values.Finished(values.Ending.STOPPED, 1.0))
        raise


async def test_slacks_own_stop_button_stops_the_turn_and_keeps_what_was_shown(slack, service, app):
    service.script = endless
    ts = slack.say("U1", "DU1", "<@UBOT> run")
    await slack.until(lambda: "running …" in str(slack.replies("DU1", ts)))
    slack.press_stop("U1", "DU1", ts)
    await slack.until(lambda: service.ends)
    await slack.until(lambda: slack.status("DU1", ts) == "active")
    [answer] = slack.answers("DU1", ts)
    assert "so far" in answer["blocks"][0]["text"]
    assert "Stopped." in answer["blocks"][0]["text"]
    service.script = fake.echo
    slack.say("U1", "DU1", "<@UBOT> again", thread=ts)
    await slack.until(lambda: len(slack.answers("DU1", ts)) == 2)


@pytest.mark.parametrize("way", ["words", "button"])
async def test_who_asked_and_admins_stop_a_turn_and_nobody_else(slack, service, app, way):
    slack.has_agents = False
    service.script = endless
    ts = slack.say("U1", "C1", "<@UBOT> run")
    [answer] = await slack.until(lambda: service.running and slack.replies("C1", ts))

    def stop(person):
        if way == "button":
            slack.click(person, "C1", answer["ts"], "stop")
        else:
            slack.say(person, "C1", "<@UBOT> stop", thread=ts)

    stop("U2")
    refusal = "Only the person who asked can do that."
    await slack.until(lambda: refusal in str([slack.world.responses, slack.replies("C1", ts)]))
    assert not service.ends
    stop("UADMIN")
    await slack.until(lambda: service.ends)
    assert service.ends[0].status is values.TurnStatus.STOPPED


async def test_stop_of_a_request_that_waits_leaves_the_running_one_alone(slack, service, app):
    slack.has_agents = False
    service.script = endless
    ts = slack.say("U1", "C1", "<@UBOT> run")
    await slack.until(lambda: service.running)
    slack.say("U2", "C1", "<@UBOT> wait", thread=ts)
    _, waiting = await slack.until(
        lambda: (
            len(service.requests) == 2
            and len(slack.replies("C1", ts)) == 2
            and slack.replies("C1", ts)
        )
    )
    slack.click("U2", "C1", waiting["ts"], "stop")
    await slack.until(lambda: "withdrawn" in str(waiting["blocks"]))
    assert service.running
    assert len(service.ends) == 1


async def test_stop_before_the_request_even_waits_is_heeded(slack, service, app):
    slack.has_agents = False
    slack.fail("conversations.replies", Fault("slow", seconds=0.5))
    root = slack.say("U2", "C1", "words")
    slack.say("U1", "C1", "<@UBOT> py while True: pass", thread=root)
    service.script = endless
    other = slack.say("U1", "C1", "<@UBOT> run", thread=root)
    [answer] = await slack.until(
        lambda: [m for m in slack.replies("C1", root) if "stop" in str(m["blocks"])]
    )
    slack.click("U1", "C1", answer["ts"], "stop")
    await slack.until(lambda: "Stopped" in str(answer["blocks"]))
    assert other


async def test_feedback_buttons_follow_the_answer(slack, service, app):
    async def script(turn):
        return turn.done("One.\nTwo.")

    service.script = script
    ts = slack.say("U1", "C1", "<@UBOT> hi")
    [answer] = await slack.until(
        lambda: [m for m in slack.answers("C1", ts) if "feedback" in str(m["blocks"])]
    )
    slack.click("U1", "C1", answer["ts"], "feedback", value="up 1")
    [told] = await slack.until(lambda: slack.world.responses)
    assert told["text"] == "Thanks for the feedback."
    assert told["replace_original"] is False


async def asking(turn):
    turn.reply.step(1)
    await turn.reply.code(0, "name = input('Name? ')")
    answer = await turn.reply.ask(0, values.InputRequested("Name? ", is_password=False))
    turn.reply.output(0, values.Text("stdout", f"Hi {answer}\n"))
    turn.reply.finished(0, fake.finished_well())


async def test_input_is_answered_by_the_next_message_of_who_started(slack, service, app):
    service.script = asking
    ts = slack.say("U1", "C1", "<@UBOT> ask me")
    question = await slack.until(
        lambda: [m for m in slack.replies("C1", ts) if has_button(m, "answer")]
    )
    slack.say("U2", "C1", "Bob", thread=ts)
    slack.say("U1", "C1", "not in the thread")
    slack.say("U1", "C1", "Ada &amp; co", thread=ts, times=2)
    await slack.until(lambda: service.ends)
    await slack.until(lambda: question[0]["ts"] not in str(slack.replies("C1", ts)))
    assert len(service.requests) == 1
    # Should the bot die, it is not taken for a request.
    assert None in [about.get("content", "") for _, about in service.claimed]
    await slack.until(lambda: "Name? Ada & co\\nHi Ada & co" in str(slack.answers("C1", ts)))


async def test_the_model_is_answered_by_a_button_by_a_number_or_by_words(slack, service, app):
    answers = []

    async def asks(turn):
        turn.reply.step(1)
        answers.append(await turn.reply.ask_for_model("Which region?", "North", "South"))
        return "Done."

    service.script = asks
    ts = slack.say("U1", "C1", "<@UBOT> plot")
    [question] = await slack.until(
        lambda: [m for m in slack.replies("C1", ts) if has_button(m, "pick1")]
    )
    assert "Which region?" in str(question["blocks"])
    slack.click("U2", "C1", question["ts"], "pick0")
    await slack.until(lambda: "Only the person who asked" in str(slack.world.responses))
    slack.click("U1", "C1", question["ts"], "pick1")
    await slack.until(lambda: service.ends)
    for number, words in enumerate(("1", "Both"), start=1):
        ts = slack.say("U1", "C1", "<@UBOT> again")
        await slack.until(
            lambda ts=ts: any(has_button(m, "pick1") for m in slack.replies("C1", ts))
        )
        slack.say("U1", "C1", words, thread=ts)
        await slack.until(lambda number=number: len(service.ends) > number)
    assert answers == ["South", "North", "Both"]
    await slack.until(lambda: "Which region? → Both" in str(slack.answers("C1", ts)))


async def test_input_of_a_channels_session_is_answered_in_its_own_thread_only(slack, service, app):
    def asked():
        return [m for m in slack.world.messages.values() if has_button(m, "answer")]

    service.script = fake.echo
    slack.command("U1", "C1", "/py", "1")
    await slack.until(lambda: len(service.ends) == 1)
    [other] = [m["ts"] for m in slack.world.messages.values() if m.get("bot_id")]
    # The other thread is known for one of the channel's session.
    slack.say("U1", "C1", "<@UBOT> hello", thread=other)
    await slack.until(lambda: len(service.ends) == 2)
    service.script = asking
    slack.command("U1", "C1", "/py", "name = input('Name? ')")
    [question] = await slack.until(asked)
    answered = slack.say("U1", "C1", "looks fine to me", thread=other)
    await slack.until(lambda: any(answered in str(claim) for claim in service.claimed))
    slack.say("U1", "C1", "Ada", thread=question["thread_ts"])
    await slack.until(lambda: "Hi " in str(slack.world.messages))
    assert "Hi Ada" in str(slack.world.messages)


async def test_input_can_be_answered_with_a_form_and_a_password_only_so(slack, service, app):
    async def script(turn):
        await turn.reply.code(0, "getpass()")
        service.given = await turn.reply.ask(
            0, values.InputRequested("Password: ", is_password=True)
        )
        turn.reply.finished(0, fake.finished_well())

    service.script = script
    ts = slack.say("U1", "C1", "<@UBOT> ask me")
    [question] = await slack.until(
        lambda: [m for m in slack.replies("C1", ts) if "Password" in str(m.get("blocks"))]
    )
    slack.click("U2", "C1", question["ts"], "answer")
    [told] = await slack.until(lambda: slack.world.responses)
    assert "Only the person who asked" in told["text"]
    slack.say("U1", "C1", "hunter1", thread=ts)
    slack.say("U1", "C1", "<@UBOT> what next?", thread=ts)
    await slack.until(lambda: "don't take passwords" in str(slack.replies("C1", ts)))
    slack.click("U1", "C1", question["ts"], "answer")
    [view] = await slack.until(lambda: slack.world.modals)
    service.script = fake.echo
    slack.submit("U1", view, field="hunter2")
    await slack.until(lambda: len(service.ends) == 2)
    assert service.given == "hunter2"
    assert "hunter2" not in str(slack.world.messages)
    assert [request.text for request in service.requests] == ["ask me", "what next?"]
    assert "hunter" not in recent_text(service.requests[1])


async def test_a_choice_is_made_by_the_button_of_who_started(slack, service, app):
    async def script(turn):
        await turn.reply.code(0, "reach()")
        service.given = await turn.reply.approve(
            0, "POST to a.example", subject="request", choices=("session",)
        )
        turn.reply.finished(0, fake.finished_well())

    service.script = script
    ts = slack.say("U1", "C1", "<@UBOT> ask me")
    [question] = await slack.until(
        lambda: [m for m in slack.replies("C1", ts) if has_button(m, "session")]
    )
    slack.click("U2", "C1", question["ts"], "session")
    assert "Send this request?" in str(question["blocks"])
    await slack.until(lambda: slack.world.responses)
    slack.click("U1", "C1", question["ts"], "session")
    await slack.until(lambda: service.ends)
    assert service.given == "session"


async def test_question_is_taken_back_when_the_turn_is_stopped(slack, service, app):
    service.script = asking
    ts = slack.say("U1", "C1", "<@UBOT> ask me")
    [question] = await slack.until(
        lambda: [m for m in slack.replies("C1", ts) if has_button(m, "answer")]
    )
    slack.press_stop("U1", "C1", ts)
    await slack.until(lambda: question not in slack.replies("C1", ts))
    assert not any(has_button(m, "answer") for m in slack.replies("C1", ts))


async def test_end_of_code_is_recorded_though_slack_was_lost_while_it_asked(slack, service):
    is_lost = asyncio.Event()

    async def script(turn):
        await turn.reply.code(0, turn.request.text)
        question = asyncio.create_task(asking_name(turn))
        await is_lost.wait()
        turn.reply.output(0, values.Text("stdout", "more\n"))
        try:
            await asyncio.wait([question])
        finally:
            turn.reply.finished(0, fake.finished_well())

    async def asking_name(turn):
        await turn.reply.ask(0, values.InputRequested("Name? ", is_password=False))

    service.script = script
    workspace = installations.InstalledWorkspace(
        "T1", "UBOT", "BBOT", slack.world.teams["T1"].token
    )
    known = installations.InstalledWorkspaces(workspace)
    key, person = values.SessionKey("slack", "T1", "C1"), requests.Person("U1", "Ada")
    request = requests.Request(key=key, person=person, text="input()", is_code=True, id="1")
    place = message_posting.Place(workspace, "C1", thread="", request_ts="", user="U1")
    async with aiohttp.ClientSession() as session:
        shared = handler_dependencies.build(service, make_settings(slack), known, session)
        running = in_flight.RequestsInFlight(
            service, transport.SlackTransport(shared), markdown, shared.permissions.settings
        )
        entry = running.open_entry("1", "U1", transport.location(place, key))
        answering = asyncio.create_task(running.answer(entry, request))
        await slack.until(
            lambda: any(has_button(m, "answer") for m in slack.world.messages.values())
        )
        known.drop_token("T1", api_errors.GoneError("chat.update", "token_revoked"))
        is_lost.set()
        await answering
    [turn] = await service.queries.history(key)
    assert any(isinstance(event, events.CodeFinished) for event in turn.events)


async def approving(turn):
    turn.reply.step(1)
    assert turn.approval == "every"
    code = await turn.reply.approve(0, "rm = 1")
    turn.service.ran = code
    if code is not None:
        await turn.reply.code(0, code)
        turn.reply.finished(0, fake.finished_well())
    turn.reply.step(2)
    turn.reply.text("Done.")


async def approval(slack, channel, ts, title="Run this code?"):
    [question] = await slack.until(
        lambda: [m for m in slack.replies(channel, ts) if title in m["text"]]
    )
    return question


@pytest.mark.parametrize(
    ("button", "ran", "said"),
    [("run", "rm = 1", "Approved."), ("refuse", None, "Declined.")],
)
async def test_code_waits_for_leave(slack, service, button, ran, said):
    service.script = approving
    await service.places.choose(values.Scope("slack"), "approval", "every")
    async with connect_platform(slack, service):
        ts = slack.say("U1", "C1", "<@UBOT> go")
        question = await approval(slack, "C1", ts)
        assert "rm = 1" in question["blocks"][0]["text"]
        slack.click("U2", "C1", question["ts"], button)
        await slack.until(lambda: slack.world.responses)
        slack.click("U1", "C1", question["ts"], button)
        await slack.until(lambda: slack.status("C1", ts) == "active")
    assert service.ran == ran
    assert said in str(slack.replies("C1", ts))


@pytest.mark.parametrize(("is_personal", "answer"), [(True, None), (False, "session")])
async def test_an_admin_approves_nothing_that_acts_with_an_account_of_another(
    slack, service, app, is_personal, answer
):
    async def script(turn):
        await turn.reply.code(0, "jira.delete()")
        service.given = await turn.reply.approve(
            1, "tools.jira.delete()", choices=("session",), is_personal=is_personal
        )
        turn.reply.output(0, values.Text("stdout", "over\n"))
        turn.reply.finished(0, fake.finished_well())

    service.script = script
    ts = slack.say("U1", "C1", "<@UBOT> go")
    question = await approval(slack, "C1", ts, "Make this call?")
    slack.click("UADMIN", "C1", question["ts"], "session")
    if is_personal:
        await slack.until(lambda: "Only the person who asked" in str(slack.world.responses))
        slack.click("U1", "C1", question["ts"], "refuse")
    await slack.until(lambda: "over" in str(slack.answers("C1", ts)))
    assert service.given == answer


async def test_code_can_be_edited_before_it_runs(slack, service):
    service.script = approving
    await service.places.choose(values.Scope("slack"), "approval", "every")
    async with connect_platform(slack, service):
        ts = slack.say("U1", "C1", "<@UBOT> go")
        question = await approval(slack, "C1", ts)
        slack.click("U1", "C1", question["ts"], "change")
        [view] = await slack.until(lambda: slack.world.modals)
        assert view["blocks"][0]["element"]["initial_value"] == "rm = 1"
        slack.submit("U1", view, field="rm = “2”")
        await slack.until(lambda: service.ends)
    assert service.ran == 'rm = "2"'
    await slack.until(lambda: "Approved, as edited." in str(slack.answers("C1", ts)))


async def test_an_admin_runs_code_of_another_only_as_it_is(slack, service):
    service.script = approving
    await service.places.choose(values.Scope("slack"), "approval", "every")
    async with connect_platform(slack, service):
        ts = slack.say("U1", "C1", "<@UBOT> go")
        question = await approval(slack, "C1", ts)
        slack.click("UADMIN", "C1", question["ts"], "change")
        await slack.until(lambda: "Only the person who asked" in str(slack.world.responses))
        assert slack.world.modals == []
        slack.click("U1", "C1", question["ts"], "change")
        [view] = await slack.until(lambda: slack.world.modals)
        slack.submit("UADMIN", view, field="rm = 2")
        await slack.until(lambda: "Only the person who asked" in str(slack.world.ephemerals))
        slack.click("UADMIN", "C1", question["ts"], "run")
        await slack.until(lambda: service.ends)
    assert service.ran == "rm = 1"


async def test_code_too_long_for_a_message_is_shown_whole_before_leave_is_asked(slack, service):
    code = "\n".join(f"x{number} = {number}" for number in range(2_000))

    async def script(turn):
        service.ran = await turn.reply.approve(0, code)

    service.script = script
    await service.places.choose(values.Scope("slack"), "approval", "every")
    async with connect_platform(slack, service):
        ts = slack.say("U1", "C1", "<@UBOT> go")
        question = await approval(slack, "C1", ts)
        [file] = slack.world.batches[0]["files"]
        assert slack.world.contents[file["id"]].decode() == code
        slack.click("U1", "C1", question["ts"], "run")
        await slack.until(lambda: service.ends)
    assert service.ran == code


TROJAN = "level = 'user'\u202e \u2066# only admins\u2069\u200b"


async def test_code_that_reads_otherwise_than_it_runs_is_shown_as_it_runs(slack, service):
    async def script(turn):
        service.ran = await turn.reply.approve(0, TROJAN)

    service.script = script
    await service.places.choose(values.Scope("slack"), "approval", "every")
    async with connect_platform(slack, service):
        ts = slack.say("U1", "C1", "<@UBOT> go")
        question = await approval(slack, "C1", ts)
        shown = question["blocks"][0]["text"]
        assert "level = 'user'⟨U+202E⟩ ⟨U+2066⟩# only admins⟨U+2069⟩⟨U+200B⟩" in shown
        assert "4 characters that nobody can see" in shown
        slack.click("U1", "C1", question["ts"], "run")
        await slack.until(lambda: service.ends)
    assert service.ran == TROJAN


async def test_code_of_an_answer_shows_what_cannot_be_seen(slack, service, app):
    async def script(turn):
        await turn.reply.code(0, TROJAN)
        turn.reply.finished(0, fake.finished_well())

    service.script = script
    await service.places.choose(values.Scope("slack", "T1", person="U1"), "show_code", True)
    ts = slack.say("U1", "C1", "<@UBOT> go")
    await slack.until(lambda: "⟨U+202E⟩" in str(slack.answers("C1", ts)))


async def test_no_channel_weakens_the_approval_of_its_workspace(slack, service, app):
    await service.places.choose(values.Scope("slack", "T1"), "approval", "every")
    slack.command("UADMIN", "C1", "/interpreter", "approval never channel")
    [told] = await slack.until(lambda: slack.world.responses)
    assert "never in this channel. That is weaker" in told["text"]
    assert told["text"].endswith("In effect for you here: every.")
    ts = slack.say("U1", "C1", "<@UBOT> go")
    await slack.until(lambda: slack.answers("C1", ts))
    assert service.turns[0].approval == "every"


async def test_channel_chooses_its_approval(slack, service, app):
    slack.command("UADMIN", "C1", "/interpreter", "approval every channel")
    await slack.until(lambda: slack.world.responses)
    ts = slack.say("U1", "C1", "<@UBOT> go")
    other = slack.say("U1", "C2", "<@UBOT> go")
    await slack.until(lambda: slack.answers("C1", ts) and slack.answers("C2", other))
    approvals = {turn.request.key.channel: turn.approval for turn in service.turns}
    assert approvals == {"C1": "every", "C2": "never"}
