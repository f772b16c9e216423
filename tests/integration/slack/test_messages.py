"""Messages besides mentions: direct ones, files, edits, code in them, commands in them."""

import asyncio

import pytest

from interpreter_bot import settings, values
from tests.fakes import conversations as fake
from tests.integration.slack.worlds import connect_platform, recent_text

CSV = b"a,b\n1,2\n" * 1000


async def test_direct_message_is_a_session_of_its_own(slack, service, app):
    ts = slack.say("U1", "DU1", "hello")
    await slack.until(lambda: slack.answers("DU1", ts))
    slack.say("U1", "DU1", "more", thread=ts)
    other = slack.say("U1", "DU1", "something else")
    await slack.until(lambda: len(service.ends) == 3)
    keys = {request.text: request.key.thread for request in service.requests}
    assert keys == {"hello": ts, "more": ts, "something else": other}


async def test_files_of_a_direct_message_come_along(slack, service, app):
    one = slack.put_file("sales.csv", CSV)
    two = slack.put_file("été 2030.txt", b"x", mimetype="text/plain")
    slack.say("U1", "DU1", "sum it", files=[one, two])
    await slack.until(lambda: service.ends)
    assert service.taken == {"sales.csv": CSV, "été 2030.txt": b"x"}
    assert {token for _, token in slack.downloads} == {slack.world.teams["T1"].token}


async def test_file_without_words_is_a_question_too(slack, service, app):
    slack.say("U1", "DU1", "", files=[slack.put_file("a.csv", CSV)])
    await slack.until(lambda: service.ends)
    assert service.requests[0].text
    assert service.taken == {"a.csv": CSV}


async def test_file_in_a_mention_comes_once_though_slack_tells_of_it_twice(slack, service, app):
    slack.say("U1", "C1", "<@UBOT> sum", files=[slack.put_file("a.csv", CSV)], times=2)
    await slack.until(lambda: service.ends)
    await asyncio.sleep(0.2)
    assert len(service.requests) == 1
    assert service.taken == {"a.csv": CSV}


async def test_file_that_slack_only_names_is_looked_up(slack, service, app):
    known = slack.put_file("a.csv", CSV)
    stub = {"id": known["id"], "mode": "file_access", "file_access": "check_file_info"}
    slack.say("U1", "DU1", "sum", files=[stub])
    await slack.until(lambda: service.ends)
    [data] = service.taken.values()
    assert data == CSV


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"login": True}, "I'm not allowed to read it"),
        ({"login": True, "name": "page.html", "mimetype": "text/html"}, "bytes of it arrived"),
        ({"file_access": "access_denied"}, "not allowed to see it"),
        ({"mode": "tombstone"}, "was deleted"),
        ({"mode": "hidden_by_limit"}, "plan hides it"),
        ({"mode": "external"}, "hosted outside Slack"),
        ({"redirect": "https://evil.example/steal"}, "is not a Slack file"),
        ({"size": 600 * 1024 * 1024}, "the limit is"),
    ],
)
async def test_file_that_cannot_be_had_is_said_so(slack, service, app, facts, reason):
    slack.put_file("a.csv", CSV)
    file = slack.put_file("a.csv", CSV)
    file.update(facts)
    ts = slack.say("U1", "DU1", "sum", files=[file])
    await slack.until(lambda: slack.status("DU1", ts) == "active")
    [answer] = slack.answers("DU1", ts)
    assert reason in answer["text"]
    assert service.taken == {}


async def test_file_whose_size_was_not_told_is_bounded_while_it_comes(slack, tmp_path):
    limits = settings.Limits(upload_bytes=1000)
    async with fake.opened(tmp_path, limits=limits) as service, connect_platform(slack, service):
        file = slack.put_file("a.csv", bytes(500_000))
        del file["size"]
        ts = slack.say("U1", "DU1", "sum", files=[file])
        await slack.until(lambda: slack.status("DU1", ts) == "active")
    assert "is larger than" in slack.answers("DU1", ts)[0]["text"]


async def test_token_is_not_sent_to_another_host(slack, service, app):
    file = slack.put_file("a.csv", CSV)
    file["url_private_download"] = "http://127.0.0.1:9/steal"
    ts = slack.say("U1", "DU1", "sum", files=[file])
    await slack.until(lambda: slack.status("DU1", ts) == "active")
    assert "is not a Slack file" in slack.answers("DU1", ts)[0]["text"]


async def test_files_shared_earlier_in_the_thread_come_on_request(slack, service, app):
    root = slack.say("U2", "C1", "numbers", files=[slack.put_file("sales.csv", CSV)])
    slack.say("U2", "C1", "and", thread=root, files=[slack.put_file("cost.csv", b"c")])
    slack.say("U1", "C1", "<@UBOT> what is 1+1?", thread=root)
    await slack.until(lambda: len(service.ends) == 1)
    assert service.taken == {}
    assert "[file: sales.csv]" in recent_text(service.requests[0])
    slack.say("U1", "C1", "<@UBOT> sum sales.csv", thread=root)
    await slack.until(lambda: len(service.ends) == 2)
    assert list(service.taken) == ["sales.csv"]
    slack.say("U1", "C1", "<@UBOT> compare the files above", thread=root)
    await slack.until(lambda: len(service.ends) == 3)
    assert [a.name for a in service.requests[2].attachments] == ["cost.csv"]


async def test_python_snippet_alone_is_run_as_code(slack, service, app):
    file = slack.put_file(
        "untitled.py", b"print('\xe2\x80\x9cx')", mode="snippet", filetype="python"
    )
    ts = slack.say("U1", "C1", "<@UBOT>", files=[file])
    await slack.until(lambda: slack.answers("C1", ts))
    [request] = service.requests
    assert request.is_code
    assert request.text == "print('“x')"


async def test_py_in_a_mention_runs_code_in_the_threads_kernel(slack, service, app):
    ts = slack.say("U1", "C1", "<@UBOT> remember x")
    await slack.until(lambda: service.ends)
    code = "if 1 &lt; 2:\n    print(\u201ca\u201d &amp; \u2018b\u2019)"
    slack.say("U1", "C1", f"<@UBOT> py ```{code}```", thread=ts)
    await slack.until(lambda: len(service.ends) == 2)
    request = service.requests[1]
    assert request.is_code
    assert request.key.thread == ts
    assert request.text == "if 1 < 2:\n    print(\"a\" & 'b')"


async def test_edited_message_is_answered_anew(slack, service, app):
    ts = slack.say("U1", "C1", "<@UBOT> one")
    await slack.until(lambda: service.ends)
    slack.edit("C1", ts, "<@UBOT> two")
    await slack.until(lambda: len(service.ends) == 2)
    assert [request.text for request in service.requests] == ["one", "two"]
    assert {request.key.thread for request in service.requests} == {ts}


async def test_unfurls_are_not_answered(slack, service, app):
    ts = slack.say("U1", "C1", "<@UBOT> one")
    await slack.until(lambda: service.ends)
    slack.edit("C1", ts, "<@UBOT> one")
    command = slack.say("U1", "C1", "<@UBOT> usage", thread=ts)
    await slack.until(lambda: slack.world.ephemerals)
    slack.edit("C1", command, "<@UBOT> usage")
    slack.say("U1", "C1", "<@UBOT> two", thread=ts)
    await slack.until(lambda: len(service.ends) == 2)
    assert [request.text for request in service.requests] == ["one", "two"]
    assert len(slack.world.ephemerals) == 1


async def test_what_the_bot_and_other_bots_say_is_not_answered(slack, service, app):
    slack.say("UBOT", "DU1", "me", bot_id="BBOT")
    slack.say("U9", "C1", "<@UBOT> hi", bot_id="B9", subtype="bot_message")
    last = slack.say("U1", "C1", "<@UBOT> hi")
    await slack.until(lambda: slack.answers("C1", last))
    assert [request.id for request in service.requests] == [f"C1/{last}"]


async def test_command_by_mention_is_about_the_thread(slack, service, app):
    ts = slack.say("U1", "C1", "<@UBOT> one")
    await slack.until(lambda: service.ends)
    slack.say("UADMIN", "C1", "<@UBOT> stop", thread=ts)
    await slack.until(lambda: len(slack.answers("C1", ts)) == 2)
    assert ("stop", values.SessionKey("slack", "T1", "C1", ts)) in service.calls
    assert len(service.requests) == 1


@pytest.mark.parametrize(
    ("said", "call"), [("reset", ("reset", False)), ("Reset files", ("reset", True))]
)
async def test_command_in_words_that_takes_something_back_asks_first(
    slack, service, app, said, call
):
    ts = slack.say("U1", "C1", "<@UBOT> one")
    await slack.until(lambda: service.ends)
    key = values.SessionKey("slack", "T1", "C1", ts)

    async def asked():
        slack.say("U1", "C1", f"<@UBOT> {said}", thread=ts)
        return await slack.until(
            lambda: [m for m in slack.replies("C1", ts) if "command_confirm" in str(m)]
        )

    [question] = await asked()
    slack.click("U1", "C1", question["ts"], "command_dismiss")
    await slack.until(lambda: "Nothing was changed" in str(question["blocks"]))
    [question] = await asked()
    slack.click("U2", "C1", question["ts"], "command_confirm")
    await slack.until(lambda: slack.world.responses)
    assert "Only the person who asked" in slack.world.responses[0]["text"]
    assert not service.calls
    slack.click("U1", "C1", question["ts"], "command_confirm")
    await slack.until(lambda: "Reset. Variables and history" in str(question["blocks"]))
    assert service.calls.count((call[0], key, *call[1:])) == 1
    assert len(service.requests) == 1


@pytest.mark.first_case
@pytest.mark.parametrize(
    "words",
    [
        *("model the growth of bacteria", "model this", "files uploaded?", "connect dots"),
        *("reset the index", "undo this", "follow me", "approval please", "py is a nice language"),
        *("stop words in English?", "cancel", "files please", "disconnect everything", "help me"),
    ],
)
async def test_question_that_begins_like_a_command_is_a_question(slack, service, app, words):
    slack.say("U1", "DU1", words)
    await slack.until(lambda: service.ends)
    assert service.requests[0].text == words
    assert not service.requests[0].is_code
    # Whether anything runs that "cancel" would stop is asked.
    assert [call[0] for call in service.calls if words != "cancel"] == []


@pytest.mark.first_case
@pytest.mark.parametrize(
    "words",
    [
        *("stop", "Stop!", "cancel", "please stop it!", "stop it, please"),
        *("stop stop", "ok, stop that now", "halt", "can you cancel the run?"),
    ],
)
async def test_words_that_stop_stop(slack, service, app, words):
    async def endless(turn):
        await asyncio.sleep(60)

    service.script = endless
    ts = slack.say("U1", "C1", "<@UBOT> run")
    await slack.until(lambda: service.running)
    slack.say("U1", "C1", words, thread=ts)
    await slack.until(lambda: service.ends)
    assert service.ends[0].status is values.TurnStatus.STOPPED


async def test_argument_of_a_command_in_words_may_be_any_name_that_exists(slack, service, app):
    ts = slack.say("U1", "C1", "<@UBOT> one")
    await slack.until(lambda: service.ends)
    key = values.SessionKey("slack", "T1", "C1", ts)
    (service.directory(key) / "data (1).csv").write_bytes(b"a")
    slack.say("U1", "C1", "<@UBOT> files data (1).csv", thread=ts)
    await slack.until(lambda: slack.world.batches)
    slack.say("U1", "C1", "<@UBOT> model cheap", thread=ts)
    await slack.until(lambda: service.models.get(key) == "cheap")
    assert len(service.requests) == 1


async def test_mention_without_words_is_helped(slack, service, app):
    ts = slack.say("U1", "C1", "<@UBOT>")
    await slack.until(lambda: slack.world.ephemerals)
    assert "Mention me with a question" in slack.world.ephemerals[0]["blocks"][0]["text"]
    assert slack.status("C1", ts) in ("", "active")


async def test_words_said_last_in_a_very_long_thread_are_known(slack, service, app):
    root = slack.say("U2", "C1", "begin")
    first = slack.world.messages["C1", root]
    for number in range(450):
        ts = slack.world.next_ts()
        said = {**first, "text": f"word {number}", "thread_ts": root, "ts": ts}
        slack.world.messages["C1", ts] = said
    slack.say("U1", "C1", "<@UBOT> so?", thread=root)
    await slack.until(lambda: service.ends)
    assert recent_text(service.requests[0]).endswith("Person U2: word 449")
