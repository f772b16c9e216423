"""What people and Slack do in the middle of things: nothing is lost, stuck or said twice."""

import asyncio
import contextlib
import dataclasses
import time

import aiohttp
import pytest
import sqlalchemy

from interpreter_bot import encryption, errors, events, values
from interpreter_bot.platforms.chat import policies
from interpreter_bot.platforms.slack import (
    api_errors,
    markdown,
    permissions,
)
from interpreter_bot.store import records, third_party_tables, transactions
from tests.fakes import conversations as fake
from tests.fakes.slack_server import worlds
from tests.fakes.slack_server.servers import Fault
from tests.integration.slack.test_asking import asking, endless
from tests.integration.slack.worlds import HTTP, connect_platform, has_button

# Deletions -----------------------------------------------------------------------------------


async def test_deleted_question_is_worked_on_no_longer(slack, service, app):
    service.script = endless
    ts = slack.say("U1", "C1", "<@UBOT> run")
    await slack.until(lambda: service.running and slack.replies("C1", ts))
    slack.delete("C1", ts)
    await slack.until(lambda: service.ends)
    assert service.ends[0].status is values.TurnStatus.STOPPED
    await slack.until(lambda: slack.status("C1", ts) == "active")


# Stops ---------------------------------------------------------------------------------------


async def test_all_processes_stop_what_they_do_for_a_workspace_that_removes_the_bot(
    slack, tmp_path
):
    both = []
    with pytest.raises(errors.PlatformLostError):  # noqa: PT012
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(2):
                opened = fake.opened(tmp_path / "bot", endless)
                both.append(service := await stack.enter_async_context(opened))
                await stack.enter_async_context(connect_platform(slack, service))
            for number in range(20):
                slack.say("U1", "DU1", f"<@UBOT> run {number}")
                await slack.until(lambda: sum(len(one.running) for one in both) > number)  # noqa: B023
                if all(one.running for one in both):
                    break
            slack.world.teams["T1"].is_revoked = True
            slack.event({"type": "tokens_revoked", "tokens": {"bot": ["UBOT"]}, "event_ts": "1.1"})
            await slack.until(lambda: all(len(one.ends) == len(one.requests) for one in both))
            assert all(one.ends for one in both)


async def test_stop_of_what_no_process_has_any_more_clears_the_status(slack, service, app):
    ts = slack.say("U1", "C1", "hi")
    slack.press_stop("U1", "C1", ts)
    [told] = await slack.until(lambda: slack.world.ephemerals)
    assert "Nothing is running" in told["text"]
    assert slack.status("C1", ts) == "active"


async def test_stop_is_heeded_while_the_thread_is_read(slack, service, app):
    service.script = endless
    root = slack.say("U2", "C1", "words")
    slack.fail("conversations.replies", Fault("slow", seconds=0.4))
    slack.say("U1", "C1", "<@UBOT> run", thread=root)
    await slack.until(lambda: slack.status("C1", root) == "processing")
    slack.press_stop("U1", "C1", root)
    await slack.until(lambda: slack.status("C1", root) == "active")
    await slack.until(lambda: slack.answers("C1", root))
    assert "Stopped." in str(slack.answers("C1", root))
    assert service.ends == []


async def test_request_that_cannot_be_made_leaves_nothing_at_work(slack, service, app):
    async def files(key):
        raise errors.BotError("The workspace <!channel> cannot be read.")

    service.queries.files = files
    root = slack.say("U2", "C1", "numbers", files=[slack.put_file("a.csv", b"a")])
    slack.say("U1", "C1", "<@UBOT> sum them", thread=root)
    [answer] = await slack.until(lambda: slack.answers("C1", root))
    assert "cannot be read" in answer["text"]
    await slack.until(lambda: slack.status("C1", root) == "active")
    assert service.requests == []


# Rates and outages ---------------------------------------------------------------------------


async def test_busy_channel_holds_up_no_other(slack, service, app):
    slack.has_agents = False
    slack.fail("chat.postMessage", Fault("ratelimited", seconds=6))
    first = slack.say("U1", "C1", "<@UBOT> one")
    await slack.until(lambda: slack.called("chat.postMessage"))
    second = slack.say("U1", "C2", "<@UBOT> two")
    await slack.until(lambda: slack.answers("C2", second))
    assert not slack.answers("C1", first)
    await slack.until(lambda: slack.answers("C1", first))


async def test_many_answers_at_once_share_the_rate_of_streams(slack, service):
    async def talking(turn):
        turn.reply.step(1)
        for _ in range(150):
            turn.reply.text("word ")
            await asyncio.sleep(0.01)

    service.script = talking
    async with connect_platform(slack, service, streaming_seconds=1 / slack.speed):
        asked = [slack.say("U1", "DU1", f"<@UBOT> {number}") for number in range(8)]
        await slack.until(lambda: len(service.ends) == 8, seconds=30)
        await slack.until(lambda: all(slack.status("DU1", ts) == "active" for ts in asked))
    assert [name for name, *_ in slack.errors if name == "chat.appendStream"] == []


async def test_answer_survives_a_long_outage(slack, service):
    async def script(turn):
        turn.reply.step(1)
        turn.reply.text("the answer")
        slack.choose_fault = lambda *_: Fault("status") if time.monotonic() < back else None
        back = time.monotonic() + 2
        return

    service.script = script
    async with connect_platform(slack, service, max_pause_seconds=0.05):
        ts = slack.say("U1", "C1", "<@UBOT> go")
        await slack.until(lambda: slack.status("C1", ts) == "active")
    assert [m["text"] for m in slack.answers("C1", ts)] == ["the answer"]


async def test_stream_that_began_unheard_is_not_left_behind_when_time_is_up(slack, service):
    slack.fail("chat.startStream", Fault("drop"), Fault("drop after"))
    slack.fail("conversations.replies", Fault("slow", seconds=0.3))
    async with connect_platform(slack, service, starting_seconds=0.2):
        ts = slack.say("U1", "DU1", "<@UBOT> go")
        await slack.until(lambda: slack.status("DU1", ts) == "active")
    [answer] = slack.replies("DU1", ts)
    assert answer.get("stream") != "open"


async def test_files_that_slack_shares_late_are_sent_once(slack, service):
    async def script(turn):
        await turn.reply.code(0, "x")
        turn.reply.finished(0, fake.finished_well())
        turn.make(0, "R&D <1>.txt", b"abc")

    service.script = script
    slack.fail("files.completeUploadExternal", Fault("drop after"))
    looked = []

    def late(method, arguments):
        if method == "files.info":
            looked.append(time.monotonic())
            if looked[-1] - looked[0] < 1.0:
                return Fault("hide")
        return None

    slack.choose_fault = late
    async with connect_platform(slack, service, sharing_seconds=4):
        ts = slack.say("U1", "C1", "<@UBOT> go")
        await slack.until(lambda: slack.status("C1", ts) == "active")
        await slack.until(lambda: looked and time.monotonic() - looked[0] > 2.5)
    assert len(slack.called("files.completeUploadExternal")) == 1
    assert [f["name"] for f in slack.world.batches[0]["files"]] == ["R&D _1_.txt"]
    assert "could not" not in str(slack.answers("C1", ts))


# Order ---------------------------------------------------------------------------------------


async def test_question_waits_for_the_code_before_it_though_slack_is_slow(slack, service, app):
    root = slack.say("U2", "C1", "words")
    slack.fail("chat.postMessage", Fault("slow", seconds=0.4))
    slack.say("U1", "C1", "<@UBOT> py x = 1", thread=root)
    slack.say("U1", "C1", "<@UBOT> what is x?", thread=root)
    await slack.until(lambda: len(service.ends) == 2)
    assert [request.text for request in service.requests] == ["x = 1", "what is x?"]


async def test_session_begun_within_a_thread_has_a_title_too(slack, service, app):
    root = slack.say("U2", "C1", "words")
    slack.say("U1", "C1", "<@UBOT> the first", thread=root)
    await slack.until(lambda: service.titles)
    slack.say("U1", "C1", "<@UBOT> the second", thread=root)
    await slack.until(lambda: len(service.ends) == 2 and slack.status("C1", root) == "active")
    assert service.titles == {values.SessionKey("slack", "T1", "C1", root): "the first"}


async def test_edit_of_an_answer_to_python_asks_nothing_new(slack, service, app):
    service.script = asking
    ts = slack.say("U1", "C1", "<@UBOT> ask me")
    await slack.until(lambda: [m for m in slack.replies("C1", ts) if "Name?" in str(m)])
    answer = slack.say("U1", "C1", "Ada", thread=ts)
    await slack.until(lambda: service.ends)
    slack.edit("C1", answer, "Bob")
    # Nothing is to come of it, so there is nothing else to wait for.
    await asyncio.sleep(0.5)
    assert len(service.requests) == 1


async def test_channel_that_does_not_want_it_is_not_followed(slack, service, app):
    slack.command("UADMIN", "C1", "/interpreter", "follow off channel")
    [told] = await slack.until(lambda: slack.world.responses)
    assert told["text"] == "follow_threads is now off in this channel."
    slack.command("U1", "C1", "/interpreter", "follow on channel")
    await slack.until(lambda: len(slack.world.responses) == 2)
    assert "Only admins" in slack.world.responses[1]["text"]
    ts = slack.say("U1", "C1", "<@UBOT> one")
    await slack.until(lambda: slack.answers("C1", ts))
    slack.say("U1", "C1", "two", thread=ts)
    slack.say("U1", "C1", "<@UBOT> three", thread=ts)
    await slack.until(lambda: len(service.ends) == 2)
    assert [request.text for request in service.requests] == ["one", "three"]


async def test_form_that_comes_too_late_says_so(slack, service, app):
    service.script = asking
    ts = slack.say("U1", "C1", "<@UBOT> ask me")
    [question] = await slack.until(
        lambda: [m for m in slack.replies("C1", ts) if has_button(m, "answer")]
    )
    slack.click("U1", "C1", question["ts"], "answer")
    [view] = await slack.until(lambda: slack.world.modals)
    slack.say("U1", "C1", "Ada", thread=ts)
    await slack.until(lambda: service.ends)
    slack.submit("U1", view, field="Bob")
    [told] = await slack.until(lambda: slack.world.ephemerals)
    assert "has expired" in told["text"]


# Organisations -------------------------------------------------------------------------------


async def test_token_of_an_organisation_is_refused_in_words(slack, service):
    slack.world.teams["T1"].is_organisation = True
    with pytest.raises(api_errors.SlackError, match="workspace by workspace"):
        async with connect_platform(slack, service):
            pass


# slack_sdk names itself to Slack in a way that aiohttp is going to leave.
@pytest.mark.filterwarnings("ignore:.*BasicAuth.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("is_organisation", "status", "words"),
    [(True, 400, "choose one workspace"), (False, 500, "could not store its token")],
    ids=["for an organisation", "without a key"],
)
async def test_installation_that_is_impossible_is_refused_in_words(
    slack, service, tmp_path, caplog, is_organisation, status, words
):
    sqlalchemy = pytest.importorskip("sqlalchemy.ext.asyncio")
    engine = sqlalchemy.create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/tokens.db")
    team = worlds.Team(
        "T2", "xoxb-loopback-token-2", "UBOT2", "BBOT2", is_organisation=is_organisation
    )
    more = {"bot_token": "", "client_id": "1.2", "client_secret": "s3cret"}
    tables = third_party_tables.LibraryTables(engine, encryption.KeyRing("", tmp_path / "keys"))
    more |= {**HTTP, "public_url": "https://bot.example", "tables": tables}
    try:
        async with (
            connect_platform(slack, service, **more) as address,
            aiohttp.ClientSession() as session,
        ):
            async with session.get(f"{address}/slack/install") as response:
                state = (await response.text()).partition("state=")[2].partition("&")[0]
            slack.oauth_codes["code-2"] = team
            # The bot made none so far; one that was there and is gone is not made anew.
            (tmp_path / "keys").touch(mode=0o600)
            url = f"{address}/slack/oauth_redirect?code=code-2&state={state}"
            cookie = {"Cookie": f"slack-app-oauth-state={state}"}
            async with session.get(url, headers=cookie) as response:
                assert response.status == status
                assert words in await response.text()
        assert is_organisation or "T2 could not be stored: " in caplog.text
        assert is_organisation or "holds no key" in caplog.text
    finally:
        await engine.dispose()


# Words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    [
        "[https://bank.com](https://evil.example/x)",
        '[bank.com](https://evil.example/x "bank")',
        "[**bank.com**](<https://evil.example/x>)",
        "[bank.com]( https://evil.example/x (bank) )",
    ],
)
def test_link_that_pretends_to_lead_elsewhere_is_shown_bare(written):
    assert markdown.break_mentions(f"see {written}.") == "see https://evil.example/x."
    streamed = markdown.prepare_for_stream(f"see {written}.", None)
    assert "`https://evil.example/x`" in streamed
    assert "](" not in streamed


def test_notifications_are_words_without_marks():
    written = (
        "# Sales\n**70 units**, `a ** b`:\n\n| region | units |\n|---|---:|\n| South | 30 |\n---"
    )
    assert markdown.notification(written) == (
        "Sales\n70 units, `a ** b`:\n\n| region | units |\n| South | 30 |\n---"
    )
    assert "<!" not in markdown.notification("<!**chan**nel> @**chan**nel")
    assert "@channel" not in markdown.notification("<!**chan**nel> @**chan**nel")


def test_parentheses_in_an_address_hide_nothing():
    told = markdown.break_mentions("see [bank.com](https://evil.example/x_(y)).")
    assert told == "see https://evil.example/x_(y)."


@pytest.mark.parametrize(
    "written",
    [
        "[here](https://a.example/x)",
        "[a.example](https://a.example)",
        "[x](https://a.example/b_(c))",
    ],
)
def test_honest_link_stays(written):
    assert markdown.break_mentions(written) == written


async def test_name_of_a_file_in_a_refusal_reaches_nobody(slack, service, app):
    file = slack.put_file("<!channel>.py", b"1", mode="snippet", filetype="python")
    file["file_access"] = "access_denied"
    slack.say("U1", "C1", "<@UBOT>", files=[file])
    [told] = await slack.until(lambda: slack.world.ephemerals)
    assert "channel>.py" in str(told["blocks"])


# Faults of our own ---------------------------------------------------------------------------

FAULT = "Something went wrong inside the bot"


def _fallen(*_):
    raise RuntimeError("nobody foresaw this")


async def _nothing_to_stop(slack, answer, stop):
    """The button of before, pressed again, finds no request."""
    answer["blocks"] = stop
    slack.click("U1", "C1", answer["ts"], "stop")
    [told] = await slack.until(lambda: slack.world.responses)
    assert "Nothing is running" in told["text"]


@pytest.mark.parametrize("where", ["before its turn", "in its turn"])
async def test_fault_of_our_own_is_said_and_its_request_forgotten(
    slack, service, app, monkeypatch, where
):
    slack.has_agents = False
    gate = asyncio.Event()

    async def fall(*_):
        await gate.wait()
        raise RuntimeError("nobody foresaw this")

    if where == "in its turn":
        monkeypatch.setattr(service, "handle", fall)
    else:
        monkeypatch.setattr(service.queries, "files", fall)
    ts = slack.say("U1", "C1", "data", files=[slack.put_file("a.csv", b"a,b\n")])
    slack.say("U1", "C1", "<@UBOT> go", thread=ts)
    [answer] = await slack.until(
        lambda: [m for m in slack.replies("C1", ts) if "stop" in str(m.get("blocks"))]
    )
    stop = answer["blocks"]
    gate.set()
    await slack.until(lambda: FAULT in str(answer["blocks"]))
    await _nothing_to_stop(slack, answer, stop)


async def test_fault_before_the_first_sign_is_whispered(slack, service, app, monkeypatch):
    monkeypatch.setattr(permissions.Permissions, "profile", _fallen)
    slack.say("U1", "C1", "<@UBOT> go")
    await slack.until(lambda: FAULT in str(slack.world.ephemerals))


async def test_fault_of_a_command_is_told(slack, service, app, monkeypatch):
    monkeypatch.setattr(service.queries, "files", _fallen)
    slack.command("U1", "C1", "/interpreter", "files")
    [told] = await slack.until(lambda: slack.world.responses)
    assert FAULT in told["text"]


def working(go):
    """Return a script that goes on as a job until it may end."""

    async def work(turn):
        turn.reply.emit(events.OutputShown(0, values.Text("stdout", "step 1\nstep 2\n")))
        await go.wait()
        turn.reply.emit(events.CodeFinished(0, values.Finished(values.Ending.OK, 65.0)))

    return work


async def test_a_job_shows_how_it_goes_and_its_end_is_a_message_of_its_own(slack, service, app):
    root = slack.say("U1", "C1", "<@UBOT> begin")
    await slack.until(lambda: service.ends)
    go = asyncio.Event()
    service.script = working(go)
    key = service.handled_requests[0].key
    await service.go_on(key, "work()", person="U1", request_id="123456789", is_job=True)
    shown = await slack.until(
        lambda: [m for m in slack.replies("C1", root) if "step 2" in str(m["blocks"])]
    )
    assert "running …" in str(shown[0]["blocks"])
    assert "step 1" not in str(shown[0]["blocks"])
    assert has_button(shown[0], "stop")
    # Others are answered beside it.
    service.script = fake.echo
    slack.say("U1", "C1", "<@UBOT> how far?", thread=root)
    await slack.until(lambda: "echo: how far?" in str(slack.answers("C1", root)[-1]))
    go.set()
    await slack.until(lambda: "in the background is done" in str(slack.answers("C1", root)))
    # What showed its progress is gone then.
    await slack.until(lambda: not any(has_button(m, "stop") for m in slack.replies("C1", root)))
    assert len(slack.answers("C1", root)) == 3
    assert "in the background is done" in str(slack.answers("C1", root)[-1])


async def test_a_job_is_stopped_by_its_button(slack, service, app):
    root = slack.say("U1", "C1", "<@UBOT> begin")
    await slack.until(lambda: service.ends)
    go = asyncio.Event()
    service.script = working(go)
    key = service.handled_requests[0].key
    await service.go_on(key, "work()", person="U1", request_id="123456789", is_job=True)
    [shown] = await slack.until(
        lambda: [m for m in slack.replies("C1", root) if has_button(m, "stop")]
    )
    slack.click("U2", "C1", shown["ts"], "stop")
    await slack.until(lambda: "Only the person who asked" in str(slack.world.responses))
    slack.click("U1", "C1", shown["ts"], "stop")
    await slack.until(lambda: "Stopped." in str(slack.answers("C1", root)))
    await slack.until(lambda: service.ends[-1].status is values.TurnStatus.STOPPED)


async def test_a_message_with_which_a_bot_had_not_begun_that_is_gone_is_answered(
    slack, service, app
):
    root = slack.say("U1", "C1", "<@UBOT> what is 2 &lt; 3?")
    await slack.until(lambda: service.ends)
    await slack.until(lambda: slack.status("C1", root) == "active")
    await service.die_before_beginning()
    await slack.until(lambda: len(service.ends) == 2)
    assert [request.text for request in service.requests] == ["what is 2 < 3?"] * 2
    assert [request.id for request in service.requests] == [f"C1/{root}"] * 2
    # What was a command may have been carried out.
    slack.say("U1", "C1", "<@UBOT> reset", thread=root)
    await slack.until(lambda: "command_confirm" in str(slack.replies("C1", root)))
    *_, content = [about["content"] for _, about in service.claimed if "content" in about]
    assert content is None


async def test_a_message_that_cannot_be_read_again_is_awaited_by_nobody(slack, service, app):
    slack.say("U1", "C1", "<@UBOT> go")
    await slack.until(lambda: service.ends)
    *_, (event, about) = [one for one in service.claimed if "key" in one[1]]
    about["content"]["message"] = {"subtype": "of another release"}
    await service.die_before_beginning()
    of_event = sqlalchemy.select(records.ClaimedEvent).where(
        records.ClaimedEvent.event_id == event[1]
    )
    async with asyncio.timeout(20):
        while True:
            (left,) = await transactions.Transactions(service.services.database.engine).all(
                of_event
            )
            if (left.address, left.content) == ("", None):
                break
            await asyncio.sleep(0.01)
    assert len(service.requests) == 1


async def _command(slack, ts):
    slack.command("U1", "C1", "/py", "print(x &gt; 0)")


async def _long_command(slack, ts):
    slack.command("U1", "C1", "/interpreter", "py print(x &gt; 0)")


async def _form(slack, ts):
    slack.command("U1", "C1", "/py")
    [view] = await slack.until(lambda: slack.world.modals)
    slack.submit("U1", view, field="print(x > 0)")


async def _shortcut(slack, ts):
    slack.shortcut("U1", "run_message", "C1", ts)


async def _question(slack, ts):
    slack.shortcut("U1", "ask_message", "C1", ts)
    [view] = await slack.until(lambda: slack.world.modals)
    slack.submit("U1", view, field="print(x > 0)")


@pytest.mark.parametrize("asked", [_command, _long_command, _form, _shortcut, _question])
async def test_an_interaction_with_which_a_bot_had_not_begun_that_is_gone_is_carried_out(
    slack, service, app, asked
):
    ts = slack.say("U2", "C1", "```print(x &gt; 0)```")
    await asked(slack, ts)
    await slack.until(lambda: service.ends)
    await service.die_before_beginning()
    await slack.until(lambda: len(service.ends) == 2)
    first, second = service.requests
    # Its files are fetched anew.
    assert dataclasses.replace(first, attachments=()) == dataclasses.replace(second, attachments=())
    assert (second.text, second.person.id) == ("print(x > 0)", "U1")
    assert second.is_code == (asked is not _question)


async def test_a_command_is_awaited_until_it_is_done_and_not_taken_again(
    slack, service, app, monkeypatch
):
    arrived, gate = asyncio.Event(), asyncio.Event()

    async def files(key):
        arrived.set()
        await gate.wait()
        return ()

    monkeypatch.setattr(service.queries, "files", files)
    slack.command("U1", "C1", "/interpreter", "files")
    await arrived.wait()
    claimed = sqlalchemy.select(records.ClaimedEvent)
    (awaited,) = await transactions.Transactions(service.services.database.engine).all(claimed)
    channel = values.format_key(values.SessionKey("slack", "T1", "C1"))
    assert (awaited.address, awaited.content) == (channel, None)
    gate.set()
    await slack.until(lambda: slack.world.responses)


async def test_who_may_not_any_more_is_told_that_an_interaction_is_not_taken_again(
    slack, service, app, monkeypatch
):
    slack.command("U1", "C1", "/py", "1")
    await slack.until(lambda: service.ends)

    async def refused(*_, **__):
        raise policies.NotAllowedError("You may not.")

    monkeypatch.setattr(permissions.Permissions, "require", refused)
    await service.die_before_beginning()
    [told] = await slack.until(lambda: slack.world.ephemerals)
    assert (told["text"], told["user"]) == ("You may not.", "U1")
    assert len(service.requests) == 1
