"""Who starts next, and how many at a time."""

import asyncio
import os

import pytest

from interpreter_bot.kernels import admissions


class Starts:
    """Starts that are over when the test says so."""

    def __init__(self, places):
        self.admissions = admissions.Admissions(places)
        self.begun = []
        self._ends = {}

    def begin(self, key, person=""):
        self._ends[key] = asyncio.Event()
        return asyncio.create_task(self._start(key, person or key))

    async def _start(self, key, person):
        async with self.admissions.place(key, person):
            self.begun.append(key)
            await self._ends[key].wait()

    async def end(self, key):
        self._ends[key].set()
        await settled()


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_so_many_start_as_there_are_places_and_the_first_to_come_is_the_first_served():
    starts = Starts(2)
    tasks = [starts.begin(key) for key in "abcde"]
    await settled()
    assert starts.begun == ["a", "b"]
    assert [starts.admissions.starts_ahead(key) for key in "abcde"] == [0, 0, 2, 3, 4]
    await starts.end("b")
    assert starts.begun == ["a", "b", "c"]
    assert [starts.admissions.starts_ahead(key) for key in "de"] == [2, 3]
    for key in "acde":
        assert not starts.admissions.is_free or key == "e"
        await starts.end(key)
    assert starts.begun == list("abcde")
    assert starts.admissions.is_free
    await asyncio.gather(*tasks)


async def test_one_that_goes_away_gives_its_place_to_the_next():
    starts = Starts(1)
    first, second, third, fourth = (starts.begin(key) for key in "abcd")
    await settled()
    second.cancel()
    await settled()
    # The place and the wish to go come in the same moment.
    starts._ends["a"].set()
    await asyncio.sleep(0)
    third.cancel()
    await settled()
    assert starts.begun[-1] == "d"
    await starts.end("d")
    assert starts.admissions.is_free
    results = await asyncio.gather(first, second, third, fourth, return_exceptions=True)
    assert [type(one) for one in results].count(asyncio.CancelledError) == 2


async def test_one_that_comes_in_the_moment_in_which_the_last_waiting_one_goes_is_served():
    starts = Starts(1)
    first, second = starts.begin("a"), starts.begin("b")
    await settled()
    second.cancel()
    starts._ends["a"].set()
    third = starts.begin("c")
    await settled()
    assert starts.begun == ["a", "c"]
    await starts.end("c")
    await asyncio.gather(first, second, third, return_exceptions=True)


async def test_a_failure_gives_its_place_back():
    one = admissions.Admissions(1)
    with pytest.raises(ValueError, match="no"):
        async with one.place("a"):
            raise ValueError("no")
    assert one.is_free


async def test_there_is_one_place_more_than_cores():
    starts = Starts(0)
    count = len(os.sched_getaffinity(0)) + 1
    tasks = [starts.begin(str(number)) for number in range(count + 1)]
    await settled()
    assert len(starts.begun) == count
    for number in range(count + 1):
        await starts.end(str(number))
    await asyncio.gather(*tasks)


async def test_nobody_waits_for_all_starts_of_somebody_else():
    starts = Starts(1)
    greedy = [starts.begin(f"a{number}", "a") for number in range(30)]
    await settled()
    others = [starts.begin("b0", "b"), starts.begin("b1", "b"), starts.begin("c0", "c")]
    await settled()
    assert starts.admissions.starts_ahead("c0") <= 4
    for _ in range(4):
        await starts.end(starts.begun[-1])
    # New ones do not keep those away who have waited for longer.
    others.append(starts.begin("c1", "c"))
    await settled()
    while len(starts.begun) < len(greedy) + len(others):
        await starts.end(starts.begun[-1])
    await starts.end(starts.begun[-1])
    await asyncio.gather(*greedy, *others)
    order = starts.begun
    assert order[:6] == ["a0", "a1", "b0", "c0", "a2", "b1"]
    assert order[6:8] == ["a3", "c1"] or order[6:8] == ["c1", "a3"]
    assert [key for key in order if key[0] == "a"] == [f"a{number}" for number in range(30)]
