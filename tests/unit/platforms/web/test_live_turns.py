from interpreter_bot import events, values
from interpreter_bot.platforms.web import event_json, live_turns


def test_pieces_that_continue_each_other_become_one():
    log = live_turns.EventLog()
    for piece in "Hello":
        log.append(event_json.to_json(events.TextAdded(piece)))
    log.append(event_json.to_json(events.OutputShown(0, values.Text("stdout", "a"))))
    log.append(event_json.to_json(events.OutputShown(0, values.Text("stderr", "b"))))
    log.append(event_json.to_json(events.OutputShown(0, values.Text("stderr", "c"))))
    assert [event["delta"] for event in log.events()] == ["Hello", "a", "bc"]


def test_what_was_written_of_code_is_gone_once_it_runs():
    log = live_turns.EventLog()
    for event in (
        event_json.to_json(events.CodeDrafted("pri")),
        event_json.to_json(events.CodeDrafted("nt(1)")),
        event_json.to_json(events.CodeStarted(0, "print(1)")),
    ):
        log.append(event)
    assert [event["kind"] for event in log.events()] == ["code"]


def test_of_what_is_waited_for_only_the_latest_is_remembered_and_only_while_it_is():
    log = live_turns.EventLog()
    for share in (None, 0.1, 0.2):
        log.append(event_json.to_json(events.ProgressChanged("Downloading", share)))
    assert log.events() == [event_json.to_json(events.ProgressChanged("Downloading", 0.2))]
    log.append(event_json.to_json(events.ProgressChanged("", None)))
    assert log.events() == []


def test_a_long_turn_keeps_its_end_and_its_code():
    log = live_turns.EventLog(1000)
    log.append(event_json.to_json(events.CodeStarted(0, "flood()")))
    for number in range(200):
        log.append(
            event_json.to_json(
                events.OutputShown(number % 2, values.Text("stdout", f"{number:03}" * 5))
            )
        )
    told = log.events()
    assert told[0]["kind"] == "announcement"
    assert told[1] == event_json.to_json(events.CodeStarted(0, "flood()"))
    assert told[-1]["delta"] == "199" * 5
    assert sum(len(event.get("delta", "")) for event in told) <= 1000
