"""Sums of usage are exact, even if a model's server reports nonsense."""

import decimal

import pytest

from interpreter_bot import values
from interpreter_bot.store import records

Key = values.SessionKey
Kind = records.PartKind


def micros(number):
    return decimal.Decimal(number) / 1_000_000


async def test_money_sums_are_exact_by_person_day_session_and_turn(database, session, turn):
    small_usage = values.Usage(input_tokens=3, output_tokens=1, money=micros(1), cpu_seconds=0.5)
    large_usage = values.Usage(money=micros(10**15))
    for _ in range(100):
        await database.usage.add(turn.id, small_usage, model="m")
    await database.usage.add(turn.id, large_usage)
    other_session = await database.sessions.open(Key("slack", "T1", "C2"))
    turn_of_same_person = await database.turns.start(other_session.id, person="U1", text="?")
    turn_of_other_person = await database.turns.start(other_session.id, person="U2", text="?")
    await database.usage.add(turn_of_same_person.id, values.Usage(money=micros(7)))
    await database.usage.add(turn_of_other_person.id, values.Usage(money=micros(1000)))

    spent = values.Usage(
        input_tokens=300, output_tokens=100, money=micros(10**15 + 100), cpu_seconds=50.0
    )
    assert await database.usage.sum_for_session(session.id) == spent
    assert await database.usage.sum_for_turns([turn.id]) == {turn.id: spent}
    place = {"platform": "slack", "workspace": "T1"}
    assert (await database.usage.sum_for_person("U1", **place)).money == micros(10**15 + 107)
    assert await database.usage.sum_for_person("U1", platform="web") == values.Usage()


async def test_numbers_beyond_measure_do_not_spoil_the_sum(database, turn):
    absurd_usage = values.Usage(input_tokens=10**40, output_tokens=-5, cpu_seconds=float("nan"))
    await database.usage.add(turn.id, absurd_usage)
    await database.usage.add(turn.id, values.Usage(output_tokens=2, cpu_seconds=1.0))
    spent = (await database.usage.sum_for_turns([turn.id]))[turn.id]
    assert (spent.input_tokens, spent.output_tokens, spent.cpu_seconds) == (10**15, 2, 1.0)


@pytest.mark.first_case
async def test_what_was_spent_stays_counted_when_a_session_is_deleted(database, session, turn):
    await database.parts.add(turn.id, records.NewPart(kind=Kind.TEXT, text="x"))
    await database.usage.add(turn.id, values.Usage(money=micros(5)))
    await database.sessions.delete(session.id)
    assert await database.sessions.get(session.id) is None
    assert await database.turns.get(turn.id) is None
    assert await database.parts.list_for_turn(turn.id) == ()
    spent = await database.usage.sum_for_person("U1", platform="slack", workspace="T1")
    assert spent.money == micros(5)


@pytest.mark.first_case
async def test_turns_are_added_up_one_by_one_and_left_out_of_a_persons_sum(database, session, turn):
    other = await database.turns.start(session.id, person="U1", text="?")
    deleted_session = await database.sessions.open(Key("slack", "T1", "C2"))
    deleted_turn = await database.turns.start(deleted_session.id, person="U1", text="?")
    for number, spending_turn in enumerate((turn, turn, other, deleted_turn), start=1):
        await database.usage.add(spending_turn.id, values.Usage(money=micros(number)))
    await database.sessions.delete(deleted_session.id)
    usage_by_turn = await database.usage.sum_for_turns([turn.id, other.id, 12345])
    assert {
        spending_turn: spent.money for spending_turn, spent in usage_by_turn.items()
    } == dict.fromkeys([turn.id, other.id], micros(3))
    place = {"platform": "slack", "workspace": "T1"}
    rest = await database.usage.sum_for_person("U1", **place, without_turns=[turn.id])
    assert rest.money == micros(3 + 4)


async def test_money_is_counted_in_millionths_and_rounded_up(database, turn):
    await database.usage.add(turn.id, values.Usage(money=decimal.Decimal("0.0000011")))
    assert (await database.usage.sum_for_turns([turn.id]))[turn.id].money == micros(2)
    await database.usage.add(turn.id, values.Usage(money=decimal.Decimal(10) ** 40))
    assert (await database.usage.sum_for_turns([turn.id]))[turn.id].money == micros(10**15 + 2)
