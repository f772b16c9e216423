"""Which cells made a variable, read from code that nobody runs."""

import pytest

from interpreter_bot.sessions import assigned_variables


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("a = b, (c, *d) = f()", {"a", "b", "c", "d"}),
        ("import os.path, numpy as np\nfrom x import y as z", {"os", "np", "z"}),
        ("def f(a):\n    b = 1\nclass C:\n    c = 1", {"f", "C"}),
        ("for i in x:\n    with y as h:\n        g = [j for j in i]", {"i", "h", "g"}),
        ("a.b = c[0] = 1", set()),
        ("if (n := f()):\n    pass", {"n"}),
        ("%time x = 1", set()),
        ("x = 1\0", set()),
        ("(" * 5000, set()),
        (f"x = 1 #{'x' * 100_000}", set()),
    ],
)
def test_names_of_the_top_level_are_found(code, names):
    assert assigned_variables.assigned(code) == names


def test_the_latest_cell_that_made_a_name_counts_and_the_order_is_that_of_running():
    codes = ["c = 3", "a = 2", "b = a = 1", "c = 0"]
    assert assigned_variables.latest(codes, ["a", "b"]) == ("b = a = 1", "a = 2")
    assert assigned_variables.latest(codes, ["d"]) == ()
