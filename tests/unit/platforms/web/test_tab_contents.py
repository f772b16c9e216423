import dataclasses
import datetime

from interpreter_bot import code_activity, events, values
from interpreter_bot.platforms.web import event_json, tab_contents
from interpreter_bot.sessions import past_turns

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
TURN = past_turns.PastTurn(
    id=7,
    person="web",
    request="plot it",
    attachments=("data.csv",),
    status="done",
    answer="Done, see `a.png`.",
    started=START,
    ended=START + datetime.timedelta(seconds=3),
    parts=(
        past_turns.PastText("I will."),
        past_turns.PastCode(0, "plt.show()"),
        past_turns.PastOutput(0, values.Text("stdout", "hi\n")),
        past_turns.PastOutput(
            0,
            values.StoredDisplay(plain="F", mime="image/png", sha256="0" * 64, size_bytes=1),
        ),
        past_turns.PastFinished(0, values.Finished(values.Ending.OK, 0.5)),
        past_turns.PastNotice("A file was left out."),
        past_turns.PastText("Done, see /mnt/data/a.png."),
    ),
    artifacts=(values.Artifact("a.png", 1, "0" * 64),),
    queries=(code_activity.AskedQuery("sales", "select 1", rows=1, seconds=0.5),),
)


def _kinds(told):
    return [event["kind"] for event in told["events"]]


def test_a_past_turn_is_told_like_one_that_runs():
    told = tab_contents.events_of(TURN)
    assert (told["id"], told["number"], told["files"]) == ("past-7", 7, ["data.csv"])
    assert _kinds(told) == [
        *("begun", "step", "text", "code", "printed", "output", "finished", "announcement"),
        *("step", "text", "artifact", "over"),
    ]
    assert told["events"][5]["sha256"] == "0" * 64
    end = told["events"][-1]
    assert (end["status"], end["text"], end["seconds"], end["turn"]) == ("done", TURN.answer, 3, 7)
    asked = {"connection": "sales", "statement": "select 1", "outcome": "1 row in 0.5 s"}
    assert end["queries"] == [asked]
    live = events.TurnEnded(status=values.TurnStatus.DONE, queries=TURN.queries)
    assert event_json.to_json(live)["queries"] == [asked]


def test_one_that_runs_has_no_end():
    told = tab_contents.events_of(
        dataclasses.replace(TURN, status="running", answer="", ended=None)
    )
    assert told["is_running"]
    assert "over" not in _kinds(told)


def test_one_that_was_cut_off_says_so():
    told = tab_contents.events_of(dataclasses.replace(TURN, status="interrupted", answer=""))
    assert "restarted" in told["events"][-1]["sentence"]


def test_one_that_failed_says_why():
    told = tab_contents.events_of(
        dataclasses.replace(TURN, status="failed", answer="No money is left.")
    )
    assert told["events"][-1]["sentence"] == "No money is left."
    assert told["events"][-1]["text"] == ""


def test_what_it_cost_is_told_before_its_end():
    spent = values.Usage(steps=2, input_tokens=10, output_tokens=3)
    told = tab_contents.events_of(dataclasses.replace(TURN, spent=spent, request_id="m" * 16))
    assert told["request_id"] == "m" * 16
    assert _kinds(told)[-2:] == ["usage", "over"]
    assert told["events"][-2]["input_tokens"] == 10


def test_one_that_was_stopped_keeps_its_words_and_says_so():
    told = tab_contents.events_of(dataclasses.replace(TURN, status="stopped", answer=""))
    end = told["events"][-1]
    assert (end["text"], end["sentence"]) == ("", "Stopped.")
