from interpreter_bot import events, values
from interpreter_bot.platforms.web import tab_contents
from tests.fakes import past_turns

TURN = past_turns.make_past_turn(
    events.Started(),
    events.CodeStarted(0, "plt.show()"),
    id=7,
    request="plot it",
    attachments=("data.csv",),
    status=values.TurnStatus.RUNNING,
    request_id="m" * 16,
)


def test_a_past_turn_is_told_like_one_that_runs():
    told = tab_contents.describe_past_turn(TURN)
    assert (told["id"], told["turn_id"], told["files"]) == ("past-7", 7, ["data.csv"])
    assert (told["request_id"], told["is_running"]) == ("m" * 16, True)
    assert told["started"] == past_turns.START.timestamp()
    assert [event["type"] for event in told["events"]] == ["begun", "code"]
