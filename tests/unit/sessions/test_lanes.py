import asyncio
import contextlib

import pytest

from interpreter_bot import errors, values
from interpreter_bot.sessions import lanes

A, B, C = (values.SessionKey("web", thread=name) for name in "abc")


class Visitor:
    """Takes a lane in a task of its own, until told to leave."""

    def __init__(self, all_lanes, key, person="p", **options):
        self.heard = []
        self.has_it = asyncio.Event()
        self.leave = asyncio.Event()
        self.task = asyncio.create_task(self._visit(all_lanes, key, person, options))

    async def _visit(self, all_lanes, key, person, options):
        async with all_lanes.turn(key, person=person, on_position=self.heard.append, **options):
            self.has_it.set()
            await self.leave.wait()

    async def go(self):
        self.leave.set()
        await self.task


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def visit():
    visitors = []

    async def _visit(*args, **options):
        visitors.append(Visitor(*args, **options))
        await settle()
        return visitors[-1]

    yield _visit
    for visitor in visitors:
        visitor.task.cancel()
        with contextlib.suppress(asyncio.CancelledError, lanes.LaneError):
            await visitor.task


async def test_one_turn_at_a_time_in_order_and_told_so(visit):
    all_lanes = lanes.Lanes(max_running=9, max_waiting=9)
    first, second, third = [await visit(all_lanes, A) for _ in range(3)]
    assert (first.heard, second.heard, third.heard) == ([], [1], [2])
    await first.go()
    await settle()
    assert second.has_it.is_set()
    assert not third.has_it.is_set()
    assert third.heard == [2, 1]
    await second.go()
    await third.go()
    assert not all_lanes.is_busy(A)


async def test_conversations_do_not_wait_for_each_other(visit):
    all_lanes = lanes.Lanes(max_running=9, max_waiting=9)
    assert all([(await visit(all_lanes, key)).has_it.is_set() for key in (A, B, C)])


async def test_one_person_leaves_room_for_others(visit):
    all_lanes = lanes.Lanes(max_running=9, max_waiting=9, max_per_person=2)
    keys = [values.SessionKey("web", thread=str(number)) for number in range(4)]
    greedy = [await visit(all_lanes, key, "greedy") for key in keys]
    assert [one.has_it.is_set() for one in greedy] == [True, True, False, False]
    assert greedy[2].heard == [1]
    assert (await visit(all_lanes, A, "modest")).has_it.is_set()
    await greedy[0].go()
    await settle()
    assert [one.has_it.is_set() for one in greedy[2:]] == [True, False]


async def test_a_full_bot_serves_the_person_with_the_fewest_turns_first(visit):
    all_lanes = lanes.Lanes(max_running=2, max_waiting=9)
    keys = [values.SessionKey("web", thread=str(number)) for number in range(4)]
    greedy = [await visit(all_lanes, key, "greedy") for key in keys]
    modest = await visit(all_lanes, A, "modest")
    assert modest.heard == [1]
    assert greedy[2].heard == [1, 2]
    await greedy[0].go()
    await settle()
    assert modest.has_it.is_set()
    assert not greedy[2].has_it.is_set()


async def test_whoever_is_cancelled_frees_the_way(visit):
    all_lanes = lanes.Lanes(max_running=1, max_waiting=9)
    first, second, third = [await visit(all_lanes, A) for _ in range(3)]
    second.task.cancel()
    await settle()
    assert third.heard == [2, 1]
    first.task.cancel()
    await settle()
    assert third.has_it.is_set()


async def test_one_cancelled_at_the_moment_of_its_grant_gives_the_lane_on(visit):
    all_lanes = lanes.Lanes(max_running=1, max_waiting=9)
    first, second, third = [await visit(all_lanes, A) for _ in range(3)]
    first.leave.set()
    # It leaves in the next round of the loop, in which the second is still to be woken.
    await asyncio.sleep(0)
    second.task.cancel()
    await settle()
    assert third.has_it.is_set()


async def test_too_many_are_refused(visit):
    all_lanes = lanes.Lanes(max_running=9, max_waiting=1)
    await visit(all_lanes, A)
    await visit(all_lanes, A)
    refused = await visit(all_lanes, A)
    with pytest.raises(lanes.LaneError, match="queue of this conversation is full: 1 waiting"):
        await refused.task


async def test_a_waiting_request_can_be_withdrawn_but_no_running_one(visit):
    all_lanes = lanes.Lanes(max_running=9, max_waiting=9)
    await visit(all_lanes, A, request_id="one")
    waiting = await visit(all_lanes, A, request_id="two")
    assert not all_lanes.withdraw(A, "one")
    assert all_lanes.withdraw(A, "two")
    assert not all_lanes.withdraw(A, "two")
    with pytest.raises(lanes.LaneError, match="withdrawn"):
        await waiting.task


async def test_what_people_do_to_a_conversation_passes_those_who_wait(visit):
    all_lanes = lanes.Lanes(max_running=9, max_waiting=9)
    first = await visit(all_lanes, A)
    second = await visit(all_lanes, A)
    urgent = await visit(all_lanes, A, skips_queue=True)
    await first.go()
    await settle()
    assert urgent.has_it.is_set()
    assert not second.has_it.is_set()


async def test_closing_sends_away_who_waits_and_lets_the_running_end(visit):
    all_lanes = lanes.Lanes(max_running=9, max_waiting=9)
    running = await visit(all_lanes, A)
    waiting = await visit(all_lanes, A)
    all_lanes.close()
    late = await visit(all_lanes, B)
    for one in (waiting, late):
        with pytest.raises(lanes.LaneError, match="shut down"):
            await one.task
    draining = asyncio.create_task(all_lanes.wait_idle())
    await settle()
    assert not draining.done()
    await running.go()
    await draining


async def test_whoever_cannot_be_told_is_alone_with_that(visit):
    def deaf(_):
        raise BrokenPipeError

    all_lanes = lanes.Lanes(max_running=1, max_waiting=9)
    first = await visit(all_lanes, A)
    with pytest.raises(BrokenPipeError):
        async with all_lanes.turn(A, person="p", on_position=deaf):
            pytest.fail("it has the lane of another")
    third = await visit(all_lanes, B)
    await first.go()
    await settle()
    assert third.has_it.is_set()
    await third.go()
    assert not all_lanes.is_busy(A)


async def test_a_lane_is_emptied_of_those_who_wait_in_it(visit):
    all_lanes = lanes.Lanes(max_running=9, max_waiting=9)
    first, second = [await visit(all_lanes, A) for _ in range(2)]
    all_lanes.refuse_waiting(A)
    all_lanes.refuse_waiting(B)
    await settle()
    with pytest.raises(lanes.LaneError, match="deleted"):
        await second.task
    assert first.has_it.is_set()
    await first.go()
    assert not all_lanes.is_busy(A)


async def test_who_is_expected_passes_all_that_came_before_and_who_comes_meanwhile(visit):
    all_lanes = lanes.Lanes(max_running=9, max_waiting=1)
    all_lanes.expect(A, "goes on")
    waits = await visit(all_lanes, A)
    elsewhere = await visit(all_lanes, B)
    assert (waits.has_it.is_set(), elsewhere.has_it.is_set()) == (False, True)
    assert waits.heard == [1]
    expected = await visit(all_lanes, A, request_id="goes on")
    assert expected.has_it.is_set()
    await expected.go()
    assert not waits.has_it.is_set()
    all_lanes.stop_expecting(A)
    await settle()
    assert waits.has_it.is_set()


async def test_a_session_is_stopped_for_its_people_while_one_is_expected(visit):
    all_lanes = lanes.Lanes(max_running=9, max_waiting=9)
    all_lanes.expect(A, "goes on")
    await visit(all_lanes, A)
    assert (await visit(all_lanes, A, skips_queue=True)).has_it.is_set()


@pytest.mark.looptime
async def test_a_lane_is_held_once_a_turn_has_just_ended_and_refused_while_one_runs(visit):
    all_lanes = lanes.Lanes(max_running=9, max_waiting=9)
    first, waiting = await visit(all_lanes, A), await visit(all_lanes, A)
    asyncio.get_running_loop().call_later(1.0, first.leave.set)
    async with all_lanes.hold(A):
        assert not waiting.has_it.is_set()
    await settle()
    assert waiting.has_it.is_set()
    with pytest.raises(errors.BotError, match="still running"):
        async with all_lanes.hold(A):
            pass
    assert all_lanes.is_busy(A), "the turn that runs goes on"
