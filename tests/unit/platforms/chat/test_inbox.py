"""What chats do with messages, their edits and deletions, on a small network over a socket."""

import asyncio
import contextlib

import pytest

from interpreter_bot import errors, events, values
from interpreter_bot.platforms.chat import drafts
from interpreter_bot.wording import access_words, question_words, run_words
from tests import waiting
from tests.fakes import conversations
from tests.fakes.socket_chat import chats, servers

DONE = values.Finished(values.Ending.OK, 0.1)


@pytest.fixture
async def server(tmp_path):
    async with servers.Server(str(tmp_path / "chat.sock")) as running:
        yield running


@pytest.fixture
def service(tmp_path):
    """Open sessions: `async with service(script) as opened`; again, they are the same."""

    def open_(script=echo):
        return conversations.opened(tmp_path / "bot", script)

    return open_


@pytest.fixture
def bot(server, service):
    """Start a bot: `async with bot(script) as (service, chat)`."""

    @contextlib.asynccontextmanager
    async def start(script=echo, **options):
        async with (
            service(script) as opened,
            chats.connect_platform(server.path, opened, **options) as chat,
        ):
            yield opened, chat

    return start


async def echo(turn):
    turn.reply.step(1)
    return turn.done(f"You said: {turn.request.text}")


async def ask_name(turn):
    turn.reply.step(1)
    if turn.request.text == "another request":
        return turn.done("Yes.")
    await turn.reply.code(0, "input('Name? ')")
    asked = values.InputRequested("Name? ", "secret" in turn.request.text)
    name = await turn.reply.ask(0, asked)
    turn.reply.finished(0, DONE)
    return turn.done(f"Hello {name}.")


async def until(condition, what="that"):
    return await waiting.until(condition, subject=what)


def texts(server, room):
    return [message.text for message in server.answers(room)]


async def answered(server, room, words, count=1):
    """Wait until so many answers stand in a room, a final one with these words; return it.

    It may not be the last: answers to messages that came at once are posted in any order.
    """

    def find():
        messages = server.answers(room)
        finished = [m for m in messages if not any("stop" in button for button in m.buttons)]
        answer = next((m for m in finished if words in m.text), None)
        return answer if len(messages) >= count else None

    return await until(find, what=words)


async def asked(server, room, action):
    """Wait for a question with such a button; return its message."""

    def find():
        return next(
            (m for m in server.answers(room) for b in m.buttons if b.startswith(action)), None
        )

    return await until(find, what=action)


async def test_a_first_sign_stands_before_anything_was_done(server, bot):
    gate = asyncio.Event()

    async def script(turn):
        await gate.wait()
        return await echo(turn)

    async with bot(script):
        message = server.say("alice", "general", "@bot hello")
        first = await asked(server, f"general/{message.id}", "stop")
        gate.set()
        answer = await answered(server, f"general/{message.id}", "You said: hello")
        assert answer is first


async def test_ten_messages_are_taken_in_their_order(server, bot):
    async with bot() as (service, _):
        for number in range(10):
            server.say("alice", "@alice", f"number {number}")
        await answered(server, "@alice", "number 9", count=10)
        assert [r.text for r in service.handled_requests] == [f"number {n}" for n in range(10)]


@pytest.mark.parametrize("room", ["@alice", "general"])
async def test_an_edited_message_is_answered_anew_in_place(server, bot, room):
    async with bot() as (service, _):
        message = server.say("alice", room, "@bot one")
        place = room if room == "@alice" else f"{room}/{message.id}"
        await answered(server, place, "You said: one")
        server.change(message, "@bot one ")
        server.change(message, "@bot two")
        await answered(server, place, "You said: two")
        assert len(texts(server, place)) == 1
        assert [request.text for request in service.handled_requests] == ["one", "two"]


async def test_an_edit_after_a_restart_is_answered_in_place(server, bot):
    async with bot():
        message = server.say("alice", "@alice", "one")
        await answered(server, "@alice", "You said: one")
    async with bot() as (service, _):
        server.change(message, "one")
        server.change(message, "two")
        await answered(server, "@alice", "You said: two")
        assert [request.text for request in service.handled_requests] == ["two"]
    assert len(texts(server, "@alice")) == 1


async def test_an_edit_during_a_run_stops_it_and_takes_its_messages(server, bot):
    async def script(turn):
        turn.reply.step(1)
        if turn.request.text == "slow":
            turn.reply.text("Working on it.\n")
            await asyncio.sleep(60)
        return turn.done(f"You said: {turn.request.text}")

    async with bot(script):
        message = server.say("alice", "@alice", "slow")
        await until(lambda: "Working" in "".join(texts(server, "@alice")))
        server.change(message, "quick")
        await answered(server, "@alice", "You said: quick")
    assert len(texts(server, "@alice")) == 1


async def test_of_many_edits_the_last_one_is_answered(server, bot):
    async def script(turn):
        turn.reply.step(1)
        if turn.request.text != "four":
            await asyncio.sleep(60)
        return turn.done(f"You said: {turn.request.text}")

    async with bot(script) as (_, chat):
        message = server.say("alice", "general", "@bot one")
        thread = f"general/{message.id}"
        await asked(server, thread, "stop")
        for words in ("two", "three", "four"):
            server.change(message, f"@bot {words}")
        await answered(server, thread, "You said: four")
        await until(lambda: not chat.in_flight.find_running(lambda entry: True))
    assert len(texts(server, thread)) == 1


@pytest.mark.parametrize("last", ["one", "three"])
async def test_an_edit_that_is_taken_back_at_once_stops_what_it_began(server, bot, last):
    gate = asyncio.Event()

    async def script(turn):
        turn.reply.step(1)
        if not gate.is_set():
            await asyncio.sleep(60)
        return turn.done(f"You said: {turn.request.text}")

    async with bot(script) as (service, chat):
        message = server.say("alice", "@alice", "one")
        await until(lambda: service.running)
        gate.set()
        for words in ("two", "one", last):
            server.change(message, words)
        await answered(server, "@alice", f"You said: {last}")
        await until(lambda: not chat.in_flight.find_running(lambda entry: True))
        assert service.handled_requests[-1].text == last
    assert len(texts(server, "@alice")) == 1


async def test_old_messages_are_not_answered_anew(server, bot):
    async with bot(max_edit_age_seconds=0.0) as (service, _):
        message = server.say("alice", "@alice", "one")
        await answered(server, "@alice", "You said: one")
        server.change(message, "two")
        server.say("alice", "@alice", "three")
        await answered(server, "@alice", "You said: three")
        assert [request.text for request in service.handled_requests] == ["one", "three"]


async def test_a_mention_that_is_added_makes_a_request(server, bot):
    async with bot() as (service, _):
        message = server.say("alice", "general", "hello")
        server.change(message, "@bot hello")
        await answered(server, f"general/{message.id}", "You said: hello")
        server.deliver(message)
        server.say("alice", f"general/{message.id}", "next")
        await answered(server, f"general/{message.id}", "You said: next")
        assert [request.text for request in service.handled_requests] == ["hello", "next"]


async def test_deleted_messages_are_withdrawn_or_stopped(server, bot):
    async def script(turn):
        turn.reply.step(1)
        turn.reply.text("Working on it.\n")
        await asyncio.sleep(60)

    async with bot(script) as (service, _):
        running = server.say("alice", "@alice", "one")
        await until(lambda: "Working" in "".join(texts(server, "@alice")))
        waiting = server.say("alice", "@alice", "two")
        await until(lambda: "ahead" in texts(server, "@alice")[-1])
        server.remove(waiting)
        await until(lambda: "withdrawn" in texts(server, "@alice")[-1])
        server.remove(running)
        await until(lambda: "Stopped" in texts(server, "@alice")[0])
        assert [request.text for request in service.handled_requests] == ["one"]


async def test_a_message_that_is_deleted_while_its_thread_is_opened_is_not_run(server, bot):
    async with bot() as (service, chat):
        opened, open_thread = asyncio.Event(), chat.network.open_thread

        async def open_later(message):
            await opened.wait()
            return await open_thread(message)

        chat.network.open_thread = open_later
        message = server.say("alice", "general", "@bot one")
        await until(lambda: chat.in_flight.find_running(lambda entry: entry.id == str(message.id)))
        server.say("alice", "@alice", "another place waits for nobody")
        await answered(server, "@alice", "another place")
        chat.network.open_thread = open_thread
        server.deliver(message, "delete")
        next_message = server.say("alice", "general", "@bot two")
        await answered(server, f"general/{next_message.id}", "You said: two")
        opened.set()
        await until(lambda: not chat.in_flight.find_running(lambda entry: True))
        assert [request.text for request in service.handled_requests] == [
            "another place waits for nobody",
            "two",
        ]


async def test_threads_of_the_bot_need_no_mention_until_others_write(server, bot):
    async with bot() as (service, _):
        message = server.say("alice", "general", "@bot one")
        thread = f"general/{message.id}"
        await answered(server, thread, "You said: one")
        server.say("alice", "general", "people among themselves")
        server.say("alice", thread, "@bob look at this")
        server.say("alice", thread, "two")
        await answered(server, thread, "You said: two")
        server.say("bob", thread, "three")
        server.say("bob", thread, "four")
        await until(
            lambda: texts(server, thread)[-1:] == [f"(🔹 {access_words.MENTION_ME_IN_CROWD})"]
        )
        server.say("bob", thread, "@bot five")
        await answered(server, thread, "You said: five", count=4)
        assert [request.text for request in service.handled_requests] == ["one", "two", "five"]


async def test_in_a_crowd_who_asked_stops_the_answer_without_a_mention(server, bot):
    async def script(turn):
        turn.reply.step(1)
        await asyncio.sleep(60)

    async with bot(script) as (service, _):
        message = server.say("alice", "general", "@bot one")
        thread = f"general/{message.id}"
        await until(lambda: service.running)
        server.say("alice", thread, "@bob it counts")
        server.say("bob", thread, "please stop it!")
        await until(lambda: access_words.MENTION_ME_IN_CROWD in "".join(texts(server, thread)))
        assert service.running
        server.say("alice", thread, "please stop it!")
        await until(lambda: "Stopped" in texts(server, thread)[0])


async def test_input_is_answered_by_the_next_message_of_a_person_alone(server, bot):
    async with bot(ask_name) as (service, _):
        server.say("alice", "@alice", "greet me")
        await asked(server, "@alice", "answer")
        name = server.say("alice", "@alice", "Ada")
        await answered(server, "@alice", "Hello Ada.")
        server.change(name, "Eve")
        message = server.say("alice", "general", "@bot greet me")
        thread = f"general/{message.id}"
        await asked(server, thread, "answer")
        server.say("alice", thread, "@bot another request")
        server.say("alice", thread, "Ada")
        await until(lambda: "Hello Ada." in "".join(texts(server, thread)))
        await until(lambda: len(service.handled_requests) == 3)
        assert service.handled_requests[-1].text == "another request"


async def test_in_a_crowd_input_is_answered_by_a_reply(server, bot):
    async with bot(ask_name) as (service, _):
        message = server.say("alice", "general", "@bot greet me")
        thread = f"general/{message.id}"
        question = await asked(server, thread, "answer")
        server.say("bob", thread, "hello")
        server.say("alice", thread, "not to the bot")
        server.say("alice", thread, "Ada", answers=question.id)
        await until(lambda: "Hello Ada." in "".join(texts(server, thread)))
        assert len(service.handled_requests) == 1


async def test_a_secret_is_answered_by_a_form_alone(server, bot):
    async with bot(ask_name) as (service, _):
        server.say("alice", "@alice", "a secret")
        question = await asked(server, "@alice", "answer")
        server.say("alice", "@alice", "hunter2", answers=question.id)
        await until(lambda: f"⚠️ {question_words.NO_PASSWORDS}" in texts(server, "@alice"))
        server.submit("alice", question.buttons[0], "hunter2")
        await until(lambda: "Hello hunter2." in "".join(texts(server, "@alice")))
        assert len(service.handled_requests) == 1


async def test_a_password_that_a_killed_bot_asked_for_is_no_request(server, service):
    key = values.SessionKey(chats.PLATFORM, "", "@alice")
    question = events.InputQuestion(
        id="1", session=key, person="alice", cell=0, prompt="Password:", is_password=True
    )

    def refusals():
        return texts(server, "@alice").count(f"⚠️ {question_words.LOST_PASSWORD}")

    async with service() as opened:
        about = {"person": "alice", "request_id": "0", "question": question}
        await opened.interrupt(key, "getpass()", **about)
        password = server.say("alice", "@alice", "hunter2")
        server.say("alice", "@alice", "is anybody there?")
        async with chats.connect_platform(server.path, opened):
            await until(lambda: refusals() == 2)
            server.change(password, "hunter3")
            await until(lambda: refusals() == 3)
            server.say("bob", "@bob", "hello")
            server.say("alice", "@alice", "start again")
            await answered(server, "@alice", "You said: start again", count=4)
            await answered(server, "@bob", "You said: hello")
        assert {r.text for r in opened.handled_requests} == {"hello", "start again"}
        assert not any("hunter" in str(fields) for _, fields in opened.claimed)


async def test_an_answer_that_cannot_be_stored_is_refused_and_no_request(server, bot):
    async def lose(*_, **__):
        raise errors.StoreError

    async with bot(ask_name) as (service, _):
        server.say("alice", "@alice", "greet me")
        await asked(server, "@alice", "answer")
        service.questions.answer = lose
        server.say("alice", "@alice", "Ada")
        await until(lambda: texts(server, "@alice")[-1].startswith("⚠️"))
        del service.questions.answer
        server.say("alice", "@alice", "Ada")
        await until(lambda: "Hello Ada." in "".join(texts(server, "@alice")))
        assert len(service.handled_requests) == 1


@pytest.mark.parametrize(
    ("action", "answer"), [("run", "delete()"), ("session", "session"), ("refuse", "None")]
)
async def test_code_is_approved_once_for_the_session_or_declined(server, bot, action, answer):
    async def script(turn):
        await turn.reply.code(0, "tool()")
        said = await turn.reply.approve(1, "delete()", choices=("session",))
        turn.reply.finished(0, DONE)
        return turn.done(f"Approved: {said}.")

    async with bot(script):
        server.say("alice", "@alice", "go")
        question = await asked(server, "@alice", "run")
        server.press("bob", question, action)
        await until(lambda: server.whispers)
        server.press("alice", question, action)
        await answered(server, "@alice", f"Approved: {answer}.")


async def test_of_two_bots_and_two_deliveries_one_answers(server, service, bot):
    async with bot() as (first, _), chats.connect_platform(server.path, first):
        message = server.say("alice", "@alice", "one")
        server.deliver(message)
        await answered(server, "@alice", "You said: one")
        server.change(message, "two")
        await answered(server, "@alice", "You said: two")
        server.say("alice", "@alice", "three")
        await answered(server, "@alice", "You said: three")
        assert [request.text for request in first.handled_requests] == ["one", "two", "three"]
    assert len(texts(server, "@alice")) == 2


async def test_messages_that_were_missed_are_answered_once(server, bot):
    async with bot():
        server.say("alice", "@alice", "one")
        await answered(server, "@alice", "You said: one")
    server.say("alice", "@alice", "two")
    server.say("alice", "@alice", "three")
    async with bot() as (service, _):
        await answered(server, "@alice", "You said: three", count=3)
        assert [request.text for request in service.handled_requests] == ["two", "three"]


async def test_a_message_of_a_bot_that_died_is_answered_by_the_next(server, bot):
    async with bot() as (service, _):
        message = server.say("alice", "general", "@bot one")
        await answered(server, f"general/{message.id}", "You said: one")
        await service.die_before_beginning()
        await until(lambda: len(service.handled_requests) == 2)
        await answered(server, f"general/{message.id}", "You said: one")
    assert len(texts(server, f"general/{message.id}")) == 1


async def test_a_turn_of_a_bot_that_died_goes_on_in_its_messages(server, bot):
    key = values.SessionKey(chats.PLATFORM, "", "@alice")
    async with bot() as (service, _):
        message = server.say("alice", "@alice", "one")
        answer = await answered(server, "@alice", "You said: one")
        await service.go_on(key, "one", person="alice", request_id=str(message.id))
        await until(lambda: "before" in answer.text)
    assert len(texts(server, "@alice")) == 1


async def test_commands_in_words_are_carried_out_or_asked_about(server, bot):
    async with bot() as (service, _):
        server.say("alice", "@alice", "usage")
        await until(lambda: texts(server, "@alice"))
        server.say("alice", "@alice", "reset")
        await until(lambda: len(texts(server, "@alice")) == 2)
        assert texts(server, "@alice")[1].startswith("Reset?")
        server.say("alice", "@alice", "py 6 * 7")
        await answered(server, "@alice", "6 * 7", count=3)
        assert [(r.text, r.is_code) for r in service.handled_requests] == [("6 * 7", True)]


async def test_who_may_not_is_told_privately_and_elsewhere_nobody_is(server, bot):
    async with bot() as (service, chat):
        chat.banned.add("mallory")
        chat.rooms.add("general")
        server.say("alice", "random", "@bot hello")
        server.say("mallory", "general", "@bot hello")
        await until(lambda: server.whispers)
        assert server.whispers == [("mallory", access_words.NOT_LISTED)]
        assert service.handled_requests == []
    assert [m.text for m in server.messages.values() if not m.author] == []


async def test_what_goes_wrong_with_a_message_is_said(server, bot):
    async with bot() as (_, chat):
        server.plan("thread", "away")
        server.say("alice", "general", "@bot hello")
        await until(lambda: texts(server, "general"))
        assert texts(server, "general")[0].startswith("⚠️")
        message = server.say("alice", "general", "@bot again")
        await answered(server, f"general/{message.id}", "You said: again")
        await until(lambda: not chat.in_flight.find_running(lambda entry: True))


@pytest.mark.parametrize("failing", ["turn", "preferences", "thread", "answer"])
async def test_a_fault_of_our_own_is_said_and_its_request_forgotten(
    server, bot, monkeypatch, failing
):
    def fail(*_, **__):
        raise RuntimeError("nobody foresaw this")

    async with bot() as (service, chat):
        owner, name = {
            "turn": (service, "handle"),
            "preferences": (service.queries, "choices"),
            "thread": (chat.network, "open_thread"),
            "answer": (drafts.TurnDrawing, "parts"),
        }[failing]
        monkeypatch.setattr(owner, name, fail)
        server.say("alice", "general", "@bot hello")
        await until(lambda: run_words.BOT_FAULT in str(server.messages.values()))
        await until(lambda: not chat.in_flight.find_running(lambda entry: True))


async def test_people_wait_for_what_was_claimed_until_it_is_answered(server, bot, monkeypatch):
    gate, log = asyncio.Event(), []

    async def script(turn):
        await gate.wait()
        return await echo(turn)

    async with bot(script) as (service, _):
        events = service.services.database.events
        claim, settle = events.claim, events.settle

        async def claim_and_log(platform, name, **about):
            log.append(("claim", name, about["address"]))
            return await claim(platform, name, **about)

        async def settle_and_log(platform, name):
            log.append(("settle", name))
            return await settle(platform, name)

        monkeypatch.setattr(events, "claim", claim_and_log)
        monkeypatch.setattr(events, "settle", settle_and_log)
        message = server.say("alice", "@alice", "hello")
        await until(lambda: service.turns)
        name = f"message {message.id}"
        assert log == [("claim", name, values.format_key(service.requests[0].key))]
        gate.set()
        await until(lambda: log[1:] == [("settle", name)])
