import asyncio

from interpreter_bot import events, values
from interpreter_bot.platforms.web import tab_contents, tab_hub
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


async def test_a_defect_in_one_list_does_not_end_the_sending_of_lists():
    class Service:
        has_failed = False

        async def recent(self, *_, **__):
            if not self.has_failed:
                self.has_failed = True
                hub.sessions_changed.set()
                raise RuntimeError("a defect")
            return ()

    hub, tab = tab_hub.Hub(), tab_hub.Tab()
    hub.add_tab(tab)
    hub.sessions_changed.set()
    sending = asyncio.create_task(tab_contents.send_listings(Service(), hub))
    batch = asyncio.create_task(tab.next_batch())
    await asyncio.wait({sending, batch}, return_when=asyncio.FIRST_COMPLETED)
    assert batch.done()
    assert "conversations" in batch.result()
    sending.cancel()
