import hashlib
import json

from interpreter_bot import events, values
from interpreter_bot.platforms.rendering import event_json
from interpreter_bot.platforms.web import tab_hub

THREAD = "a" * 16
HEAD = {"request": "x", "files": [], "is_code": False, "started": 0.0}


async def _heard(watcher):
    return json.loads(await watcher.next_batch())


async def test_only_those_who_watch_a_conversation_hear_of_it():
    hub = tab_hub.Hub()
    here, elsewhere = tab_hub.Tab(), tab_hub.Tab()
    here.thread, elsewhere.thread = THREAD, "b" * 16
    hub.add_tab(here)
    hub.add_tab(elsewhere)
    turn = hub.begin_turn(THREAD, "t" * 16, HEAD)
    turn.emit(events.TextAdded("hello"))
    hub.send_message("conversations", {"conversations": []})
    assert [one["kind"] for one in await _heard(here)] == ["turn", "event", "conversations"]
    assert [one["kind"] for one in await _heard(elsewhere)] == ["conversations"]


async def test_a_tab_that_takes_nothing_is_given_up():
    hub = tab_hub.Hub()
    watcher = tab_hub.Tab()
    hub.add_tab(watcher)
    for _ in range(40):
        hub.send_message("conversations", {"x": "x" * 1024 * 1024})
    assert watcher.is_behind
    assert await watcher.next_batch() == ""


def _ended(number):
    return events.TurnEnded(status=values.TurnStatus.DONE, turn_id=number)


def test_a_turn_that_the_store_knows_is_forgotten_and_others_are_kept_for_a_while():
    hub = tab_hub.Hub()
    recorded = hub.begin_turn(THREAD, "r" * 16, HEAD)
    recorded.emit(_ended(7))
    hub.end_turn(THREAD, recorded)
    assert hub.list_turns(THREAD) == ()
    for number in range(30):
        refused = hub.begin_turn(THREAD, f"{number:016}", HEAD)
        refused.emit(_ended(0))
        hub.end_turn(THREAD, refused)
    assert [turn.id for turn in hub.list_turns(THREAD)] == [
        f"{number:016}" for number in range(10, 30)
    ]
    assert hub.end_count(THREAD) == 31


def test_pictures_are_kept_within_a_budget():
    hub = tab_hub.Hub()
    names = []
    for number in range(6):
        data = bytes([number]) * 10 * 1024 * 1024
        names.append(hashlib.sha256(data).hexdigest())
        hub.keep_blob(names[-1], data)
        hub.keep_blob(names[-1], data)
    assert [hub.load_blob(name) is not None for name in names] == [False] * 3 + [True] * 3


def test_what_is_written_survives_broken_characters():
    output = values.Text("stdout", "\ud800 half")
    message = tab_hub.encode_message(
        "event", {"event": event_json.to_json(events.OutputShown(0, output))}
    )
    assert message.isascii()
    assert json.loads(message)["event"]["text"] == "\ud800 half"


def test_conversations_that_are_over_take_no_room():
    hub = tab_hub.Hub()
    for number in range(5000):
        thread = f"{number:016}"
        hub.notify(thread, "Hear!")
        turn = hub.begin_turn(thread, "t" * 16, HEAD)
        turn.emit(_ended(number + 1))
        hub.end_turn(thread, turn)
        hub.notify(thread, "Hear again!")
    assert (hub.list_turns("0" * 16), hub.list_notices("0" * 16), hub.end_count("0" * 16)) == (
        (),
        [],
        0,
    )
    assert hub.list_notices(f"{4999:016}") == ["Hear again!"]
    assert hub.end_count(f"{4999:016}") != hub.end_count(f"{4998:016}")


def test_a_turn_may_end_after_it_was_forgotten():
    hub = tab_hub.Hub()
    turn = hub.begin_turn(THREAD, "t" * 16, HEAD)
    turn.emit(_ended(7))
    hub.forget_finished_turns(THREAD)
    hub.end_turn(THREAD, turn)
    assert hub.list_turns(THREAD) == ()
