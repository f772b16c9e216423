"""Odd objects that sessions may hold, one a variable, for tests and counts of what is restored."""

from __future__ import annotations

from typing import Final

SETUP: Final = """
import abc, ast, asyncio, base64, bisect, collections, contextlib, copy, csv, datetime, decimal
import enum, fractions, functools, heapq, inspect, io, itertools, json, math, operator, os, pathlib
import pickle, queue, random, re, sqlite3, statistics, string, textwrap, threading, weakref
import array, contextvars, ctypes, dataclasses, hashlib, ipaddress, logging, mmap, select, shelve
import socket, struct, subprocess, sys, tempfile, time, types, typing, uuid, zoneinfo
import numpy, pandas
__place__ = tempfile.mkdtemp()
class Plain:
    def __init__(self): self.x = 1
    def method(self): return self.x
class Slots:
    __slots__ = ("x", "__weakref__")
    def __init__(self): self.x = 2
class Color(enum.Enum):
    RED = 1
class Flags(enum.Flag):
    A = 1
    B = 2
@dataclasses.dataclass(frozen=True)
class Data:
    x: int
Pair = collections.namedtuple("Pair", "a b")
class Typed(typing.TypedDict):
    x: int
class Base(abc.ABC):
    @abc.abstractmethod
    def f(self): ...
class Child(Base):
    def f(self): return super().__repr__()
class Meta(type):
    def __call__(cls): return super().__call__()
class Metaed(metaclass=Meta): pass
class Singleton:
    _one = None
    def __new__(cls):
        cls._one = cls._one or super().__new__(cls)
        return cls._one
class Holder:
    def __init__(self): self.lock, self.running, self.kept = threading.Lock(), (i for i in "a"), 5
class Silent:
    def __getattr__(self, name): return 1
class Loud:
    def __reduce__(self): raise RuntimeError("never")
class Endless:
    def __reduce__(self): return (Endless, (Endless(),))
class Wrong:
    def __reduce__(self): return 5
class Later:
    def __setstate__(self, state): raise ValueError("not here")
    def __getstate__(self): return {"a": 1}
class Equal:
    def __eq__(self, other): raise RuntimeError("no comparing")
    __hash__ = None
class Booled:
    def __bool__(self): raise RuntimeError("no truth")
class Texted:
    def __repr__(self): raise RuntimeError("no words")
class Called:
    def __call__(self): return 3
class Sequence:
    def __len__(self): return 10**12
    def __getitem__(self, n): return n
class Dicted(dict): pass
class Listed(list): pass
class Problem(Exception):
    def __init__(self, a, b): self.a, self.b = a, b
class Described:
    @property
    def x(self): return 1
    @staticmethod
    def s(): return 2
    @classmethod
    def c(cls): return cls
def plain(a, b=2, *c, d=4, **e): return a
def counter():
    n = 0
    def add():
        nonlocal n
        n += 1
        return n
    return add
def recursive(n): return n and recursive(n - 1)
def running():
    yield 1
async def waiting(): await asyncio.sleep(0)
async def streaming(): yield 1
@functools.lru_cache(maxsize=8)
def cached(n): return n
@functools.wraps(plain)
def wrapped(*a): return plain(*a)
@contextlib.contextmanager
def managed(): yield 1
@functools.singledispatch
def dispatched(a): return 1
open(__place__ + "/odd.txt", "w").write("a\\nb\\n")
"""

OBJECTS: Final = {
    "instance": "Plain()",
    "slots": "Slots()",
    "enumerated": "Color.RED",
    "flags": "Flags.A | Flags.B",
    "data": "Data(3)",
    "pair": "Pair(1, 2)",
    "typed": "Typed(x=1)",
    "child": "Child()",
    "metaed": "Metaed()",
    "single": "Singleton()",
    "holder": "Holder()",
    "silent": "Silent()",
    "loud": "Loud()",
    "endless": "Endless.__new__(Endless)",
    "wrong": "Wrong()",
    "later": "Later()",
    "equal": "Equal()",
    "booled": "Booled()",
    "texted": "Texted()",
    "called": "Called()",
    "sequence": "Sequence()",
    "dicted": "Dicted(a=1)",
    "listed": "Listed([1])",
    "problem": "Problem(1, 2)",
    "bound": "Plain().method",
    "described": "Described().c",
    "lambda_": "lambda x: x + 1",
    "closure": "counter()",
    "partial": "functools.partial(plain, 1)",
    "generator": "running()",
    "expression": "(n for n in range(3))",
    "coroutine": "waiting()",
    "stream": "streaming()",
    "manager": "managed()",
    "iterator": "iter([1, 2, 3])",
    "mapped": "map(str, [1, 2])",
    "filtered": "filter(None, [0, 1])",
    "zipped": "zip([1], [2])",
    "counted": "itertools.count(5)",
    "chained": "itertools.chain([1], [2])",
    "view": "{'a': 1}.keys()",
    "reversed_": "reversed([1, 2])",
    "ranged": "range(10**9)",
    "sliced": "slice(1, 2)",
    "dots": "...",
    "nothing": "None",
    "refused": "NotImplemented",
    "infinite": "float('inf')",
    "huge_number": "10**5000",
    "huge_string": "'x' * 30_000_000",
    "surrogate": "'\\udc80'",
    "zeros": "'\\0' * 10",
    "octets": "bytes(1000)",
    "octet_array": "bytearray(100_000)",
    "memory": "memoryview(b'abc')",
    "numbers": "array.array('d', [1.0])",
    "self_list": "(lambda l: l.append(l) or l)([])",
    "self_dict": "(lambda d: d.update(me=d) or d)({})",
    "self_object": "(lambda o: setattr(o, 'me', o) or o)(Plain())",
    "nested": "functools.reduce(lambda a, _: [a], range(500), [])",
    "too_nested": "functools.reduce(lambda a, _: [a], range(100_000), [])",
    "frozen": "frozenset({1, (2, 3)})",
    "deque": "collections.deque([1], maxlen=3)",
    "ordered": "collections.OrderedDict(a=1)",
    "defaults": "collections.defaultdict(list, a=[1])",
    "lambda_defaults": "collections.defaultdict(lambda: 5)",
    "counter_": "collections.Counter('aab')",
    "chain_map": "collections.ChainMap({'a': 1})",
    "proxy": "types.MappingProxyType({'a': 1})",
    "simple": "types.SimpleNamespace(a=1)",
    "lock": "threading.Lock()",
    "reentrant": "threading.RLock()",
    "event": "threading.Event()",
    "condition": "threading.Condition()",
    "semaphore": "threading.Semaphore(2)",
    "thread": "threading.Thread(target=plain)",
    "own_thread": "threading.current_thread()",
    "local": "threading.local()",
    "queue_": "queue.Queue()",
    "simple_queue": "queue.SimpleQueue()",
    "context": "contextvars.copy_context()",
    "variable": "contextvars.ContextVar('v')",
    "weak": "weakref.ref(Plain)",
    "weak_dict": "weakref.WeakValueDictionary()",
    "weak_set": "weakref.WeakSet()",
    "reading": "open(__place__ + '/odd.txt')",
    "reading_octets": "open(__place__ + '/odd.txt', 'rb')",
    "writing": "open(__place__ + '/odd2.txt', 'w')",
    "temporary": "tempfile.TemporaryFile()",
    "string_file": "io.StringIO('abc')",
    "octet_file": "io.BytesIO(b'abc')",
    "written": "csv.writer(io.StringIO())",
    "socket_": "socket.socket()",
    "poller": "select.poll()",
    "process": "subprocess.Popen(['true'])",
    "mapped_file": "mmap.mmap(-1, 100)",
    "database": "sqlite3.connect(':memory:')",
    "cursor": "sqlite3.connect(':memory:').execute('select 1')",
    "hash_": "hashlib.sha256(b'a')",
    "pattern": "re.compile('a+')",
    "match": "re.match('a', 'a')",
    "logger": "logging.getLogger('odd')",
    "handler": "logging.StreamHandler()",
    "random_": "random.Random(1)",
    "system_random": "random.SystemRandom()",
    "generator_of_numbers": "numpy.random.default_rng(1)",
    "array_of_objects": "numpy.array([1, 'a', None], dtype=object)",
    "records": "numpy.zeros(3, dtype=[('a', 'i4')])",
    "masked": "numpy.ma.masked_array([1], [True])",
    "function_of_numbers": "numpy.frompyfunc(lambda a: a, 1, 1)",
    "vectorized": "numpy.vectorize(lambda a: a)",
    "series": "pandas.Series([1], name='a')",
    "categories": "pandas.Categorical(['a', 'b'])",
    "grouped": "pandas.DataFrame({'a': [1], 'b': [2]}).groupby('a')",
    "timestamp": "pandas.Timestamp(0, tz='UTC')",
    "rolling": "pandas.Series([1.0, 2.0]).rolling(2)",
    "moment": "datetime.datetime.now(zoneinfo.ZoneInfo('Europe/Berlin'))",
    "decimal_": "decimal.Decimal('1.10')",
    "decimal_context": "decimal.getcontext()",
    "fraction": "fractions.Fraction(1, 3)",
    "unique": "uuid.uuid4()",
    "address": "ipaddress.ip_network('10.0.0.0/8')",
    "path": "pathlib.Path('/tmp')",
    "tree": "ast.parse('1 + 1')",
    "code": "compile('1', 'x', 'eval')",
    "frame_": "sys._getframe()",
    "trace": "(lambda: [e.__traceback__ for e in [ValueError()]][0])()",
    "raised": "ValueError('a', 1)",
    "group": "ExceptionGroup('a', [ValueError()])",
    "alias": "list[int] | None",
    "type_variable": "typing.TypeVar('T')",
    "structure": "struct.Struct('<I')",
    "c_number": "ctypes.c_int(5)",
    "c_pointer": "ctypes.pointer(ctypes.c_int(5))",
    "future": "asyncio.Future(loop=asyncio.new_event_loop())",
    "signature": "inspect.signature(plain)",
    "operator_": "operator.itemgetter(1)",
    "own_module": "types.ModuleType('made_here')",
    "capsule": "__import__('_datetime').datetime_CAPI",
    "shelf": "shelve.open(__place__ + '/odd-shelf')",
}
"""Expressions by the name of their variable."""

DEFINED: Final = (
    *("Plain", "Slots", "Color", "Flags", "Data", "Pair", "Typed", "Base", "Child", "Meta"),
    *("plain", "counter", "recursive", "running", "waiting", "streaming", "cached", "wrapped"),
    *("managed", "dispatched"),
)
"""Classes and functions of `SETUP`, which are variables too."""

CODE: Final = SETUP + "".join(f"{name} = {code}\n" for name, code in OBJECTS.items())
NAMES: Final = (*OBJECTS, *DEFINED)
