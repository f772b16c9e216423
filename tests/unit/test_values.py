import decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interpreter_bot import values

KEYS = st.builds(values.SessionKey, *[st.text(st.characters(codec=None), max_size=20)] * 4)


@given(KEYS)
def test_a_key_comes_back_from_its_text(key):
    assert values.parse_key(values.format_key(key)) == key


@given(KEYS, KEYS)
def test_no_two_keys_have_one_text(one, other):
    assert (values.format_key(one) == values.format_key(other)) == (one == other)


@pytest.mark.parametrize("part", ["a/b", "%2F", "..", " ", "\0", "\ud800"])
def test_whatever_a_part_holds_is_no_path(part):
    address = values.format_key(values.SessionKey("slack", part))
    assert address.count("/") == 3
    assert "\0" not in address


def test_usage_adds_up_and_is_estimated_once_a_part_of_it_is():
    first = values.Usage(10, 5, cached_tokens=4, steps=1, money=decimal.Decimal("0.1"))
    second = values.Usage(1, 2, True, cache_write_tokens=1, cpu_seconds=0.5)
    total = values.Usage(11, 7, True, 4, 1, 1, decimal.Decimal("0.1"), 0.5)
    assert first + second == total == sum((first, second), values.Usage())
    assert total.tokens == 18
