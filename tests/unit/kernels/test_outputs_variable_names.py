"""What a kernel says of its variables, which may be anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interpreter_bot.kernels import outputs

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def said(names, count):
    return outputs.read_names({"variables": {"names": names, "count": count}})


def test_names_are_read_in_their_order_and_the_rest_is_counted():
    assert said(["df", "größe", "数据", "x"], 4) == outputs.VariableNames(
        ("df", "größe", "数据", "x")
    )
    assert said(["b", "a"], 7) == outputs.VariableNames(("b", "a"), 5)


@pytest.mark.parametrize(
    "name",
    [
        *("", "a b", "1a", "a\n", "x\u202ey", "`x`", "x" * 41, "<b>", 3, None, ["x"]),
        # An Arabic letter turns what stands beside it around; combining marks pile up.
        *("\u0645", "z\u0335\u0337\u0338"),
    ],
)
def test_what_could_do_harm_is_counted_and_not_shown(name):
    assert said([name, "fine"], 2) == outputs.VariableNames(("fine",), 1)


@pytest.mark.parametrize(
    "content",
    [{}, {"variables": 3}, {"variables": {}}, {"variables": {"names": "ab", "count": 1}},
     {"variables": {"names": [], "count": True}}, {"variables": {"names": [], "count": 1.5}}],
)  # fmt: skip
def test_what_makes_no_sense_says_nothing(content):
    assert outputs.read_names(content) is None


def test_many_are_few():
    space = said([f"v{number}" for number in range(5000)], 10**30)
    assert len(space.names) == 30
    assert space.unlisted_count == 970
    assert said(["a"] * 9, -5) == outputs.VariableNames(("a",))


@given(_JSON)
def test_whatever_is_said_is_read_or_not(content):
    space = outputs.read_names({"variables": content})
    assert space is None or (len(space.names) <= 30 and 0 <= space.unlisted_count <= 1000)
