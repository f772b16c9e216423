"""What `budgets` adds up: tokens as servers count them, those of caches included, and money."""

import decimal
import itertools
import json

import pytest

from interpreter_bot import values
from tests.fakes import openai_server as server
from tests.unit.agent import scripts

PRICES = {
    **{"input_price": "1", "cached_price": "0.1", "cache_write_price": "2"},
    **{"output_price": "10"},
}
CACHED = {"cached_tokens": 600, "cache_write_tokens": 100}


@pytest.mark.parametrize(
    ("protocol", "read", "counted"),
    [
        ("chat", 1000, {"prompt_tokens_details": CACHED}),
        ("responses", 1000, {"input_tokens_details": CACHED}),
        # It counts them apart.
        (
            "anthropic",
            300,
            {"cache_read_input_tokens": 600, "cache_creation_input_tokens": 100},
        ),
    ],
)
async def test_cached_tokens_are_read_and_priced(protocol, read, counted):
    reply = server.text("ok", usage=(read, 50), usage_fields=counted)
    async with scripts.open_turn([reply], protocol=protocol, **PRICES) as turn:
        outcome = await turn.run()
    # 300 read anew, 600 out of the cache, 100 into it, 50 written.
    money = decimal.Decimal("0.00106")
    assert outcome.usage == values.Usage(1000, 50, False, 600, 100, steps=1, money=money)


@pytest.mark.parametrize("name", ["prompt_cache_hit_tokens", "cached_tokens"])
async def test_cached_tokens_by_other_names_are_read(name):
    reply = server.text("ok", usage=(1000, 50), usage_fields={name: 400})
    async with scripts.open_turn([reply], input_price="1", cached_price="0.5") as turn:
        outcome = await turn.run()
    assert outcome.usage.cached_tokens == 400
    assert outcome.usage.money == decimal.Decimal("0.0008")


async def test_cached_tokens_cost_what_others_do_where_no_price_is_set():
    counted = {"prompt_tokens_details": CACHED}
    reply = server.text("ok", usage=(1000, 0), usage_fields=counted)
    async with scripts.open_turn([reply], input_price="1") as turn:
        outcome = await turn.run()
    assert outcome.usage.money == decimal.Decimal("0.001")


async def test_no_call_is_made_whose_input_is_too_dear_to_be_cached():
    async with scripts.open_turn(
        [], input_price="0", cache_write_price="1000000", turn={"money": "1"}
    ) as turn:
        outcome = await turn.run()
    assert outcome.sentence == "This would cost more than 1, the most for one request."


@pytest.mark.parametrize(
    "details",
    [
        {"cached_tokens": 10**30, "cache_write_tokens": 10**30},
        {"cached_tokens": -5, "cache_write_tokens": -1},
        {"cached_tokens": "many", "cache_write_tokens": True},
        {"cached_tokens": 1.5, "cache_write_tokens": None},
        {"cached_tokens": 900, "cache_write_tokens": 900},
        "none",
        [1, 2],
        None,
    ],
)
@pytest.mark.parametrize("protocol", ["chat", "responses"])
async def test_nonsense_about_a_cache_never_costs_more_than_the_input(protocol, details):
    name = "prompt_tokens_details" if protocol == "chat" else "input_tokens_details"
    reply = server.text("ok", usage=(1000, 0), usage_fields={name: details})
    async with scripts.open_turn([reply], protocol=protocol, input_price="1") as turn:
        outcome = await turn.run()
    usage = outcome.usage
    assert not usage.is_estimated
    assert 0 <= usage.cached_tokens <= usage.cached_tokens + usage.cache_write_tokens <= 1000
    assert outcome.usage.money == decimal.Decimal("0.001")


@pytest.mark.parametrize("usage", [(-5, 10), (10**30, 1), ("many", 1), (1.5, 2)])
@pytest.mark.parametrize("protocol", ["chat", "responses", "anthropic"])
async def test_a_server_that_counts_nonsense_has_not_counted(protocol, usage):
    reply = server.text("ok", usage=usage)
    async with scripts.open_turn([reply], protocol=protocol) as turn:
        outcome = await turn.run()
    assert outcome.text == "ok"
    assert outcome.usage.is_estimated
    assert 0 < outcome.usage.tokens < 100_000


@pytest.mark.parametrize("protocol", ["chat", "responses"])
async def test_every_prompt_of_a_conversation_names_its_cache(protocol):
    replies = [server.code("1"), server.text("ok")]
    async with scripts.open_turn(replies, scripts.print_step("1"), protocol=protocol) as turn:
        turn.cache_key = "abc"
        await turn.run()
        assert [one.body["prompt_cache_key"] for one in turn.server.requests] == ["abc"] * 2


async def test_old_outputs_are_shortened_several_at_a_time():
    """What was sent before stays as it was for some steps, also where it gets too long."""
    replies = [server.code(f"print({n})") for n in range(36)] + [server.text("ok")]
    steps = [scripts.print_step(f"{n} " + "x" * 6000) for n in range(36)]
    async with scripts.open_turn(
        replies, *steps, context_tokens=40_000, answer_tokens=1000, turn={"steps": 50}
    ) as turn:
        await turn.run()
        sent = [one.messages for one in turn.server.requests]
    broken = [
        json.dumps(after[: len(before)]) != json.dumps(before)
        for before, after in itertools.pairwise(sent)
    ]
    assert any(broken)
    assert sum(broken) <= 4
