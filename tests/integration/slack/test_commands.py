"""Slash commands, shortcuts and forms."""

import asyncio

import pytest

from interpreter_bot import values
from tests.fakes import conversations as fake
from tests.integration.slack.worlds import recent_text

CHANNEL = values.SessionKey("slack", "T1", "C1")


async def run(turn):
    """Print what the code would."""
    assert turn.request.is_code
    await turn.reply.code(0, turn.request.text)
    turn.reply.output(0, values.Text("stdout", "2\n"))
    turn.reply.finished(0, fake.finished_well())


def posted(slack, channel="C1"):
    return [m for (c, _), m in slack.world.messages.items() if c == channel and m.get("bot_id")]


async def test_py_runs_code_in_the_channels_kernel(slack, service, app):
    service.script = run
    delivery = slack.command(
        "U1", "C1", "/py", "```python\nif 1 &lt; 2 &amp; 3:\n  print(“1+1”)```"
    )
    await slack.until(lambda: service.ends)
    [request] = service.requests
    assert (request.key, request.is_code) == (CHANNEL, True)
    assert request.text == 'if 1 < 2 & 3:\n  print("1+1")'
    assert delivery.answer in (None, "")
    message = await slack.until(
        lambda: [m for m in posted(slack) if "\n2\n" in m["blocks"][0]["text"]]
    )
    assert "**Person U1** ran:" in message[0]["blocks"][0]["text"]
    assert "thread_ts" not in message[0]
    assert len(posted(slack)) == 1


async def test_thread_under_py_uses_the_channels_kernel(slack, service, app):
    service.script = run
    slack.command("U1", "C1", "/py", "1+1")
    await slack.until(lambda: service.ends)
    [root] = posted(slack)
    service.script = fake.echo
    slack.say("U1", "C1", "<@UBOT> and now?", thread=root["ts"])
    await slack.until(lambda: len(service.ends) == 2)
    assert service.requests[1].key == CHANNEL


async def test_files_of_py_go_into_the_thread_under_it(slack, service, app):
    async def script(turn):
        await run(turn)
        turn.make(0, "a.txt", b"x")

    service.script = script
    slack.command("U1", "C1", "/py", "1+1")
    await slack.until(lambda: slack.world.batches)
    root = next(m for m in posted(slack) if not m.get("files"))
    assert slack.world.batches[0]["thread_ts"] == root["ts"]


async def test_py_alone_opens_an_editor(slack, service, app):
    service.script = run
    slack.command("U1", "C1", "/py")
    [view] = await slack.until(lambda: slack.world.modals)
    slack.submit("U1", view, field="for x in range(2):\n    print(“x”)")
    await slack.until(lambda: service.ends)
    assert service.requests[0].text == 'for x in range(2):\n    print("x")'
    assert service.requests[0].key == CHANNEL


async def test_py_where_the_bot_is_not_says_so_to_the_person(slack, service, app):
    service.script = run
    slack.command("U1", "CALIEN", "/py", "1+1")
    [told] = await slack.until(lambda: slack.world.responses)
    assert "invite it" in told["text"]
    assert service.requests == []


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("", "Mention me with a question"),
        ("help", "Mention me with a question"),
        ("limits", "- Time for one piece of code: 1 min"),
        ("model", "- good: in use"),
        ("model cheap", "This conversation now uses cheap."),
        ("model none", "There is no model none. There are: good; cheap."),
        ("usage", "You, today: 1,234 tokens (50,000 allowed)"),
        ("variables", "In Python now: "),
        ("network", "- Network: none"),
        ("tools", "- Tools: none"),
        ("disconnect jira", "You were not logged in to jira."),
        ("files", "There are no files in /mnt/data."),
        ("files a.csv", "There is no such file"),
        ("reset", "Reset. Variables and history are cleared; files are kept."),
        ("reset the index", "Mention me with a question"),
        ("stop", "Nothing is running."),
        ("approval", "`approval`: never (ask a person"),
        ("approval every", "approval is now every for you."),
        ("approval every channel", "Only admins"),
        ("settings", "`follow_threads`: on ("),
    ],
)
async def test_interpreter_answers_the_person_alone(slack, service, app, said, answer):
    await service.spend(CHANNEL, "U1", values.Usage(input_tokens=1000, output_tokens=234))
    slack.command("U1", "C1", "/interpreter", said)
    [told] = await slack.until(lambda: slack.world.responses)
    assert answer in told["blocks"][0]["text"]
    assert posted(slack) == []


@pytest.mark.parametrize("is_in_thread", [True, False])
async def test_a_person_alone_reads_what_is_said_of_private_commands_in_words(
    slack, service, app, is_in_thread
):
    root = slack.say("U1", "C1", "<@UBOT> hello")
    await slack.until(lambda: service.ends and slack.answers("C1", root))
    for number, (words, answer) in enumerate(
        {
            "usage": "You, today: ",
            "variables": "In Python now: ",
            "tools": "Tools: none",
            "settings": "`follow_threads`: on (",
            "files": "There are no files in /mnt/data.",
        }.items()
    ):
        slack.say("U1", "C1", f"<@UBOT> {words}", thread=root if is_in_thread else "")
        await slack.until(lambda number=number: len(slack.world.ephemerals) > number)
        whisper = slack.world.ephemerals[number]
        assert answer in whisper["blocks"][0]["text"]
        # In a thread that has not begun nobody would see it.
        place = whisper["channel"], whisper["user"], whisper.get("thread_ts")
        assert place == ("C1", "U1", root if is_in_thread else None)
    assert len(posted(slack)) == 1


async def test_interpreter_sends_files_and_the_notebook(slack, service, app):
    (service.directory(CHANNEL) / "a.csv").write_bytes(b"a")
    slack.command("U1", "C1", "/interpreter", "files a.csv")
    await slack.until(lambda: slack.world.batches)
    slack.command("U1", "C1", "/interpreter", "notebook")
    await slack.until(lambda: len(slack.world.batches) == 2)
    names = [batch["files"][0]["name"] for batch in slack.world.batches]
    assert names == ["a.csv", "conversation.ipynb"]


async def test_run_message_runs_the_code_blocks_in_the_threads_kernel(slack, service, app):
    service.script = run
    ts = slack.say("U2", "C1", "Try ```x = 1``` and then ```python\nprint(x &gt; 0)\n``` ok?")
    slack.shortcut("U1", "run_message", "C1", ts)
    await slack.until(lambda: service.ends and slack.answers("C1", ts))
    [request] = service.requests
    assert request.text == "x = 1\nprint(x > 0)"
    assert request.key == values.SessionKey("slack", "T1", "C1", ts)
    assert request.person.id == "U1"


async def test_run_message_takes_rich_text_and_snippets(slack, service, app):
    service.script = run
    element = {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": "a < b"}]}
    rich = [{"type": "rich_text", "elements": [element]}]
    ts = slack.say("U2", "C1", "```a &lt; b```", blocks=rich)
    slack.shortcut("U1", "run_message", "C1", ts)
    await slack.until(lambda: len(service.ends) == 1)
    file = slack.put_file("x.py", b"1+1", mode="snippet", filetype="python")
    ts = slack.say("U2", "C1", "", files=[file])
    slack.shortcut("U1", "run_message", "C1", ts)
    await slack.until(lambda: len(service.ends) == 2)
    assert [request.text for request in service.requests] == ["a < b", "1+1"]


async def test_run_message_without_code_says_so(slack, service, app):
    ts = slack.say("U2", "C1", "lunch?")
    slack.shortcut("U1", "run_message", "C1", ts)
    [told] = await slack.until(lambda: slack.world.responses)
    assert "There is no code in this message" in told["text"]


async def test_ask_about_message_asks_in_its_thread_with_its_files(slack, service, app):
    file = slack.put_file("a.csv", b"a,b\n")
    ts = slack.say("U2", "C1", "Our numbers", files=[file])
    slack.shortcut("U1", "ask_message", "C1", ts)
    [view] = await slack.until(lambda: slack.world.modals)
    slack.submit("U1", view, field="Are they right?")
    await slack.until(lambda: slack.answers("C1", ts))
    [request] = service.requests
    assert request.text == "Are they right?"
    assert recent_text(request) == "Person U2: Our numbers"
    assert service.taken == {"a.csv": b"a,b\n"}
    assert request.key.thread == ts


async def test_modal_opens_though_everything_else_is_slow(slack, service, app):
    from tests.fakes.slack_server.servers import Fault

    slack.fail("users.info", *[Fault("slow", seconds=20)] * 3)
    slack.command("U1", "C1", "/py")
    await slack.until(lambda: slack.world.modals)


async def test_two_runs_in_one_channel_take_turns(slack, service, app):
    running = 0

    async def script(turn):
        nonlocal running
        running += 1
        assert running == 1
        await turn.reply.code(0, turn.request.text)
        await asyncio.sleep(0.1)
        turn.reply.finished(0, fake.finished_well())
        running -= 1

    service.script = script
    for number in range(3):
        slack.command("U1", "C1", "/py", f"{number}")
    await slack.until(lambda: len(service.ends) == 3)
    await slack.until(lambda: len(posted(slack)) == 3)


async def test_a_thread_is_copied_into_another_and_its_last_answer_taken_back(slack, service, app):
    root = slack.say("U1", "C1", "<@UBOT> hello")
    await slack.until(lambda: service.ends)
    slack.say("U1", "C1", "<@UBOT> fork", thread=root)
    [copy] = await slack.until(
        lambda: [m for m in posted(slack) if "thread_ts" not in m and "copy" in m["text"]]
    )
    slack.say("U1", "C1", "<@UBOT> undo", thread=root)
    [question] = await slack.until(
        lambda: [m for m in posted(slack) if "command_confirm" in str(m["blocks"])]
    )
    slack.click("U1", "C1", question["ts"], "command_confirm")
    await slack.until(lambda: "Undone" in str(question["blocks"]))
    source, target = (values.SessionKey("slack", "T1", "C1", ts) for ts in (root, copy["ts"]))
    assert await service.queries.history(source) == ()
    past = await service.queries.history(target)
    assert [turn.record.request for turn in past] == ["", "hello"]
    # No variable is missing: then the word is meant for the model.
    ended = len(service.ends)
    slack.say("U1", "C1", "<@UBOT> again", thread=root)
    await slack.until(lambda: len(service.ends) > ended)
    past = await service.queries.history(source)
    assert [turn.record.request for turn in past] == ["again"]


async def test_button_undoes_one_answer_and_only_the_one_it_asked_about(slack, service, app):
    async def asked(number):
        slack.say("U1", "C1", "<@UBOT> undo", thread=root)
        await slack.until(lambda: len(questions()) == number)
        return questions()[-1]

    def questions():
        return [m for m in posted(slack) if "Undo the last answer" in str(m["blocks"]) or m in seen]

    seen = []
    root = slack.say("U1", "C1", "<@UBOT> one")
    await slack.until(lambda: len(service.ends) == 1)
    old = await asked(1)
    seen.append(old)
    for number, text in enumerate(("two", "three"), 2):
        slack.say("U1", "C1", f"<@UBOT> {text}", thread=root)
        await slack.until(lambda number=number: len(service.ends) == number)
    slack.click("U1", "C1", old["ts"], "command_confirm")
    await slack.until(lambda: "no longer the last answer" in str(old["blocks"]))
    question = await asked(2)
    for _ in range(2):
        slack.click("U1", "C1", question["ts"], "command_confirm")
    await slack.until(lambda: "Undone" in str(question["blocks"]))
    await slack.until(lambda: slack.world.responses)
    key = values.SessionKey("slack", "T1", "C1", root)
    past = await service.queries.history(key)
    assert [turn.record.request for turn in past] == ["one", "two"]
