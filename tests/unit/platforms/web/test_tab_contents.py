import datetime

from interpreter_bot import events, values
from interpreter_bot.platforms.web import tab_contents
from interpreter_bot.sessions import past_turns

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
TURN = past_turns.PastTurn(
    id=7,
    person="web",
    request="plot it",
    attachments=("data.csv",),
    status=values.TurnStatus.RUNNING,
    answer="",
    started=START,
    ended=None,
    events=(events.Started(), events.CodeStarted(0, "plt.show()")),
    request_id="m" * 16,
)


def test_a_past_turn_is_told_like_one_that_runs():
    told = tab_contents.events_of(TURN)
    assert (told["id"], told["number"], told["files"]) == ("past-7", 7, ["data.csv"])
    assert (told["request_id"], told["is_running"]) == ("m" * 16, True)
    assert told["started"] == START.timestamp()
    assert [event["type"] for event in told["events"]] == ["begun", "code"]
