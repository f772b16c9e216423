"""What tabs say and hear, over real websockets."""

import asyncio
import json

from interpreter_bot import values
from interpreter_bot.sessions import requests
from interpreter_bot.wording import run_words, session_words

THREAD = "0123456789abcdef"
KEY = values.SessionKey("web", thread=THREAD)
ONE, TWO, THREE = "1" * 16, "2" * 16, "3" * 16


async def _hello(turn):
    turn.reply.step(1)
    for word in ("Hel", "lo"):
        turn.reply.text(word)
        await asyncio.sleep(0)
    await turn.run(0, "1 + 1", values.Result(plain="2"))
    turn.reply.step(2)
    turn.reply.text("Two.")
    turn.reply.usage(values.Usage(steps=2, input_tokens=10, output_tokens=5))
    return "Two."


def _gated():
    gate = asyncio.Event()

    async def wait(turn):
        turn.reply.step(1)
        turn.reply.text("so far")
        await gate.wait()
        return "so far, so good"

    return gate, wait


async def _text(asking):
    async with asking as response:
        return await response.text()


def _kinds(tab):
    return [one["event"]["type"] for one in tab.received if one["kind"] == "event"]


async def test_a_turn_is_shown_as_it_happens(serving_fake):
    async with serving_fake({"hello": _hello}) as (bot, client), client.tab(THREAD) as tab:
        await tab.send("send", id=ONE, text="hello you", files=["a.csv"])
        end = await tab.event("over")
        assert _kinds(tab) == [
            *("begun", "step", "text", "text", "code", "result", "finished"),
            *("step", "text", "usage", "over"),
        ]
        assert (end["status"], end["text"], end["turn_id"]) == ("done", "Two.", 1)
        assert bot.requests == [
            requests.Request(
                key=KEY,
                person=requests.Person("web", "you"),
                text="hello you",
                files=("a.csv",),
                id=ONE,
                may_steer=True,
            )
        ]
        assert bot.titles == {KEY: "hello you"}
        while not (await tab.next("conversations"))["conversations"]:
            pass
        assert tab.received[-1]["conversations"][0]["title"] == "hello you"


async def test_two_tabs_see_the_same_and_a_late_one_all_of_it(serving_fake):
    gate, wait = _gated()
    async with (
        serving_fake({"wait": wait}) as (_, client),
        client.tab(THREAD) as one,
        client.tab(THREAD) as two,
    ):
        await one.send("send", id=ONE, text="wait")
        await two.event("text")
        async with client.tab(THREAD) as late:
            whole = late.whole
            assert whole["past"] == []
            (turn,) = whole["live"]
            assert (turn["id"], turn["request"]) == (ONE, "wait")
            assert [event["type"] for event in turn["events"]] == ["begun", "step", "text"]
            gate.set()
            for tab in (one, two, late):
                assert (await tab.event("over", ONE))["text"] == "so far, so good"
            assert _kinds(late) == ["over"]
        async with client.tab(THREAD) as later:
            whole = later.whole
            assert whole["live"] == []
            assert [turn["request"] for turn in whole["past"]] == ["wait"]
            assert whole["past"][0]["events"][-1]["text"] == "so far, so good"


async def test_what_is_said_twice_is_done_once(serving_fake):
    async with serving_fake({"hello": _hello}) as (bot, client), client.tab(THREAD) as tab:
        await tab.send("send", id=ONE, text="hello")
        await tab.event("over")
        for _ in range(2):
            await tab.send("send", id=ONE, text="hello")
            assert (await tab.next("accepted"))["id"] == ONE
    assert len(bot.requests) == 1


async def test_what_a_killed_bot_had_only_claimed_is_done_when_it_is_said_again(serving_fake):
    async with serving_fake({"hello": _hello}) as (bot, client), client.tab(THREAD) as tab:
        assert await bot.events.claim("web", ONE)
        await tab.send("send", id=ONE, text="hello")
        assert (await tab.event("over"))["status"] == "done"
        await tab.send("send", id=ONE, text="hello")
        await tab.next("accepted")
    assert len(bot.requests) == 1


async def test_a_turn_outlives_its_tab(serving_fake):
    gate, wait = _gated()
    async with serving_fake({"wait": wait}) as (bot, client):
        async with client.tab(THREAD) as tab:
            await tab.send("send", id=ONE, text="wait")
            await tab.event("text")
        gate.set()
        async with client.tab() as tab:
            while (await tab.next("conversations"))["conversations"][0]["is_busy"]:
                pass
        assert [turn.record.status for turn in await bot.queries.history(KEY)] == ["done"]


async def test_requests_wait_in_order_and_can_be_withdrawn(serving_fake):
    gate, wait = _gated()
    script = {"wait": wait, "hello": _hello}
    async with serving_fake(script) as (bot, client), client.tab(THREAD) as tab:
        for turn, text in ((ONE, "wait"), (TWO, "hello two"), (THREE, "hello three")):
            await tab.send("send", id=turn, text=text)
        assert (await tab.event("waiting", THREE))["ahead"] == 2
        await tab.send("withdraw", id=TWO)
        assert "withdrawn" in (await tab.event("over", TWO))["reason"]
        gate.set()
        await tab.event("over", THREE)
        past = await bot.queries.history(KEY)
        assert [turn.record.request for turn in past] == ["wait", "hello three"]


async def test_a_notebook_goes_on_behind_what_somebody_asks_meanwhile(serving_fake):
    gate, wait = _gated()
    sources = ("wait", "hello two")
    cells = [{"cell_type": "code", "metadata": {}, "source": one} for one in sources]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    async with (
        serving_fake({"wait": wait, "hello": _hello}) as (bot, client),
        client.tab(THREAD) as tab,
    ):
        where = f"?thread={THREAD}&name=n.ipynb"
        async with client.post(f"/upload{where}", data=json.dumps(notebook)) as response:
            assert response.status == 200
        async with client.post(f"/run-notebook{where}&to={THREAD}") as response:
            assert await response.json() == {"cells": 2}
        await tab.event("text")
        await tab.send("send", id=ONE, text="hello one")
        await tab.event("waiting", ONE)
        gate.set()
        async with asyncio.timeout(30):
            while len(past := await bot.queries.history(KEY)) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert [turn.record.request for turn in past] == ["wait", "hello one", "hello two"]


async def test_a_notebook_that_is_asked_for_twice_at_once_runs_once(serving_fake):
    cells = [{"cell_type": "code", "metadata": {}, "source": "hello one"}]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    where = f"?thread={THREAD}&name=n.ipynb"
    begin = f"/run-notebook{where}&to={THREAD}"
    async with serving_fake({"hello": _hello}) as (_, client), client.tab(THREAD) as tab:
        # What is refused keeps nobody from trying again.
        assert "already" not in await _text(client.post(begin))
        async with client.post(f"/upload{where}", data=json.dumps(notebook)) as response:
            assert response.status == 200
        said = await asyncio.gather(*(_text(client.post(begin)) for _ in range(4)))
        assert sorted("already" in one for one in said) == [False, True, True, True]
        await tab.event("over")


async def test_a_notebook_whose_cell_is_withdrawn_runs_no_more_of_them(serving_fake):
    gate, wait = _gated()
    cells = [{"cell_type": "code", "metadata": {}, "source": f"hello {n}"} for n in range(3)]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    where = f"?thread={THREAD}&name=n.ipynb"
    script = {"wait": wait, "hello": _hello}
    async with serving_fake(script) as (bot, client), client.tab(THREAD) as tab:
        async with client.post(f"/upload{where}", data=json.dumps(notebook)) as response:
            assert response.status == 200
        await tab.send("send", id=ONE, text="wait")
        await tab.event("text")
        async with client.post(f"/run-notebook{where}&to={THREAD}") as response:
            assert await response.json() == {"cells": 3}
        waiting = await tab.next("turn")
        await tab.event("waiting", waiting["id"])
        await tab.send("withdraw", id=waiting["id"])
        assert (await tab.next("notice"))["text"] == "3 of 3 cells were not run."
        gate.set()
        await tab.event("over", ONE)
        # Another notebook may run now.
        async with client.post(f"/run-notebook{where}&to={THREAD}") as response:
            assert await response.json() == {"cells": 3}
        async with asyncio.timeout(30):
            while len(past := await bot.queries.history(KEY)) < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        asked = ["wait", "hello 0", "hello 1", "hello 2"]
        assert [turn.record.request for turn in past] == asked


async def test_stop_ends_what_runs(serving_fake):
    async def endless(turn):
        turn.reply.step(1)
        turn.reply.text("on and on")
        await asyncio.sleep(60)

    async with serving_fake({"go": endless}) as (_, client), client.tab(THREAD) as tab:
        await tab.send("stop")
        assert (await tab.next("refused"))["sentence"] == "Nothing is running."
        await tab.send("send", id=ONE, text="go")
        await tab.event("text")
        await tab.send("stop")
        assert (await tab.event("over"))["status"] == "stopped"


async def test_a_defect_in_one_task_ends_no_turn(serving_fake, monkeypatch, caplog):
    async def broken(*_):
        raise TypeError("a defect")

    gate, wait = _gated()
    async with serving_fake({"wait": wait}) as (bot, client), client.tab(THREAD) as tab:
        monkeypatch.setattr(bot.queries, "read_table", broken)
        await tab.send("send", id=ONE, text="wait")
        await tab.event("text")
        wanted = {"rows": [0, 1], "columns": [0, 1]}
        await tab.send("read_data", table="t1", query_id=1, view=wanted)
        async with asyncio.timeout(30):
            while "read data of Python ended in an error" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        told = await tab.next("data_read")
        assert (told["query_id"], told["problem"]) == (1, "The table could not be read.")
        gate.set()
        assert (await tab.event("over"))["status"] == "done"


async def test_code_asks_and_any_tab_answers_once(serving_fake):
    async def ask(turn):
        await turn.reply.code(0, turn.request.text)
        request = values.InputRequested("Name: ", is_password=False)
        answer = await turn.reply.ask(0, request)
        turn.reply.output(0, values.Text("stdout", f"Hi {answer}\n"))
        turn.reply.finished(0, values.Finished(values.Ending.OK, 0.1))

    async with (
        serving_fake({"input()": ask}) as (_, client),
        client.tab(THREAD) as one,
        client.tab(THREAD) as two,
    ):
        await one.send("send", id=ONE, text="input()", is_code=True)
        question = (await two.event("input"))["id"]
        await two.send("answer", question=question, text="Ada")
        await one.event("settled")
        assert (await one.event("stdout"))["text"] == "Hi Ada\n"
        await one.send("answer", question=question, text="Bob")
        assert "has expired" in (await one.next("refused"))["sentence"]


async def test_raw_code_is_told_from_words(serving_fake):
    async with serving_fake({"x": _hello}) as (bot, client), client.tab(THREAD) as tab:
        await tab.send("send", id=ONE, text="/py\nx = 1\n")
        await tab.event("over", ONE)
        await tab.send("send", id=TWO, text="x", is_code=True)
        await tab.event("over", TWO)
    assert [(one.text, one.is_code) for one in bot.requests] == [("x = 1", True), ("x", True)]


async def test_a_schedule_is_set_up_by_a_card_listed_and_run(serving_fake):
    async with serving_fake({"hello": _hello}) as (bot, client), client.tab(THREAD) as tab:
        await tab.send("send", id=ONE, text="/schedule daily 9:00 UTC: hello")
        card = await tab.event("approve", ONE)
        assert (card["title"], card["approve"]) == ("Set up this schedule?", "Confirm")
        assert card["facts"].startswith("Next: ")
        await tab.send("answer", question=card["id"], text=card["text"])
        await tab.event("over", ONE)
        await bot.wait_until_idle()
        await tab.send("send", id=TWO, text="/schedules")
        ((number, schedule, _),) = (await tab.next("panel"))["rows"]
        assert (number, schedule[:24]) == ("1", "daily 9:00: hello (next ")
        (first,) = await bot.services.database.schedules.list_all(limit=9)
        bot.schedules.now = lambda: first.due
        await bot.schedules.fire()
        shown = await tab.next("turn")
        assert shown["request"] == "hello"
        await bot.schedules.close()
    assert bot.handled_requests[-1].text == "hello"


async def test_a_schedule_is_in_the_time_zone_of_the_browser(serving_fake):
    async with serving_fake({"hello": _hello}) as (bot, client), client.tab(THREAD) as tab:
        for number, unknown in enumerate(("Nowhere/Else", "/etc/passwd", "x" * 5000, "")):
            request = {"id": f"{number}" * 16, "text": "/schedule daily 9:00: hello"}
            await tab.send("send", zone=unknown, **request)
            refusal = await tab.next("refused")
            assert refusal["sentence"].startswith("Which time zone?")
        await tab.send("send", id=ONE, text="/schedule daily 9:00: hello", zone="Europe/Berlin")
        card = await tab.event("approve", ONE)
        await tab.send("answer", question=card["id"], text=card["text"])
        await tab.event("over", ONE)
        await bot.wait_until_idle()
        (schedule,) = await bot.services.database.schedules.list_all(limit=9)
        assert schedule.zone == "Europe/Berlin"
        await bot.schedules.close()


async def test_commands_are_answered_to_whoever_asked(serving_fake):
    async with (
        serving_fake(models=("A", "B")) as (bot, client),
        client.tab(THREAD) as tab,
        client.tab(THREAD) as other,
    ):
        names = ("files", "variables", "limits", "network", "tools", "usage", "help", "model")
        for number, name in enumerate(names):
            await tab.send("send", id=f"{number:a>16}", text=f"/{name}")
            assert (await tab.next("panel"))["panel"] == name
            await tab.next("accepted")
        await tab.send("send", id=ONE, text="/disconnect jira")
        assert (await tab.next("panel"))["text"] == "You were not logged in to jira."
        await tab.next("accepted")
        await tab.send("send", id=ONE, text="/connect jira")
        assert "No tool server called 'jira'" in (await tab.next("refused"))["sentence"]
        await tab.send("send", id=ONE, text="/model B")
        assert (await other.next("model"))["model"] == "B"
        await tab.send("send", id=TWO, text="/model C")
        assert "no model C" in (await tab.next("refused"))["sentence"]
        await tab.send("send", id=THREE, text="/nonsense")
        assert "/help" in (await tab.next("refused"))["sentence"]
        assert bot.requests == []
        assert "panel" not in [one["kind"] for one in other.received]


async def test_what_cannot_be_is_refused_with_a_sentence_and_its_id(serving_fake):
    async with serving_fake() as (bot, client), client.tab(THREAD) as tab:
        for text in ("", " \n ", "x" * 100_001, "/py"):
            await tab.send("send", id=ONE, text=text)
            refused = await tab.next("refused")
            assert refused["id"] == ONE
            assert refused["sentence"].endswith(".")
        assert bot.requests == []


async def test_nonsense_is_refused_and_the_tab_lives_on(serving_fake):
    nonsense = (
        *("", "{", "[]", "null", "1", '{"do": "fly"}', '{"do": ["send"]}', '{"do": "watch"}'),
        '{"do": "watch", "thread": "../../x", "max_turns": 1}',
        '{"do": "watch", "thread": "0123456789abcdef", "max_turns": "1"}',
        '{"do": "send", "thread": "0123456789abcdef", "id": "x", "text": "y"}',
        '{"do": "send", "thread": "0123456789abcdef", "id": "1111111111111111", "text": 1}',
        '{"do": "answer", "thread": "0123456789abcdef", "turn": "1111111111111111"}',
        '{"do": "save", "thread": "0123456789abcdef", "table": "t1\\n"}',
        '{"do": "save", "thread": "0123456789abcdef", "table": "../x"}',
        "[" * 100_000,
    )
    async with serving_fake() as (_, client), client.tab(THREAD) as tab:
        for text in nonsense:
            await tab.socket.send_str(text)
            assert (await tab.next("refused"))["sentence"]
        await tab.socket.send_bytes(b"\xff")
        await tab.send("show", panel="help")
        await tab.next("panel")


async def test_a_message_that_ends_in_an_error_is_refused_once_and_the_tab_lives_on(serving_fake):
    async def broken(*_, **__):
        raise ValueError("nobody foresaw this")

    async with serving_fake() as (bot, client), client.tab(THREAD) as tab:
        bot.events.claim, claim = broken, bot.events.claim
        await tab.send("send", id=ONE, text="hello")
        refused = await tab.next("refused")
        assert (refused["id"], refused["sentence"]) == (ONE, run_words.BOT_FAULT)
        bot.events.claim = claim
        # Sent again by hand it is a request like any other.
        await tab.send("send", id=ONE, text="hello")
        await tab.event("over", ONE)
        assert [one.text for one in bot.requests] == ["hello"]


async def test_every_kind_of_message_with_wrong_types_is_refused(serving_fake):
    kinds = (
        "watch",
        "send",
        "branch",
        "stop",
        "withdraw",
        "answer",
        "set_approval",
        "show",
        "save",
    )
    kinds += (
        "read_data",
        "reset",
        "fork",
        "undo",
        "delete",
        "rename",
        "mark",
        "search",
        "choose_model",
    )
    fields = (
        "thread",
        "id",
        "turn_id",
        "text",
        "files",
        "question",
        "approval",
        "panel",
        "argument",
    )
    fields += ("table", "suffix", "view", "code", "title", "mark", "model", "max_turns")
    wrong = (None, 3, -1, 1e400, True, [], {}, [[]], {"x": 1}, "\ud800", "\0", "x" * 5000)
    async with serving_fake() as (_, client), client.tab(THREAD) as tab:
        for do in kinds:
            for value in wrong:
                message = dict.fromkeys(fields, value) | {"do": do, "id": ONE}
                await tab.socket.send_str(json.dumps(message))
                is_search = do == "search" and value in ("\ud800", "\0")
                answer = await tab.next("search_results" if is_search else "refused")
                assert "inside the bot" not in answer.get("sentence", "")
        await tab.socket.send_bytes(b"{}")
        assert (await tab.next("refused"))["id"] is None


async def test_without_a_model_words_are_refused_and_code_runs(serving_fake):
    async with (
        serving_fake({"x": _hello}, models=()) as (bot, client),
        client.tab(THREAD) as tab,
    ):
        await tab.send("send", id=ONE, text="hi")
        assert "no model" in (await tab.next("refused"))["sentence"]
        await tab.send("send", id=ONE, text="/py x")
        await tab.event("over")
        # As the page sends it that takes everything for Python, because there is no model.
        await tab.send("send", id=TWO, text="/py x", is_code=True)
        assert (await tab.event("over", TWO))["status"] == "done"
        await tab.send("send", id=THREE, text="/help", is_code=True)
        await tab.next("panel")
        assert [one.text for one in bot.requests] == ["x", "x"]


async def test_conversations_are_renamed_reset_and_deleted(serving_fake):
    async with serving_fake({"hello": _hello}) as (bot, client), client.tab(THREAD) as tab:
        await tab.send("send", id=ONE, text="hello")
        await tab.event("over")
        await tab.send("rename", title="  Other  ")
        while (await tab.next("conversations"))["conversations"][0]["title"] != "Other":
            pass
        await tab.send("rename", title=" ")
        await tab.next("refused")
        for mark in ("pinned", "archived", ""):
            await tab.send("mark", mark=mark)
            while (await tab.next("conversations"))["conversations"][0]["mark"] != mark:
                pass
        await tab.send("mark", mark="lost")
        await tab.next("refused")
        await tab.send("search", text="other")
        assert [one["title"] for one in (await tab.next("search_results"))["conversations"]] == [
            "Other"
        ]
        await tab.send("reset")
        await tab.next("reset")
        await tab.send("watch", max_turns=1)
        whole = await tab.next("conversation")
        assert whole["past"][0]["events"][1]["text"].startswith("Reset.")
        assert whole["has_earlier_turns"]
        await tab.send("delete")
        await tab.next("deleted")
        while (await tab.next("conversations"))["conversations"]:
            pass
        assert not await bot.queries.history(KEY)


async def test_a_branch_without_variables_runs_the_code_until_there_before_it_asks(serving_fake):
    async def play(turn):
        await turn.run(0, turn.request.text)

    script = {"x": play, "hello": _hello}
    async with serving_fake(script) as (bot, client), client.tab(THREAD) as tab:
        # Together they are longer than a message may be.
        long = [f"x = {number}  #{'-' * 60_000}" for number in (0, 1)]
        for turn_id, text in (("a" * 20, long[0]), (ONE, long[1]), (TWO, "x = 2")):
            await tab.send("send", id=turn_id, text=text, is_code=True)
            turn = (await tab.event("over", turn=turn_id))["turn_id"]
        await bot.wait_until_idle()
        for refused in ({"text": " ", "turn_id": turn}, {"text": "hello", "turn_id": 10**6}):
            await tab.send("branch", id=TWO, **refused)
            await tab.next("refused")
        await tab.send("branch", id="b" * 20, turn_id=turn, text="hello")
        tab.thread = (await tab.next("forked"))["to"]
        for _ in range(3):
            await tab.next("accepted")
        await bot.wait_until_idle()
        await tab.send("watch", max_turns=9)
        whole = await tab.next("conversation")
        assert "runs again" in whole["past"][2]["events"][1]["text"]
        assert [one["position"] for one in whole["alternatives"]] == [1]
        assert [one.text for one in bot.handled_requests] == [*long, "x = 2", *long, "hello"]


async def test_a_sentence_about_the_session_stands_until_somebody_asks(serving_fake):
    async with serving_fake({"hello": _hello}) as (bot, client), client.tab(THREAD) as tab:
        await bot.notify(KEY, "Variables will be let go in 5 minutes.")
        await tab.next("notice")
        async with client.tab(THREAD) as late:
            told = late.whole["notices"]
            assert told == ["Variables will be let go in 5 minutes."]
        await tab.send("send", id=ONE, text="hello")
        await tab.event("over")
        async with client.tab(THREAD) as later:
            assert later.whole["notices"] == []


async def test_beside_a_turn_that_was_cut_short_what_else_was_lost_is_told(serving_fake):
    async with serving_fake() as (bot, client), client.tab(THREAD):
        database = bot.services.database
        session = await database.sessions.open(KEY)
        turn = await database.turns.start(session.id, person="you", text="x")
        await database.turns.finish(turn.id, values.TurnStatus.INTERRUPTED)
        for told in (session_words.ANSWER_INTERRUPTED, session_words.MESSAGE_LOST):
            await bot.notify(KEY, told)
        async with client.tab(THREAD) as late:
            # The record of the turn says the one itself.
            assert late.whole["notices"] == [session_words.MESSAGE_LOST]


async def test_what_is_stored_about_the_files_is_shown_once(serving_fake):
    async with serving_fake() as (bot, client), client.tab(THREAD):
        told = "In 3 days its files are deleted."
        await bot.note_files(KEY, told)
        await bot.notify(KEY, told)
        async with client.tab(THREAD) as late:
            assert late.whole["notices"] == [told]


async def test_a_turn_of_a_bot_that_is_gone_goes_on_before_everybody(serving_fake):
    async with serving_fake({"go": _hello}) as (bot, client), client.tab(THREAD) as tab:
        await bot.go_on(KEY, "go on", person="you", request_id=ONE)
        end = await tab.event("over")
        shown = [one["event"] for one in tab.received if one["kind"] == "event"]
    # What was shown before comes first.
    kinds = [(event["type"], event.get("text")) for event in shown[:4]]
    assert kinds[:3] == [("begun", None), ("code", "go on"), ("stdout", "before\n")]
    assert (shown[3]["type"], shown[3]["text"]) == ("announcement", session_words.KEPT_RUNNING)
    assert (end["status"], end["text"], end["turn_id"]) == ("done", "Two.", 1)


async def test_a_request_with_which_a_bot_had_not_begun_that_is_gone_is_carried_out(serving_fake):
    script = {"go": _hello}
    async with serving_fake(script, again="same") as (gone, client), client.tab(THREAD) as tab:
        await tab.send("send", id=ONE, text="go", files=["a.csv"])
        await tab.event("over")
    async with serving_fake(script, again="same") as (bot, client), client.tab(THREAD) as tab:
        bot.claimed, bot.requests = gone.claimed, gone.requests
        await bot.die_before_beginning()
        assert (await tab.event("over"))["text"] == "Two."
    assert bot.requests[0] == bot.requests[1]
