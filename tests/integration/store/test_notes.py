"""Notes that people let the bot remember in a place."""

import asyncio

import pytest

from interpreter_bot import values

CHANNEL = values.Scope("slack", "T1", "C1")
WORKSPACE = values.Scope("slack", "T1")
CONFIRMED = {"person": "U1", "author": "Anna", "max_notes": 3}


async def texts(database, scope):
    return [note.text for note in await database.notes.list_around(scope)]


async def test_a_scope_has_each_note_once_and_not_more_than_its_limit(opening):
    async with opening() as first, opening() as second:
        adding = [
            database.notes.add(CHANNEL, "same", **CONFIRMED) for database in [first, second] * 5
        ]
        assert all(await asyncio.gather(*adding))
        assert await texts(first, CHANNEL) == ["same"]
        adding = [
            database.notes.add(CHANNEL, f"{number}", **CONFIRMED)
            for number, database in enumerate([first, second] * 5)
        ]
        assert sorted(await asyncio.gather(*adding)) == [False] * 8 + [True] * 2
        assert len(await texts(second, CHANNEL)) == 3
        assert await second.notes.add(WORKSPACE, "same", **CONFIRMED)


@pytest.mark.first_case
async def test_notes_apply_within_their_scope_and_are_erased_with_it(database):
    person = values.Scope("slack", "T1", person="U1")
    elsewhere = values.Scope("discord", "T1", "C1")
    for scope in (CHANNEL, WORKSPACE, person, elsewhere):
        await database.notes.add(scope, str(scope), **CONFIRMED)
    assert await texts(database, CHANNEL) == [str(CHANNEL), str(WORKSPACE)]
    assert await texts(database, WORKSPACE) == [str(WORKSPACE)]
    await database.notes.erase(CHANNEL)
    assert await texts(database, CHANNEL) == [str(WORKSPACE)]
    await database.notes.erase(WORKSPACE)
    assert await texts(database, person) == []
    assert await texts(database, elsewhere) == [str(elsewhere)]


@pytest.mark.first_case
async def test_a_note_that_somebody_else_changed_or_removed_is_not_changed(database):
    notes = database.notes
    await notes.add(CHANNEL, "a", **CONFIRMED)
    (note,) = await notes.list_around(CHANNEL)
    assert (note.text, note.confirmed_by, note.author) == ("a", "U1", "Anna")
    changing = (notes.change(note, f"{number}") for number in range(5))
    assert sorted(await asyncio.gather(*changing)) == [False] * 4 + [True]
    (note,) = await notes.list_around(CHANNEL)
    await notes.remove(note.id)
    assert not await notes.change(note, "b")
    assert await notes.list_around(CHANNEL) == ()
