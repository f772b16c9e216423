"""Completions of code; finding them must not run a user's code, or change the session."""

import time
import types

import numpy
import pandas
import pytest
from IPython.core import interactiveshell

from interpreter_bot.guest import completions

calls = []


def _create_namespace():
    """Return variables that code has defined."""

    class Hostile:
        """Its methods run code on any use."""

        here = 1

        def _run(self, *_):
            calls.append(self)
            raise SystemExit

        __getattribute__ = __dir__ = __repr__ = __str__ = __eq__ = __bool__ = __call__ = _run
        __hash__ = None
        __class__ = property(_run)
        __dict__ = property(_run)

    class Meta(type):
        """A metaclass whose methods run code on any use of the class."""

        def __getattribute__(cls, name):
            calls.append(name)
            raise SystemExit

        __dir__ = __instancecheck__ = __subclasscheck__ = __call__ = __getattribute__

        def __eq__(cls, _):
            calls.append(cls)
            raise SystemExit

        def __hash__(cls):
            calls.append(cls)
            raise SystemExit

    class Odd(metaclass=Meta):
        """A class with a hostile metaclass."""

        inside = 1

    class Shelf:
        """A shelf."""

        def __init__(self, size, *, deep=True, **more):
            """Build it."""
            self.size = size

        def grow(self, by: int = 2) -> "Shelf": ...

        @property
        def top(self) -> pandas.DataFrame: ...

    class Name(str):
        """A name that runs code when it is looked up."""

        __slots__ = ()

        def __hash__(self):
            calls.append(self)
            return str.__hash__(self)

        def __eq__(self, _):
            calls.append(self)
            raise SystemExit

    hostile = Hostile()
    names = {Name(name): 1 for name in ("size", "top", "grow", "here")}
    crowd = type("Crowd", (), names)()
    crowd.__dict__.update(names)
    hall = types.ModuleType("hall")
    hall.__dict__.update(names)

    def scale(frame, factor=hostile, *rest, name="x") -> pandas.DataFrame:
        """Scale it.

        By a factor.
        """

    space = {
        "df": pandas.DataFrame({"price": [1], "region name": ["a"]}),
        "pd": pandas,
        "np": numpy,
        "hostile": hostile,
        "odd": Odd,
        "shelf": Shelf(3),
        "Shelf": Shelf,
        "scale": scale,
        "settings": {"alpha": {"beta": "x"}, 3: "number", "new\nline": 1},
        "names": ["x"],
        "_private": 1,
        "In": [],
        Name("strange"): 1,
        "lodger": object.__new__(Odd),
        "crowd": crowd,
        "hall": hall,
    }
    calls.clear()
    return space


SPACE = _create_namespace()


@pytest.fixture(scope="module")
def shell():
    made = interactiveshell.InteractiveShell.instance()
    made.user_ns_hidden["In"] = SPACE["In"]
    yield made
    interactiveshell.InteractiveShell.clear_instance()


@pytest.fixture
def complete(shell):
    def look(before, space=SPACE):
        shell.user_ns.clear()
        shell.user_ns.update(space)
        return completions.find_in_child(shell, before)

    return look


@pytest.fixture
def options_of(complete):
    return lambda *told: [option[0] for option in complete(*told)["options"]]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("d", ["df"]),
        ("x = foo(df, df.pri", ["price"]),
        ("df['", ["price", "region name"]),
        ('df["reg', ["region name"]),
        ("df.loc[df.price > df.pric", ["price"]),
        ("pd.read_cs", ["read_csv"]),
        ("np.linalg.nor", ["norm"]),
        ("shelf.", ["grow", "size", "top"]),
        ("shelf.grow(3).gr", ["grow"]),
        ("Shelf(3).gr", ["grow"]),
        ("scale(df).tai", ["tail"]),
        ("settings['", ["alpha", "new\\nline"]),
        ("settings['alpha']['", ["beta"]),
        ("settings['alpha']['beta'].upp", ["upper"]),
        ("names[0].upp", ["upper"]),
        ("names[7].upp", []),
        ("'a b'.upp", ["upper"]),
        ("y = 1\n[1].appen", ["append"]),
        ("import pandas, jso", ["json", "jsonschema", "jsonschema_specifications"]),
        ("from numpy import array_eq", ["array_equal", "array_equiv"]),
        ("hostile.", []),
        ("odd.", []),
        ("odd().ins", []),
        ("hostile['", []),
        ("lodger.", []),
        ("lodger[0].i", []),
        ("crowd.size.", []),
        ("crowd().grow.x", []),
        ("hall.top.", []),
        ("len(hall.here.x", []),
        ("I", []),
        ("_", ["_private"]),
        ("# d", []),
        ("'''d", []),
        ("nothing.here.d", []),
        ("((((" * 500 + "d", ["df"]),
        ("d" * 4000, []),
        ("df." * 1300 + "x", []),
        ("[[[" * 1000 + "df.pric", ["price"]),
        ("'" * 3999, []),
    ],
)
def test_code_goes_on_with_what_there_is(options_of, before, expected):
    assert options_of(before) == expected
    assert calls == []


def test_files_are_offered_where_a_string_may_name_one(options_of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sales.csv").touch()
    (tmp_path / ".hidden").touch()
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.csv").touch()
    assert options_of("pd.read_csv('") == ["more", "sales.csv"]
    assert options_of("open('more/") == ["a.csv"]
    assert options_of("print('go to the') or 'mo") == []


@pytest.mark.parametrize(
    ("before", "label"),
    [
        ("shelf.grow(", "grow(by=2)"),
        ("Shelf(1, ", "Shelf(size, *, deep=True, **more)"),
        ("x = scale(df, max(1, 2), ", "scale(frame, factor=…, *rest, name='x')"),
        ("len(", "len(obj, /)"),
        ("np.zeros(", "zeros(shape, dtype=None, order='C', *, device=None, like=None)"),
        ("names.append(", "append(object, /)"),
        ("hostile(", None),
        ("odd(", None),
        ("lodger(", None),
        ("(", None),
        ("shelf.grow()", None),
    ],
)
def test_what_is_called_says_what_it_takes(complete, before, label):
    signature = complete(before)["signature"]
    assert (signature and signature["label"]) == label
    assert calls == []


def test_parameters_are_offered_and_their_function_says_what_it_is_for(complete, options_of):
    found = complete("scale(df, n")
    assert options_of("scale(df, n")[:2] == ["name=", "names"]
    assert found["signature"]["doc"] == "Scale it.\n\nBy a factor."
    assert "by=" in options_of("shelf.grow(")


def test_a_class_that_never_answers_leaves_the_session_as_it_is(complete):
    class Stubborn:
        def __dir__(self):
            calls.append(self)
            while True:
                try:
                    time.sleep(60)
                except BaseException:
                    continue

    started = time.monotonic()
    assert complete("stubborn.x", {"stubborn": Stubborn()})["options"] == []
    assert time.monotonic() - started < 10
    assert calls == []


def test_many_names_are_cut_and_take_no_long(options_of):
    huge = {f"name_{number}": number for number in range(200_000)}
    started = time.process_time()
    assert len(options_of("name", huge)) == 200
    # 20 ms here.
    assert time.process_time() - started < 5
