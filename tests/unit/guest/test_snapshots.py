"""Variables that are saved by one namespace and come back in another.

What must come back: numbers, text and containers with what they share; arrays and their views,
frames, columns and tables; models and figures; functions with closures, classes and their
instances, modules; locks, caches, databases, files that are read; the state of the process.
Everything else is named with its reason and lost alone: what refuses, hangs, ends Python, forks,
starts processes, lies about itself or forges reports, when it is written or when it is read.
Never: a hang, a session that is disturbed, a `__del__` of a copy, a good generation replaced by an
empty one.
"""

import contextlib
import errno
import gc
import importlib.util
import json
import linecache
import os
import pathlib
import resource
import signal
import sqlite3
import sys
import time
import types

import numpy
import pandas
import pytest

from interpreter_bot.guest import snapshot_children, snapshot_files, snapshot_readers, snapshots

CELL = "<cell 1>"
# A variable that is slow once: its first pickling lasts until a moment after the session's start.
# The time that a busy machine takes for everything else is part of it, instead of added to it.
UNTIL = """
import time
start = time.monotonic()
class Until:
    def __init__(self, seconds): self.seconds = seconds
    def __reduce__(self):
        time.sleep(max(start + self.seconds - time.monotonic(), 0))
        return list, ()
"""


class Session:
    """A namespace that code has run in, and the directory of its snapshots."""

    def __init__(self, directory, code):
        self.directory = str(directory)
        self.names = {"__name__": "__main__"}
        self.others = []
        self.run(code)

    def run(self, code):
        linecache.cache[CELL] = (len(code), None, code.splitlines(keepends=True), CELL)
        exec(compile(code, CELL, "exec"), self.names)

    def save(self, number=1, seconds=20.0, max_bytes=1 << 30):
        """Save, and return the manifest; if nothing was saved, raise what it says."""
        names = [name for name in self.names if not name.startswith("__")]
        child = snapshots.start_saving(
            self.names, names, self.directory, number, seconds=seconds, max_bytes=max_bytes
        )
        os.waitpid(child, 0)
        return self.manifest(number)

    def path(self, name, number=1):
        return pathlib.Path(self.directory, str(number), name)

    def manifest(self, number=1):
        manifest = json.loads(self.path("manifest.json", number).read_text())
        if manifest["problem"]:
            raise OSError(manifest["problem"])
        return manifest

    def restored(self, number=1):
        """Return what another process has of it, and what failed there."""
        names = {"__name__": "__main__"}
        self.others.append(names)
        self.failed = snapshot_readers.restore(names, self.directory, number)
        return names


@pytest.fixture
def session(tmp_path):
    begun = []
    yield lambda code: begun.append(Session(tmp_path, code)) or begun[-1]
    # Python 3.13 warns of databases that nobody closes.
    for names in [names for one in begun for names in (one.names, *one.others)]:
        for value in names.values():
            if type(value) is sqlite3.Connection:
                value.close()


def test_what_variables_share_stays_shared(session):
    saved = session("""
import pandas
frame = pandas.DataFrame({"a": range(3)})
config = {"frame": frame}
models = {"x": [1]}
best = models["x"]
""")
    manifest = saved.save()
    assert set(manifest["kept"]) == {"pandas", "frame", "config", "models", "best"}
    assert manifest["kept_count"] == 5
    names = saved.restored()
    assert names["config"]["frame"] is names["frame"]
    assert names["models"]["x"] is names["best"]
    assert names["pandas"] is pandas


def test_what_functions_and_objects_share_stays_shared(session):
    saved = session("""
def counter():
    counts = [0]
    return lambda: counts.append(1), lambda: counts
add, current = counter()
class Cache:
    known = {}
    def look(self): return super().__hash__() and self.known
cache, known = Cache(), Cache.known
long = "x" * 1_000_000
texts = [long]
""")
    assert saved.save()["lost"] == {}
    names = saved.restored()
    names["add"]()
    assert names["current"]() == [0, 1]
    assert names["cache"].look() is names["known"]
    assert type(names["cache"]) is names["Cache"]
    assert names["texts"][0] is names["long"]


def test_classes_and_functions_of_every_kind_come_back(session):
    saved = session("""
import abc, dataclasses, enum, functools, typing
T = typing.TypeVar("T")
class Box(typing.Generic[T]):
    def __init__(self, x: T): self.x = x
@dataclasses.dataclass(order=True)
class Item:
    n: int
    box: Box = dataclasses.field(default_factory=lambda: Box(1))
class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...
    @functools.cached_property
    def cached(self): return 5
    @property
    def double(self): return 2 * self.area()
class Square(Shape):
    def __init__(self, side): super().__init__(); self.side = side
    def area(self): return self.side ** 2
    def __init_subclass__(cls): super().__init_subclass__(); cls.tag = cls.__name__
class Sub(Square): pass
class Color(enum.IntEnum): RED = 1
class Node:
    __slots__ = ("next", "value")
class Counted:
    instances = []
    def __init__(self): Counted.instances.append(self)
class Described:
    def __set_name__(self, owner, name): self.name = name
    def __get__(self, instance, owner): return self.name
class Holder: field = Described()
items, squares, holder = [Item(3), Item(1)], {Color.RED: Sub(3)}, Holder()
first, second = Counted(), Counted()
ring = Node(); ring.next = Node(); ring.next.next = ring
def factorial(n): return 1 if n < 2 else n * factorial(n - 1)
remembered = functools.lru_cache(factorial)
def counting(function):
    @functools.wraps(function)
    def inner(*arguments): inner.calls += 1; return function(*arguments)
    inner.calls = 0
    return inner
@counting
def add(a, b): return a + b
add(1, 2)
def annotated(x: Item, *, y: "Sub" = None) -> list[Item]: return [x]
elsewhere = {"base": 5}
exec("def other(x): return x + base", elsewhere)
other, held = elsewhere["other"], {"function": annotated, "items": items}
""")
    manifest = saved.save()
    assert (manifest["lost"], manifest["partly"]) == ({}, {})
    names = saved.restored()
    assert saved.failed == {}
    assert names["items"][0] > names["items"][1]
    assert type(names["items"][0].box) is names["Box"]
    square = names["squares"][names["Color"].RED]
    assert (square.area(), square.double, square.cached, square.tag) == (9, 18, 5, "Sub")
    assert isinstance(square, names["Shape"])
    assert names["Counted"].instances == [names["first"], names["second"]]
    assert (names["holder"].field, names["ring"].next.next) == ("field", names["ring"])
    assert names["factorial"](5) == names["remembered"](5) == 120
    assert (names["add"](2, 3), names["add"].calls, names["other"](1)) == (5, 2, 6)
    assert names["held"] == {"function": names["annotated"], "items": names["items"]}
    assert names["annotated"].__annotations__["x"] is names["Item"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="no such syntax")
def test_functions_and_classes_with_type_parameters_come_back(session):
    saved = session("""
def same[X](x: X) -> X: return x
class Box[Y]:
    def __init__(self, y: Y): self.y = y
box = Box(3)
""")
    assert saved.save()["lost"] == {}
    names = saved.restored()
    assert (names["same"](4), names["box"].y) == (4, 3)
    assert names["same"].__type_params__[0].__name__ == "X"


def test_objects_of_common_libraries_come_back(session):
    for library in ("matplotlib", "plotly", "polars", "pyarrow", "sklearn"):
        pytest.importorskip(library)
    saved = session("""
import numpy, pandas, plotly.express, polars, pyarrow
from matplotlib import figure as figures
from sklearn import linear_model, pipeline, preprocessing
figure = figures.Figure()
figure.subplots().plot([1, 2])
chart = plotly.express.line(x=[1, 2], y=[3, 4])
frame = pandas.DataFrame({"a": pandas.Categorical(["x", "y"])})
other, lazy = polars.DataFrame({"a": [1, 2]}), polars.DataFrame({"a": [1, 2]}).lazy()
table, numbers = pyarrow.table({"a": [1, 2]}), numpy.random.default_rng(3)
doubled = preprocessing.FunctionTransformer(lambda x: numpy.asarray(x) * 2)
model = pipeline.make_pipeline(doubled, linear_model.LinearRegression())
model.fit([[1], [2]], [1, 2])
expected = numpy.random.default_rng(3).random()
""")
    manifest = saved.save()
    assert (manifest["lost"], manifest["partly"]) == ({}, {})
    names = saved.restored()
    assert saved.failed == {}
    assert len(names["figure"].axes[0].lines) == len(names["chart"].data) == 1
    assert list(names["frame"]["a"].cat.categories) == ["x", "y"]
    assert names["lazy"].collect().equals(names["other"])
    assert names["table"].to_pydict() == {"a": [1, 2]}
    assert names["numbers"].random() == names["expected"]
    assert names["model"].predict([[3]])[0] == pytest.approx(3)


def test_variables_of_an_outer_function_stay_shared(session):
    saved = session("""
def counter():
    count = 0
    def add():
        nonlocal count
        count += 1
    def itself(n): return n and itself(n - 1)
    def later(): return unset
    if count: unset = 1
    return add, lambda: count, itself, later
add, current, itself, later = counter()
add.note, add.__kwdefaults__ = [1], None
""")
    add = saved.names["add"]
    manifest = saved.save()
    assert manifest["lost"] == {}
    names = saved.restored()
    names["add"]()
    assert (names["current"](), saved.names["current"](), names["itself"](3)) == (1, 0, 0)
    assert (names["add"].note, names["add"].__qualname__) == ([1], add.__qualname__)
    with pytest.raises(NameError):
        names["later"]()


@pytest.mark.slow
def test_what_shares_with_a_great_many_objects_stays_shared(session):
    saved = session("""
many = [[number] for number in range(400_000)]
first, other = many[0], [1]
""")
    assert saved.save()["lost"] == {}
    names = saved.restored()
    assert names["many"][0] is names["first"]
    assert (len(names["many"]), names["other"]) == (400_000, [1])


def test_frames_without_common_objects_are_kept_apart(session):
    saved = session("""
import datetime, pandas
one = pandas.DataFrame({"a": ["x", "y"], "b": pandas.date_range("2026", periods=2, tz="UTC")})
other = pandas.DataFrame({"a": ["x", "y"], "b": pandas.date_range("2026", periods=2, tz="UTC")})
moment, moments = datetime.datetime.now(datetime.UTC), [datetime.datetime.now(datetime.UTC)]
""")
    saved.save()
    records = snapshot_files.read_index(saved.directory, 1).records
    assert {"one"} in [{*record.names} for record in records]
    assert {"moment"} in [{*record.names} for record in records]


def test_functions_use_the_variables_of_the_new_session(session):
    saved = session("""
limit = 50
def clean(values): return [one for one in values if one > limit]
def outer(step):
    def inner(x): return x + step + limit
    return inner
add = outer(5)
class Point:
    def __init__(self, x): self.x = x
    def far(self): return self.x > limit
point = Point(60)
""")
    saved.save()
    names = saved.restored()
    names["limit"] = 2
    assert names["clean"]([1, 2, 3]) == [3]
    assert names["add"](1) == 8
    assert names["point"].far()
    assert isinstance(names["point"], names["Point"])


def test_arrays_come_back_at_once_and_views_still_share(session):
    saved = session("""
import numpy
big = numpy.arange(2_000_000.0)
half, head = big[::2], big[:10]
""")
    manifest = saved.save()
    [size] = manifest["blobs"].values()
    assert size == 16_000_000
    names = saved.restored()
    names["half"][0] = 7
    assert names["big"][0] == names["head"][0] == 7
    again = saved.restored()
    assert again["big"][0] == 0, "the file itself must stay as it was"


def test_arrays_and_frames_that_were_equal_do_not_become_one(session):
    saved = session("""
import numpy, pandas
one, other = numpy.zeros(1_000_000), numpy.zeros(1_000_000)
frame = pandas.DataFrame({"a": numpy.arange(1_000_000)})
more = frame.assign(b=1)
""")
    saved.save()
    names = saved.restored()
    names["one"][0] = 7
    names["more"].loc[0, "a"] = 7
    assert names["other"][0] == 0
    assert names["frame"].loc[0, "a"] == 0


def test_buffers_that_did_not_change_are_not_written_again(session):
    saved = session("import numpy\nbig = numpy.ones(1_000_000)\nother = numpy.zeros(1_000_000)")
    first = saved.save(1)
    blobs = os.path.join(saved.directory, "blobs")
    before = {name: os.stat(os.path.join(blobs, name)).st_mtime_ns for name in os.listdir(blobs)}
    saved.run("other[0] = 1")
    second = saved.save(2)
    assert len(first["blobs"]) == len(second["blobs"]) == 2
    [same] = first["blobs"].keys() & second["blobs"].keys()
    assert os.stat(os.path.join(blobs, same)).st_mtime_ns == before[same]
    assert saved.restored(1)["other"][0] == 0
    assert saved.restored(2)["other"][0] == 1


def test_what_cannot_be_kept_is_named_and_takes_nothing_with_it(session):
    saved = session("""
import threading, numpy, os
before = [1]
generator = (i for i in range(3))
thread = threading.Thread()
written = open(os.devnull, "w")
deep = []
one = deep
for _ in range(100_000): one.append([]); one = one[0]
del one, _
class Refuses:
    def __reduce_ex__(self, n): raise ValueError("mine")
class Lies:
    def __reduce__(self): return (int, ("no",))
class Breaks:
    def __setstate__(self, state): raise OSError("mine")
class Ends:
    def __reduce__(self): os._exit(1)
class EndsLater:
    def __setstate__(self, state): os._exit(1)
refuses, lies, ends = Refuses(), Lies(), Ends()
breaks, ends_later = Breaks(), EndsLater()
breaks.a = ends_later.a = 1
function = numpy.frompyfunc(lambda x: x, 1, 1)
after = {"list": before}
""")
    lost = saved.save()["lost"]
    saved.names["written"].close()
    words = {
        **{"generator": "a generator", "thread": "a thread", "written": "not opened for reading"},
        **{"deep": "too deeply", "refuses": "mine", "lies": "invalid literal", "breaks": "mine"},
        **{"ends": "saving it ended", "ends_later": "reading it back ended", "function": "ufunc"},
    }
    assert {name: why for name, why in lost.items() if words.pop(name, "?") not in why} == {}
    assert not words
    assert all(len(why) < 400 for why in lost.values())
    names = saved.restored()
    assert not lost.keys() & names.keys()
    assert names["after"]["list"] is names["before"]
    assert not saved.failed


def test_a_file_that_is_read_and_written_is_lost_and_left_as_it_is(session, tmp_path):
    saved = session(f"file = open({str(tmp_path / 'file')!r}, 'w+')\nfile.write('once')")
    assert "reading only" in saved.save()["lost"]["file"]
    saved.names["file"].close()
    assert (tmp_path / "file").read_text() == "once"


def test_what_is_garbage_is_ended_by_the_kernel_alone(session, tmp_path):
    saved = session(f"""
import gc, os
gc.disable()
class Ends:
    def __del__(self):
        with open({str(tmp_path / "ended")!r}, "a") as file: file.write("once ")
one = Ends()
one.itself = one
del one
class Collects:
    def __reduce__(self): return list, ([[] for _ in range(100_000)],)
collects = Collects()
gc.enable()
""")
    saved.save()
    gc.collect()
    assert (tmp_path / "ended").read_text() == "once "


def test_nothing_that_is_read_to_check_it_is_ended(session, tmp_path):
    paths = [tmp_path / name for name in "abcd"]
    for path in paths:
        path.touch()
    saved = session(f"""
import os
class Temporary:
    def __init__(self, path): self.path = path
    def __del__(self):
        if os.path.exists(self.path): os.unlink(self.path)
class Bad:
    def __reduce__(self): return int, ("x",)
class Breaks(Temporary):
    def __setstate__(self, state): self.__dict__.update(state); 1 / 0
class Passes:
    def __init__(self, given): self.given = given
    def __reduce__(self): return id, (self.given,)
a, b, c, d = {[*map(str, paths)]}
whole, half, broken = Temporary(a), [Temporary(b), Bad()], [Breaks(c)]
passing = Passes(Temporary(d))
""")
    assert set(saved.save()["lost"]) == {"half", "broken"}
    assert all(path.exists() for path in paths)


def test_a_process_is_said_to_be_lost(session):
    saved = session("""
import multiprocessing, subprocess
begun = subprocess.Popen(["true"])
begun.wait()
planned = multiprocessing.Process(target=print)
""")
    assert saved.save()["lost"] == {"begun": "a process", "planned": "a process"}


def test_a_database_gives_rows_as_before_and_changes_are_committed_or_said_to_be_lost(
    session, tmp_path
):
    saved = session(f"""
import sqlite3
paths = ":memory:", {str(tmp_path / "file")!r}, {str(tmp_path / "open")!r}
memory, file, open_ = map(sqlite3.connect, paths)
for one in (memory, file, open_):
    one.execute("create table t(a)")
    one.execute("insert into t values (42)")
    one.row_factory = lambda cursor, row: {{cursor.description[0][0]: row[0]}}
memory.commit(), file.commit()
del one
""")
    manifest = saved.save()
    assert list(manifest["lost"]) == ["open_"]
    assert "not committed" in manifest["lost"]["open_"]
    names = saved.restored()
    for name in ("memory", "file"):
        assert names[name].execute("select a from t").fetchall() == [{"a": 42}]


def test_a_part_that_cannot_be_kept_says_so_when_it_is_used(session):
    saved = session("""
holder = {'numbers': [1, 2], 'generator': (i for i in range(3)), 'more': (i for i in range(3))}
""")
    manifest = saved.save()
    assert manifest["partly"] == {"holder": "a generator"}
    holder = saved.restored()["holder"]
    assert holder["numbers"] == [1, 2]
    with pytest.raises(RuntimeError, match="a generator was not kept"):
        next(iter(holder["generator"]))
    assert "not kept" in repr(holder["generator"])


def test_what_is_lost_is_told_of_each_variable_that_has_it(session):
    saved = session("""
import threading
shared = [1]
thread = threading.Thread()
same = thread
threads = {"one": thread, "shared": shared}
""")
    manifest = saved.save()
    assert manifest["lost"] == {"thread": "a thread", "same": "a thread"}
    assert manifest["partly"] == {"threads": "a thread"}
    names = saved.restored()
    assert not {"thread", "same"} & names.keys()
    assert names["threads"]["shared"] is names["shared"]


@pytest.mark.slow
def test_what_is_lost_in_many_variables_takes_no_longer_the_more_there_are(session):
    saved = session("""
for i in range(50):
    globals()[f"v{i}"] = [{"a": j, "b": f"{i}_{j}"} for j in range(3000)] + [(x for x in ())] * 3
""")
    manifest = saved.save(seconds=8.0)
    assert (manifest["lost"], manifest["kept_count"]) == ({}, 51)
    assert manifest["partly"] == {f"v{i}": "a generator" for i in range(50)}


def test_the_disk_has_all_of_a_generation_before_the_manifest(session, tmp_path, monkeypatch):
    saved = session("import numpy; large, small = numpy.ones(1_000_000), [1]")
    synced, fsync = tmp_path / "synced", os.fsync

    def note(file):
        fsync(file)
        with synced.open("a") as log:
            log.write(os.readlink(f"/proc/self/fd/{file}") + "\n")

    monkeypatch.setattr(os, "fsync", note)
    # Of the second, the large buffer is there already: perhaps of one that never counted.
    for number in (1, 2):
        synced.write_text("")
        saved.save(number)
        own = f"{saved.directory}/{number}"
        before, manifest, _ = synced.read_text().partition(f"{own}/manifest.json.new\n")
        assert manifest
        (blob,) = os.listdir(f"{saved.directory}/blobs")
        wanted = {f"{own}/variables", f"{own}/index.json.new", saved.directory}
        wanted |= {f"{saved.directory}/blobs"}
        # One that is there already was waited for before it got its name.
        wanted |= {f"{saved.directory}/blobs/{blob}.new"} if number == 1 else set()
        assert wanted <= set(before.splitlines())


def test_what_is_small_is_saved_before_what_is_large(session):
    saved = session("""
import numpy, pandas, polars, pyarrow
a_frame = pandas.DataFrame({"x": numpy.zeros(100_000)})
b_column = pyarrow.chunked_array([numpy.zeros(90_000)])
c_array = numpy.zeros(80_000)
c_frame = polars.DataFrame({"x": numpy.zeros(20_000)})
d_series = pandas.Series(numpy.zeros(1000))
e_column = pyarrow.array(numpy.zeros(900))
f_list = [0] * 10
""")
    manifest = saved.save(max_bytes=100_000)
    assert set(manifest["lost"]) == {"a_frame", "b_column", "c_array", "c_frame"}
    assert list(manifest["kept"])[-3:] == ["f_list", "e_column", "d_series"]


def test_what_cannot_be_pickled_at_the_limit_of_recursion_is_kept_elsewhere(session):
    saved = session("""
class Node:
    def __init__(self, value, next): self.value, self.next = value, next
def chain(further):
    nodes = [None]
    for _ in range(1000): nodes.append(Node(lambda: 1, nodes[-1]))
    head = nodes[-1]
    for _ in range(further): head = [head]
    return head, [0] * 10 + [one.value for one in nodes[1:]]
(deep0, calls0), (deep1, calls1), (deep2, calls2), (deep3, calls3) = map(chain, range(4))
holder = [0] * 2000 + [(i for i in range(3))]
""")
    manifest = saved.save()
    # How deep it may be depends on the Python.
    assert set(manifest["lost"]) in (set(), {"deep0", "deep1", "deep2", "deep3"})
    assert manifest["partly"] == {"holder": "a generator"}
    assert saved.restored()["calls3"][-1]() == 1


def test_what_is_lost_is_said_of_all_that_share_what_holds_it(session):
    saved = session("""
import collections, numpy, pandas
generator = (i for i in [1])
class Model:
    def __init__(self, state): self.state = state
held = {"g": generator}
first = [held]
second = {"deep": [(held,)]}
model = Model(Model(second))
def closed(): return held
def by_name(): return first
def enclosed(what=held): return (lambda: what)
inner = enclosed()
table = pandas.DataFrame({"c": [held, 1]})
array = numpy.array([None, first], dtype=object)
circle = [held]; circle.append(circle)
beside = [1, {"g": 2}, "text"]
frame = pandas.DataFrame({"c": [1.5]})
counted = collections.Counter("abc")
del held, generator
""")
    manifest = saved.save()
    names = {"first", "second", "model", "enclosed", "inner", "table", "array", "circle"}
    assert manifest["partly"] == dict.fromkeys(names, "a generator")
    assert manifest["lost"] == {}
    restored = saved.restored()
    with pytest.raises(RuntimeError, match="a generator was not kept"):
        restored["model"].state.state["deep"][0][0]["g"]()


def test_one_that_lacks_memory_once_is_kept_elsewhere(session):
    saved = session("""
class Large:
    calls = 0
    def __reduce__(self):
        Large.calls += 1
        if Large.calls == 1: raise MemoryError
        return Large, ()
first = [Large()]
second = [0] * 20 + first
""")
    manifest = saved.save()
    assert (manifest["lost"], list(manifest["partly"])) == ({}, ["first"])
    assert type(saved.restored()["second"][-1]).__name__ == "Large"


@pytest.mark.parametrize("asked", ["__class__", "__cause__"])
def test_an_error_that_says_odd_things_of_itself_costs_only_what_raises_it(session, asked):
    saved = session(f"""
Odd = type("Odd", (Exception,), {{"{asked}": property(lambda self: 1 / 0)}})
class Raises:
    def __reduce__(self): raise Odd
class RaisesLater:
    def __reduce__(self): return list, (), None, map(fail, [1])
def fail(_): raise Odd
holder = [1, Raises()]
a, b, c, d, e, f, g, h, i, j, k, l = [RaisesLater() for _ in range(12)]
large = [1] * 1000
""")
    manifest = saved.save()
    assert set(manifest["lost"]) - {"Odd"} == set("abcdefghijkl")
    assert manifest["lost"]["l"].startswith("Odd")
    assert manifest["partly"] == {"holder": "an object of type __main__.Raises"}
    assert saved.restored()["large"] == [1] * 1000


def test_what_an_earlier_python_lost_is_told_again(session):
    saved = session("holder = {'numbers': [1, 2], 'generator': (i for i in range(3))}")
    saved.save()
    saved.names = saved.restored()
    saved.run("part = holder['generator']")
    manifest = saved.save(2)
    assert manifest["lost"] == {"part": "a generator"}
    assert manifest["partly"] == {"holder": "a generator"}
    assert repr(saved.restored(2)["holder"]["generator"]) == "<not kept: a generator>"


def test_one_that_hangs_costs_only_itself(session):
    saved = session("""
import time
class Slow:
    def __reduce__(self):
        while True: time.sleep(1)
small = 1
x = Slow()
""")
    manifest = saved.save(seconds=2.0)
    assert manifest["lost"] == {"x": "there was no time left for it"}
    assert saved.restored()["small"] == 1


def test_one_that_hangs_when_it_is_read_costs_only_itself(session):
    saved = session("""
import time
class Slow:
    def __reduce__(self): return time.sleep, (60,)
small = 1
x = Slow()
behind = [1] * 100
""")
    manifest = saved.save(seconds=1.0)
    assert manifest["lost"] == {"x": "there was no time left for it"}
    names = saved.restored()
    assert (names["small"], names["behind"]) == (1, [1] * 100)


def test_what_was_read_once_is_kept_though_a_later_attempt_cannot_read_it(session, tmp_path):
    saved = session(f"""
import os
def read(path="{tmp_path}/reads"):
    with open(path, "a+") as file:
        file.write("x")
        if file.tell() == 2: raise OSError("the second reading")
    return 1
class Once:
    def __reduce__(self): return read, ()
class Deadly:
    def __reduce__(self): return os._exit, (1,)
first = Once()
second = [1] * 100 + [Deadly()]
third = [2] * 200
""")
    manifest = saved.save()
    assert set(manifest["lost"]) == {"second"}
    assert {"first", "third"} <= set(manifest["kept"])
    assert (tmp_path / "reads").read_text() == "xx"


@pytest.mark.slow
def test_what_shares_a_part_with_one_that_is_lost_at_last_is_kept(session):
    saved = session("""
import numpy, time
class Slow:
    def __reduce__(self): return time.sleep, (60,)
class Model: pass
class Trainer: pass
trainer = Trainer()
trainer.lazy, trainer.model, trainer.weights = Slow(), Model(), numpy.ones(1_000_000)
best = trainer.model
models = [best] * 10
weights = [0] * 100 + [trainer.weights]
whole = [Model()] * 1000
""")
    manifest = saved.save(seconds=4.0)
    assert manifest["lost"] == {"trainer": "there was no time left for it"}
    assert not manifest["partly"]
    names = saved.restored()
    assert not saved.failed
    assert names["models"][0] is names["best"]
    assert names["weights"][-1].sum() == 1_000_000
    assert isinstance(names["whole"][0], names["Model"])


@pytest.mark.slow
def test_what_many_share_that_cannot_be_read_is_kept_in_others(session):
    saved = session("""
class Bad:
    def __reduce__(self): return int, ("x",)
class Point: pass
shared = Point()
a, b, c, d, e, f, g, h, i, j, k, l = [[Bad(), shared] for _ in range(12)]
good = [0] * 20 + [shared]
only = [0] * 30
del shared
""")
    manifest = saved.save()
    assert sorted(manifest["lost"]) == list("abcdefghijkl")
    assert not manifest["partly"]
    names = saved.restored()
    assert not saved.failed
    assert isinstance(names["good"][-1], names["Point"])
    assert names["only"] == [0] * 30


def test_a_large_buffer_of_one_that_is_lost_is_not_missed(session):
    saved = session("""
import numpy, time
class Slow:
    def __reduce__(self): return time.sleep, (60,)
slow = [Slow(), numpy.ones(1_000_000)]
behind = [1] * 100
""")
    blobs = saved.save(seconds=1.0)["blobs"]
    for name in set(os.listdir(os.path.join(saved.directory, "blobs"))) - blobs.keys():
        os.unlink(os.path.join(saved.directory, "blobs", name))
    names = saved.restored()
    assert "slow" not in names
    assert names["behind"] == [1] * 100
    assert not saved.failed


@pytest.mark.slow
def test_what_is_behind_one_that_hangs_while_it_is_saved_is_saved(session):
    saved = session("""
import time
class Slow:
    def __reduce__(self): time.sleep(60)
x = Slow()
behind = [1] * 100
y = [1] * 200 + [Slow()]
last = [1] * 300
""")
    manifest = saved.save(seconds=10.0)
    assert manifest["lost"] == dict.fromkeys(["x", "y"], "there was no time left for it")
    assert saved.restored()["last"] == [1] * 300


@pytest.mark.slow
def test_the_last_one_has_all_the_time_that_is_left(session):
    saved = session(f"{UNTIL}\nx = Until(6)")
    assert saved.save(seconds=10.0)["lost"] == {}


@pytest.mark.parametrize("reduced", ["return int, ('x',)", "os._exit(1)"])
def test_many_that_fail_do_not_cost_all_others(session, reduced):
    saved = session(f"""
import os
class Bad:
    def __reduce__(self): {reduced}
small = 1
a, b, c, d, e, f, g, h, i, j, k, l = [Bad() for _ in range(12)]
large = [1] * 1000
""")
    manifest = saved.save()
    assert sorted(manifest["lost"]) == list("abcdefghijkl")
    names = saved.restored()
    assert (names["small"], names["large"]) == (1, [1] * 1000)


@pytest.mark.slow
def test_what_waits_behind_too_many_that_end_python_says_so(session):
    saved = session(f"""
import os
class Bad:
    def __reduce__(self): os._exit(1)
small, behind = 1, [1] * 1000
bad = {{f"bad_{{n}}": [Bad()] for n in range({snapshots.MAX_ATTEMPTS})}}
globals().update(bad)
del bad
""")
    lost = saved.save()["lost"]
    assert lost.pop("behind") == "it was not tried, as too many others failed"
    assert set(lost.values()) == {"saving it ended Python"}
    assert len(lost) == snapshots.MAX_ATTEMPTS


def test_what_waits_behind_one_that_ends_python_late_is_kept(session):
    saved = session(f"""
import os
{UNTIL}
class Ends:
    def __reduce__(self): os._exit(1)
slow, slower, bad, behind = [Until(2.4)], [Until(4.8)], [0] * 50 + [Ends()], [1] * 1000
""")
    assert saved.save(seconds=10.0)["lost"] == {"bad": "saving it ended Python"}


@pytest.mark.first_case
@pytest.mark.parametrize(
    "odd",
    [
        "class Odd:\n    __class__ = property(lambda self: 1 / 0)\nodd = Odd()",
        "Odd = type('Odd', (), {'__module__': None})\nodd = Odd()",
        "import os\nclass Words:\n    def __str__(self): os._exit(1)\n"
        "Odd = type('Odd', (), {'__module__': Words()})\nodd = Odd()",
        "class Meta(type):\n    def __getattr__(cls, name): 1 / 0\nclass odd(metaclass=Meta): pass",
        "import types\nodd = types.ModuleType('odd')\ndel odd.__name__",
    ],
)
def test_what_says_odd_things_of_itself_costs_no_other_variable(session, odd):
    saved = session(f"{odd}\nsmall = 1")
    manifest = saved.save()
    assert "small" in manifest["kept"]
    assert set(manifest["lost"]) <= {"odd", "Odd"}


def test_one_that_forks_is_saved_once(session):
    saved = session("""
import os
class Forks:
    def __reduce__(self):
        os.fork()
        return os.fork, ()
forks, small, large = Forks(), 1, [1] * 1000
""")
    manifest = saved.save()
    assert {"forks", "small", "large"} <= set(manifest["kept"])
    records = snapshot_files.read_index(saved.directory, 1).records
    assert [name for record in records for name in record.names].count("forks") == 1


@pytest.mark.first_case
@pytest.mark.parametrize("forged", [b'{"ending": {"is_done": true}}\n', b"[]\n", b"{\n"])
def test_one_that_writes_where_it_is_told_what_is_saved_costs_only_itself(session, forged):
    saved = session(f"""
import os, stat
def pipes():
    for one in os.listdir("/proc/self/fd"):
        try:
            found = os.fstat(int(one))
        except OSError:
            continue
        if stat.S_ISFIFO(found.st_mode): yield found.st_ino, int(one)
# Not by their numbers, which others have once what is open here is closed.
before = dict(pipes()).keys()
class Odd:
    def __reduce__(self):
        for inode, one in pipes():
            try:
                if inode not in before: os.write(one, {forged!r})
            except OSError: pass
        return int, ()
odd, small, large = Odd(), 1, [1] * 1000
""")
    manifest = saved.save()
    assert list(manifest["lost"]) == ["odd"]
    assert saved.restored()["large"] == [1] * 1000


@pytest.mark.first_case
@pytest.mark.parametrize(
    "asked",
    [
        "lambda cls, name: end(name == '__module__') or type.__getattribute__(cls, name)",
        "type.__getattribute__\nMeta.__module__ = property(lambda cls: end(True) or 'm')",
    ],
)
def test_a_metaclass_that_ends_python_costs_no_variable_of_another_class(session, asked):
    saved = session(f"""
import os
home = os.getpid()
def end(is_asked): return is_asked and os.getpid() != home and os._exit(1)
class Meta(type): pass
Meta.__getattribute__ = {asked}
class Odd(metaclass=Meta): pass
odd = Odd()
small = 1
""")
    manifest = saved.save()
    assert set(manifest["lost"]) == {"Odd", "odd"}
    assert {"os", "home", "end", "Meta", "small"} == set(manifest["kept"])


def test_where_the_system_refuses_files_it_is_said_why_and_nothing_earlier_is_replaced(
    session, monkeypatch
):
    def refuse(*_):
        raise OSError(errno.EMFILE, "no")

    saved = session("x = 1")
    monkeypatch.setattr(snapshot_files, "Writer", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        saved.save()


def test_where_the_first_look_ends_python_nothing_earlier_is_replaced(session):
    saved = session("""
import os
home = os.getpid()
class Table:
    shape = property(lambda self: os.getpid() == home or os._exit(1))
Table.__module__ = "numpy"
table, x = Table(), 1
""")
    with pytest.raises(OSError, match="nothing was tried"):
        saved.save()


@pytest.mark.first_case
@pytest.mark.parametrize("before", ["import os", "import os, numpy\ndef function(): pass"])
def test_where_no_variable_is_reached_nothing_earlier_is_replaced(session, before):
    saved = session(f"""
{before}
class Ends:
    def __reduce__(self): os._exit(1)
globals().update({{f"ends_{{n}}": [Ends()] for n in range({snapshots.MAX_ATTEMPTS})}})
other = [0] * 2000
""")
    with pytest.raises(OSError, match="no variable was reached"):
        saved.save()
    for n in range(snapshots.MAX_ATTEMPTS - 1):
        del saved.names[f"ends_{n}"]
    assert "other" in saved.save(3)["kept"]


@pytest.mark.slow
def test_where_only_imports_and_definitions_come_back_the_others_were_tried(session):
    saved = session("""
import time
class Slow:
    def __reduce__(self): return time.sleep, (60,)
one, other = [Slow()], [0] * 10 + [Slow()]
""")
    # All of them were tried: nothing that an earlier generation has can be had.
    assert saved.save(1, seconds=4.0)["kept"] == ["time", "Slow"]
    saved.run("behind = [2] * 200")
    assert saved.save(2, seconds=4.0)["kept"] == ["time", "Slow", "behind"]


def test_a_session_without_variables_is_saved_though_its_state_hangs(session, monkeypatch):
    from interpreter_bot.guest import interpreter_state

    monkeypatch.setattr(interpreter_state, "restore", lambda _: time.sleep(60))
    manifest = session("").save(seconds=1.0)
    assert (manifest["kept"], list(manifest["lost"])) == ([], ["process state"])


def test_a_source_that_does_not_fit_costs_no_variable(session):
    source = f"def odd():\n    return 1  # {'x' * 30_000}"
    assert session(source).save(max_bytes=30_000)["lost"] == {}


def test_what_is_larger_than_allowed_is_left_out_the_largest_first(session):
    saved = session("import numpy\nsmall = numpy.ones(100_000)\nlarge = numpy.ones(1_000_000)")
    manifest = saved.save(max_bytes=2_000_000)
    assert manifest["lost"] == {"large": "it is larger than the size limit"}
    names = saved.restored()
    assert "large" not in names
    assert names["small"].sum() == 100_000


@pytest.fixture
def library(monkeypatch):
    """A library with a class `Part`, which another release of it has no more."""
    module = types.ModuleType("library")
    exec("class Part:\n    def __init__(self, of): self.of = of", module.__dict__)
    monkeypatch.setitem(sys.modules, "library", module)
    return module


def test_a_variable_that_no_longer_loads_spoils_only_what_shares_with_it(session, library):
    saved = session("""
from library import Part
import pandas
shared = [1]
gone = {"shared": shared, "of": Part(1)}
later = {"shared": shared, "gone": gone}
other = [2]
frame = pandas.DataFrame({"a": [1]})
""")
    saved.save()
    del library.Part
    names = saved.restored()
    assert set(saved.failed) == {"Part", "gone", "later"}
    assert "gone" in saved.failed["later"]
    assert (names["shared"], names["other"]) == ([1], [2])
    assert names["frame"].loc[0, "a"] == 1


def test_one_that_no_longer_loads_takes_no_arrays_with_it(session, library):
    saved = session("""
from library import Part
import numpy, pandas
counts = numpy.arange(3)
model = {"of": Part(1), "weights": numpy.ones(3), "counts": counts}
weights = numpy.ones(1000)
frame = pandas.DataFrame({"a": range(1000)})
""")
    saved.save()
    del library.Part
    names = saved.restored()
    assert set(saved.failed) == {"Part", "model"}
    assert names["counts"].sum() == 3
    assert names["weights"].sum() == 1000
    assert len(names["frame"]) == 1000


def test_a_large_buffer_that_is_gone_takes_no_other_with_it(session):
    saved = session("import numpy\none, two = numpy.ones(1_000_000), numpy.ones(2_000_000)")
    sizes = saved.save()["blobs"]
    os.unlink(os.path.join(saved.directory, "blobs", min(sizes, key=sizes.get)))
    names = saved.restored()
    assert set(saved.failed) == {"one"}
    assert names["two"].sum() == 2_000_000


@pytest.mark.slow
def test_one_that_hangs_when_it_is_read_takes_no_arrays_with_it(session):
    saved = session("""
import numpy, time
class Slow:
    def __reduce__(self): return time.sleep, (60,)
slow = [Slow(), numpy.ones(3)]
weights = [numpy.ones(100), numpy.zeros(100)]
""")
    manifest = saved.save(seconds=2.0)
    assert manifest["lost"] == {"slow": "there was no time left for it"}
    assert saved.restored()["weights"][0].sum() == 100


def test_a_class_that_cannot_be_made_again_is_found_out(session):
    saved = session("""
import os
home = os.getpid()
class Meta(type):
    def __new__(kind, name, bases, names):
        if os.getpid() != home:
            raise RuntimeError("not here")
        return super().__new__(kind, name, bases, names)
class Odd(metaclass=Meta): pass
""")
    manifest = saved.save()
    assert {"Meta", "home"} <= set(manifest["kept"])
    assert list(manifest["lost"]) == ["Odd"]


def test_a_buffer_as_large_as_another_is_another(session):
    saved = session("import numpy; one = numpy.arange(1_000_000)")
    (first,) = saved.save()["blobs"]
    saved.run("one = one + 1")
    (second,) = saved.save(2)["blobs"]
    saved.run("two = one.copy()")
    assert list(saved.save(3)["blobs"]) == [second] != [first]
    assert [saved.restored(number)["one"][0] for number in (1, 2, 3)] == [0, 1, 1]


def test_many_open_files_cost_no_variable(session):
    saved = session("x = 1")
    with contextlib.ExitStack() as files:
        for _ in range(1100):
            files.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        assert saved.save()["kept"] == ["x"]


@contextlib.contextmanager
def few_descriptors(free):
    """Let this process open only so many files more."""
    # Whatever former tests left would be closed while this one counts.
    gc.collect()
    limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    # Not a fixed number: other tests of the process may have left some open.
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 50, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(free):
            os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        for descriptor in taken:
            os.close(descriptor)


@pytest.mark.first_case
@pytest.mark.parametrize("free", range(5))
def test_where_code_has_taken_the_descriptors_it_is_said_whether_there_is_a_snapshot(session, free):
    saved = session("x = 1")
    with few_descriptors(free):
        child = snapshots.start_saving(
            saved.names, ["x"], saved.directory, 1, seconds=20.0, max_bytes=1 << 20
        )
    os.waitpid(child, 0)
    with contextlib.suppress(OSError):
        assert saved.manifest()["kept"] == ["x"]
    assert saved.path("manifest.json").exists()


@pytest.mark.slow
def test_where_code_has_taken_the_descriptors_no_large_buffer_is_said_to_be_damaged(session):
    saved = session("""
import numpy
globals().update({f"array_{n}": numpy.full(600_000, n) for n in range(12)})
""")
    with few_descriptors(10):
        child = snapshots.start_saving(
            saved.names, ["array_0"], saved.directory, 1, seconds=20.0, max_bytes=1 << 30
        )
        # Both write the same buffer, and a session has one save at a time.
        os.waitpid(child, 0)
        names = [f"array_{n}" for n in range(12)]
        other = snapshots.start_saving(
            saved.names, names, saved.directory, 2, seconds=20.0, max_bytes=1 << 30
        )
    os.waitpid(other, 0)
    assert saved.restored(1)["array_0"][0] == 0
    with pytest.raises(OSError, match="Too many open files"):
        saved.manifest(2)


@pytest.fixture
def file_limit():
    """Let no file become larger than 10 MB."""
    limit, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))


@pytest.mark.usefixtures("file_limit")
def test_a_buffer_that_one_lost_variable_has_as_well_is_kept(session):
    saved = session("""
import numpy
good = numpy.ones(1_000_000)
lost = [good.copy(), numpy.zeros(3_000_000)]
""")
    manifest = saved.save()
    assert list(manifest["lost"]) == ["lost"]
    assert list(manifest["blobs"].values()) == [8_000_000]


@pytest.mark.usefixtures("file_limit")
def test_a_buffer_that_only_a_lost_variable_has_is_not_said_to_be_needed(session):
    saved = session("""
import numpy
lost = [numpy.ones(900_000), numpy.zeros(3_000_000)]
good = numpy.ones(1_000_000)
""")
    manifest = saved.save()
    assert list(manifest["lost"]) == ["lost"]
    assert list(manifest["blobs"].values()) == [8_000_000]


def test_a_link_among_the_buffers_that_leads_nowhere_costs_no_variable(session, tmp_path):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "partial").symlink_to("/nowhere")
    saved = session("import numpy; one = numpy.arange(1_000_000)")
    assert "one" in saved.save()["kept"]


def test_a_class_that_cannot_be_made_anew_is_said_to_be_lost_when_it_is_saved(session):
    saved = session("""
import typing
class Point(typing.NamedTuple):
    x: int
    y: int
Point.ORIGIN = Point(0, 0)
x = 1
""")
    manifest = saved.save()
    assert (set(manifest["kept"]), set(manifest["lost"])) == ({"typing", "x"}, {"Point"})
    assert saved.restored()["x"] == 1
    assert saved.failed == {}


def test_a_function_of_another_python_is_defined_from_its_source(session, monkeypatch):
    saved = session("factor = 3\ndef times(x): return x * factor")
    saved.save()
    monkeypatch.setattr(importlib.util, "MAGIC_NUMBER", b"none")
    names = saved.restored()
    assert names["times"](2) == 6
    assert not saved.failed


def test_data_that_share_with_code_of_another_python_come_back(session, monkeypatch):
    saved = session("""
import pandas
class Model:
    def __init__(self, frame): self.frame = frame
frame = pandas.DataFrame({"a": [1]})
model = Model(frame)
""")
    saved.save()
    monkeypatch.setattr(importlib.util, "MAGIC_NUMBER", b"none")
    names = saved.restored()
    assert list(names["frame"]["a"]) == [1]
    # From Python 3.13 on, a class of a cell has a source as well, and is defined anew.
    assert {"model"} <= saved.failed.keys() <= {"Model", "model"}


def test_common_odd_things_come_back(session):
    saved = session("""
import threading, sqlite3, functools, collections, re, datetime, enum, dataclasses, logging
class Color(enum.Enum): RED = 1
@dataclasses.dataclass
class Item: n: int
@functools.lru_cache(maxsize=None)
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
lock, reentrant, log = threading.Lock(), threading.RLock(), logging.getLogger("x")
con = sqlite3.connect(":memory:")
con.execute("create table t(a)")
con.execute("insert into t values (42)")
con.commit()
color, item, pattern = Color.RED, Item(4), re.compile("a+")
default = collections.defaultdict(lambda: 5)
_helper = 4
def uses(): return _helper
class Holder:
    def __init__(self): self.lock = threading.Lock(); self.data = [1]
holder = Holder()
""")
    manifest = saved.save()
    assert manifest["lost"] == {}
    names = saved.restored()
    assert names["fib"](30) == 832040
    assert names["con"].execute("select a from t").fetchall() == [(42,)]
    assert names["color"] is names["Color"].RED
    assert names["item"] == names["Item"](4)
    assert names["default"]["x"] == 5
    assert names["uses"]() == 4
    assert names["holder"].lock.acquire(blocking=False)


def test_state_of_the_process_comes_back(session, tmp_path, monkeypatch):
    from interpreter_bot.guest import interpreter_state

    monkeypatch.setenv("SNAPSHOT_BEFORE", "1")
    monkeypatch.chdir(tmp_path)
    interpreter_state.record_initial_state()
    interpreter_state.record_pandas_options(pandas)
    saved = session("")
    with pandas.option_context("display.max_rows", 7):
        monkeypatch.setenv("SNAPSHOT_NEW", "2")
        monkeypatch.delenv("SNAPSHOT_BEFORE")
        numpy.random.seed(3)
        saved.save()
        expected = numpy.random.random()
    monkeypatch.setenv("SNAPSHOT_BEFORE", "1")
    monkeypatch.delenv("SNAPSHOT_NEW")
    try:
        saved.restored()
        assert os.environ["SNAPSHOT_NEW"] == "2"
        assert "SNAPSHOT_BEFORE" not in os.environ
        assert numpy.random.random() == expected
        assert pandas.get_option("display.max_rows") == 7
    finally:
        pandas.reset_option("display.max_rows")


def test_only_options_of_pandas_that_differ_from_the_beginning_are_saved():
    from interpreter_bot.guest import interpreter_state

    interpreter_state.record_pandas_options(pandas)
    assert interpreter_state.collect()["pandas"] == {}
    with pandas.option_context("display.max_rows", 7, "display.html.border", 2):
        changed = interpreter_state.collect()["pandas"]
    assert changed == {"display.max_rows": 7, "display.html.border": 2}


@pytest.mark.parametrize("damage", ["empty", "cut", "strange", "hole"])
def test_damaged_files_end_in_an_error_or_in_less(session, damage):
    saved = session("import numpy\nsmall = [1]\nlarge = numpy.ones(1_000_000)")
    saved.save()
    path = saved.path("variables")
    whole = path.read_bytes()
    broken = {
        "empty": b"",
        "cut": whole[: len(whole) // 2],
        "strange": b"x" * len(whole),
        "hole": whole[:200] + bytes(100) + whole[300:],
    }[damage]
    path.write_bytes(broken)
    try:
        names = saved.restored()
    except (OSError, ValueError):
        return
    assert names.get("small", [1]) == [1]


def test_a_manifest_stays_small_whatever_variables_are_called_and_say(session):
    saved = session("""
class Refuses:
    def __reduce_ex__(self, n): raise ValueError("\\udcff\\U0001f600" * 100_000)
named = type("x" * 1_000_000, (), {"__reduce_ex__": Refuses.__reduce_ex__})()
globals().update({"\\U00020000" * 190 + f"{n}": Refuses() for n in range(500)})
globals().update({f"many_{n}": n for n in range(500)})
""")
    manifest = saved.save()
    assert saved.path("manifest.json").stat().st_size <= 256 * 1024
    assert manifest["lost_count"] == 501
    assert manifest["kept_count"] == 501
    assert len(manifest["lost"]) <= len(manifest["kept"]) <= 200
    assert saved.restored()["many_499"] == 499


def _group(leader):
    """Return the states of the processes in a group."""
    states = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, group = path.read_text().rpartition(")")[2].split()[:3]
            states += [state] * (int(group) == leader)
    return states


def test_saving_ends_at_once_with_all_its_processes(session):
    saved = session("""
import time
class Slow:
    def __reduce__(self):
        while True: pass
x = Slow()
""")
    child = snapshots.start_saving(
        saved.names, ["x"], saved.directory, 1, seconds=60.0, max_bytes=1 << 20
    )
    while len(_group(child)) < 2:
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
    snapshot_children.kill_leader(child)
    deadline = time.monotonic() + 30
    while set(_group(child)) - {"Z"}:
        assert time.monotonic() < deadline
    assert snapshot_children.has_leader_ended(child)
    assert snapshot_children.has_leader_ended(child), "code may have waited for it"
    assert not saved.path("manifest.json").exists()


@pytest.mark.parametrize("is_apart", [False, True])
def test_what_variables_start_while_they_are_saved_is_ended_with_that(session, tmp_path, is_apart):
    saved = session(f"""
import os, subprocess
class Starts:
    def __reduce__(self):
        started = subprocess.Popen(["sleep", "60"], start_new_session={is_apart})
        with open({str(tmp_path / "started")!r}, "w") as file: file.write(str(started.pid))
        return list, ()
x = Starts()
""")
    child = snapshots.start_saving(
        saved.names, ["x"], saved.directory, 1, seconds=20.0, max_bytes=1 << 20
    )
    os.waitpid(child, 0)
    assert saved.path("manifest.json").exists()
    started = int((tmp_path / "started").read_text()) if is_apart else child
    deadline = time.monotonic() + 30
    while set(_group(started)) - {"Z"}:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: os.waitpid(-1, os.WNOHANG)])
def test_a_session_that_ignores_or_reaps_its_children_is_saved(session, handler):
    saved = session("""
import os
class Deadly:
    def __reduce__(self): os._exit(1)
x, small = Deadly(), 1
""")
    before = signal.signal(signal.SIGCHLD, handler)
    try:
        child = snapshots.start_saving(
            saved.names, ["small", "x"], saved.directory, 1, seconds=9.0, max_bytes=1 << 20
        )
        deadline = time.monotonic() + 30
        while not saved.path("manifest.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        signal.signal(signal.SIGCHLD, before)
        snapshot_children.has_leader_ended(child)
    assert saved.restored()["small"] == 1


def test_a_working_directory_that_is_gone_costs_no_variable(session, tmp_path, monkeypatch):
    from interpreter_bot.guest import interpreter_state

    monkeypatch.chdir(tmp_path)
    interpreter_state.record_initial_state()
    gone = tmp_path / "gone"
    gone.mkdir()
    saved = session("x = 1")
    os.chdir(gone)
    gone.rmdir()
    assert saved.save()["kept"] == ["x"]
    os.chdir(tmp_path)
    assert saved.restored()["x"] == 1


def test_a_working_directory_that_went_later_costs_nothing_else(session, tmp_path, monkeypatch):
    from interpreter_bot.guest import interpreter_state

    monkeypatch.chdir(tmp_path)
    interpreter_state.record_initial_state()
    interpreter_state.record_pandas_options(pandas)
    gone = tmp_path / "gone"
    gone.mkdir()
    saved = session("x = 1")
    with pandas.option_context("display.max_rows", 7):
        os.chdir(gone)
        assert saved.save()["lost"] == {}
    os.chdir(tmp_path)
    gone.rmdir()
    try:
        assert saved.restored()["x"] == 1
        assert list(saved.failed) == ["process state"]
        assert pandas.get_option("display.max_rows") == 7
    finally:
        pandas.reset_option("display.max_rows")


def test_an_item_of_the_state_that_is_rejected_costs_no_other(tmp_path, monkeypatch):
    from interpreter_bot.guest import interpreter_state

    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    options = {"no.such.option": 1, "display.max_rows": 7}
    state = {"numpy": "no state", "pandas": options, "directory": str(tmp_path / "sub")}
    try:
        with pytest.raises(TypeError, match="dict or a tuple"):
            interpreter_state.restore(state)
        assert pandas.get_option("display.max_rows") == 7
        assert os.getcwd() == str(tmp_path / "sub")
    finally:
        pandas.reset_option("display.max_rows")


def test_a_state_of_the_process_that_does_not_come_back_costs_no_variable(session, monkeypatch):
    from interpreter_bot.guest import interpreter_state

    def refuse(state):
        raise ValueError("this release refuses that")

    def end(state):
        os._exit(1)

    saved = session("x = 1")
    for number, broken in enumerate((refuse, end), 1):
        monkeypatch.setattr(interpreter_state, "restore", broken)
        manifest = saved.save(number)
        assert (manifest["kept"], list(manifest["lost"])) == (["x"], ["process state"])
        assert saved.restored(number)["x"] == 1


def test_a_state_of_the_process_that_cannot_be_had_in_time_costs_no_variable(session, monkeypatch):
    from interpreter_bot.guest import interpreter_state

    # As numpy's random numbers, whose lock a thread had when the child was forked.
    monkeypatch.setattr(interpreter_state, "collect", lambda: time.sleep(60))
    saved = session("x = 1")
    manifest = saved.save(seconds=4.0)
    assert manifest["lost"] == {"process state": "there was no time left for it"}
    assert saved.restored()["x"] == 1


def test_saving_ends_in_time_where_code_blocks_signals():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    try:
        child = snapshot_children.start_leader(lambda: time.sleep(60), print, 0.3)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert os.waitpid(child, 0)[1] == signal.SIGALRM


def test_a_state_of_the_process_that_hangs_is_not_tried_again(session, monkeypatch):
    from interpreter_bot.guest import interpreter_state

    saved = session("x = 1")
    monkeypatch.setattr(interpreter_state, "restore", lambda _: time.sleep(60))
    assert list(saved.save(seconds=1.0)["lost"]) == ["process state"]
    restored = []
    monkeypatch.setattr(interpreter_state, "restore", restored.append)
    assert saved.restored()["x"] == 1
    assert restored == []
