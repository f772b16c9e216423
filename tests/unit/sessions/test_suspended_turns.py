"""When turns of a bot that is gone go on, and what waits for them."""

import asyncio

import pytest

from interpreter_bot import events, settings, values
from interpreter_bot.sessions import jobs, lanes, requests, suspended_turns
from interpreter_bot.wording import session_words

KEY = values.SessionKey("web", thread="a")
REQUEST = requests.Request(
    key=KEY, person=requests.Person("p"), text="x", id="goes on", resumed_turn_id=1
)


@pytest.mark.parametrize("is_lost", [False, True])
async def test_nothing_of_its_session_begins_before_a_turn_that_goes_on(is_lost):
    order, has_asked, may_go = [], asyncio.Event(), asyncio.Event()
    all_lanes = lanes.Lanes(max_running=9, max_waiting=9)

    async def take(request_id):
        turn = all_lanes.turn(KEY, person="p", request_id=request_id, on_position=lambda _: None)
        async with turn:
            order.append(request_id)

    async def go_on(request):
        has_asked.set()
        await may_go.wait()
        if is_lost:
            raise RuntimeError
        await take(request.id)

    resumptions = suspended_turns.Resumptions(all_lanes, jobs.Jobs(settings.Settings()), None, None)
    resumptions.add(REQUEST)
    new = asyncio.create_task(take("new"))
    resumptions.resume_on("web", go_on)
    await has_asked.wait()
    assert order == []
    may_go.set()
    await resumptions.close()
    await new
    assert order == (["new"] if is_lost else ["goes on", "new"])


def test_a_late_answer_with_much_output_still_has_its_words():
    reply = suspended_turns.LateReply()
    output = values.Text("stdout", "``` 12345\n" * 1000)
    for event in (
        events.CodeStarted(0, "f()"),
        events.OutputShown(0, output),
        events.TurnEnded(status=values.TurnStatus.DONE, text="It is 12345."),
    ):
        reply.emit(event)
    text = reply.text()
    assert len(text) < 3100
    assert "It is 12345." in text
    assert text.count("```") == 2
    assert text.endswith(session_words.REST_IN_HISTORY)
