"""Placements of sessions on hosts: one row decides, also for simultaneous requests."""

import asyncio

import pytest


async def test_a_session_is_where_it_was_placed_first(database):
    assert await database.placements.find("s") is None
    assert await database.placements.put("s", "a", former_epoch=0) == ("a", 1, True)
    assert await database.placements.put("s", "b", former_epoch=0) == ("a", 1, True)
    assert await database.placements.find("s") == ("a", 1, True)


async def test_of_all_that_move_it_at_once_one_does(opening):
    async with opening() as first, opening() as second:
        await first.placements.put("s", "a", former_epoch=0)
        puts = [
            database.placements.put("s", f"{number}", former_epoch=1)
            for number, database in enumerate([first, second] * 5)
        ]
        placements = await asyncio.gather(*puts)
        assert len(set(placements)) == 1
        assert placements[0][1:] == (2, False)
        assert await second.placements.find("s") == placements[0]


async def test_what_was_decided_on_an_older_epoch_counts_for_nothing(database):
    await database.placements.put("s", "a", former_epoch=0)
    await database.placements.put("s", "b", former_epoch=1)
    await database.placements.put("s", "c", former_epoch=2)
    assert await database.placements.put("s", "a", former_epoch=1) == ("c", 3, False)


async def test_people_are_told_of_a_move_once(database):
    await database.placements.put("s", "a", former_epoch=0)
    assert not await database.placements.mark_announced("s", 1)
    await database.placements.put("s", "b", former_epoch=1)
    assert not await database.placements.mark_announced("s", 1)
    assert await database.placements.mark_announced("s", 2)
    assert not await database.placements.mark_announced("s", 2)
    assert await database.placements.find("s") == ("b", 2, True)


@pytest.mark.first_case
async def test_many_are_found_at_once(database):
    for key in ("s", "t", "u"):
        await database.placements.put(key, f"of {key}", former_epoch=0)
    placements = await database.placements.find_all(["u", "s", "none"])
    assert placements == {"u": ("of u", 1, True), "s": ("of s", 1, True)}


@pytest.mark.first_case
async def test_a_key_may_be_any_text(database):
    for key in ("\udc80", "x" * 2000, ""):
        await database.placements.put(key, "a", former_epoch=0)
        assert await database.placements.find(key) == ("a", 1, True)
