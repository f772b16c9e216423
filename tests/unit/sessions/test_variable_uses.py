"""Which cells have to do with a variable, by their code alone."""

import datetime

import pytest

from interpreter_bot import values
from interpreter_bot.sessions import variable_uses
from interpreter_bot.store import records


def _ran(*codes):
    """Executions of these pieces of code, one a turn, the last one first."""
    return [
        records.Execution(
            id=number,
            turn_id=number,
            code=code,
            hosted_id="",
            last_output_number=0,
            ending=values.Ending.OK,
            seconds=0.0,
            reason="",
            kernel_lost=False,
            started=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        )
        for number, code in reversed(list(enumerate(codes, 1)))
    ]


def _found(*codes, names=("x", "f", "np")):
    uses = variable_uses.find_uses(_ran(*codes), names)
    return {name: [(one.turn_id, one.is_assignment) for one in all_] for name, all_ in uses.items()}


def test_makers_and_readers_are_told_apart_the_latest_first():
    assert _found("x = 1\ny = 2", "print(x)", "x += 1", "y") == {
        "x": [(3, True), (2, False), (1, True)]
    }
    (use,) = variable_uses.find_uses(_ran("\n  \nx = [\n1]"), {"x"})["x"]
    assert use.line == "x = ["


@pytest.mark.parametrize(
    ("code", "uses"),
    [
        ("import numpy as np", {"np": [(1, True)]}),
        ("def f(): return x", {"f": [(1, True)], "x": [(1, False)]}),
        ("def f(x): return x", {"f": [(1, True)]}),
        ("def f():\n  global x\n  x = 1", {"f": [(1, True)], "x": [(1, True)]}),
        ("[x for x in range(3)]", {}),
        ("[x for _ in range(3)]", {"x": [(1, False)]}),
        ("lambda: lambda: x", {"x": [(1, False)]}),
        ("class f:\n  x = 1", {"f": [(1, True)]}),
        ("x['a'] = 1\nx.b = 2", {"x": [(1, False)]}),
        ("if (x := 1): pass", {"x": [(1, True)]}),
    ],
)
def test_names_are_those_that_python_would_take(code, uses):
    assert _found(code) == uses


@pytest.mark.parametrize(
    "code",
    ["x = ", "!ls x", "x = 1\0", "(" * 5000 + "x", "x=" * 45_000, "-" * 99_000 + "x", "x" * 10**6],
)
def test_what_is_not_understood_is_passed_over(code):
    assert _found("x = 1", code) == {"x": [(1, True)]}


def test_so_much_code_is_looked_at_and_so_many_cells_are_named():
    assert len(_found(*["x = 1"] * 30)["x"]) == 20
    long = "y = 2\n" + "#" * 99_000
    assert _found("x = 1", *[long] * 2) == {"x": [(1, True)]}
    assert _found("x = 1", *[long] * 4) == {}


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
    candidates = {*"abcdfghijnxyzC", "os", "np", "numpy", "path"}
    found = {name for name in candidates if variable_uses.find_latest_assignments([code], [name])}
    assert found == names


def test_the_latest_cell_that_made_a_name_counts_and_the_order_is_that_of_running():
    codes = ["c = 3", "a = 2", "b = a = 1", "c = 0"]
    assert variable_uses.find_latest_assignments(codes, ["a", "b"]) == ("b = a = 1", "a = 2")
    assert variable_uses.find_latest_assignments(codes, ["d"]) == ()


CELLS = (
    "%pip install lifelines",
    "import pandas as pd\nraw = pd.read_csv('a.csv')",
    "raw['x'] = 1",
    "print(raw.x)",
    "other = pd.DataFrame()",
    "df = raw.dropna()",
    "df.drop(columns='y', inplace=True)",
    "open('a.txt', 'w').write('unrelated')",
    "df",
    "import matplotlib.pyplot as plt\nplt.plot(other)",
    "def shown():\n    return df",
    "plt.plot(shown())",
)


def test_the_cells_that_an_answer_needs_are_those_that_give_or_change_what_it_reads():
    needed = variable_uses.find_needed_cells(CELLS[::-1], 1)
    assert [cell for cell in CELLS if cell not in needed] == [
        "print(raw.x)",
        "open('a.txt', 'w').write('unrelated')",
        "df",
    ]
    assert [*needed] == [cell for cell in CELLS if cell in needed]


def test_a_cell_that_cannot_be_read_is_needed_only_as_the_latest():
    assert variable_uses.find_needed_cells(("!ls", "x = 1", "y = (", "x = 2"), 1) == ("!ls",)
    assert variable_uses.find_needed_cells(("print(x)", "y = (", "x = 2"), 1) == (
        "x = 2",
        "print(x)",
    )
