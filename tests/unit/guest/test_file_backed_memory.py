"""Memory that moves under a program which goes on, each time in a process of its own."""

import json
import os
import subprocess
import sys

import pytest

from interpreter_bot.guest import file_backed_memory

_BEGIN = """
import ctypes, gc, json, mmap, os, re, sys
from interpreter_bot.guest import file_backed_memory

def anonymous_bytes():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024

def in_child(work):
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, json.dumps(work()).encode())
        os._exit(0)
    os.close(writing)
    os.wait()
    with open(reading) as pipe:
        return json.load(pipe)

def is_moved(address):
    for line in open("/proc/self/maps", encoding="latin-1"):
        start, end = (int(one, 16) for one in line.split()[0].split("-"))
        if start <= address < end:
            return "/memfd:preloaded" in line

def descriptors():
    names = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return [os.readlink(name) for name in names if os.path.lexists(name)]

def told_by(work):
    try:
        work()
    except OSError as error:
        return error.strerror

# Objects of all sizes, small and in libc's heap; none of them with a mapping of its own.
things = [{"number": n, "text": "x" * (n % 3000)} for n in range(20_000)]
gc.collect()
"""


def _run(code, *arguments):
    command = [sys.executable, "-c", _BEGIN + code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(autouse=True)
def _is_known():
    if not file_backed_memory.is_known():
        pytest.skip("it is not known how on this machine")


def test_what_is_moved_stays_as_it_is_and_is_hardly_copied_by_forks():
    found = _run("""
before = anonymous_bytes()
file_backed_memory.move()
forked = in_child(anonymous_bytes)
is_whole = all(one == {"number": n, "text": "x" * (n % 3000)} for n, one in enumerate(things))
things.extend([{"more": n} for n in range(100_000)])
del things[::2]
gc.collect()
print(json.dumps([before, forked, is_whole, len(things), sys.getsizeof(b"x" * 40_000_000)]))
""")
    before, forked, is_whole, count, size = found
    assert before > 40_000_000
    assert forked < before / 4
    assert is_whole
    assert count == 60_000
    assert size > 40_000_000


def test_each_process_changes_its_own_memory_only():
    found = _run("""
file_backed_memory.move()
def change():
    things[7]["text"] = "changed"
    text = things[8]["text"]
    ctypes.memset(id(text) + sys.getsizeof("") - 1, ord("y"), len(text))
    return [things[7]["text"], things[8]["text"]]
first, second = in_child(change), in_child(lambda: [things[7]["text"], things[8]["text"]])
print(json.dumps([first, second, [things[7]["text"], things[8]["text"]]]))
""")
    assert found == [["changed", "y" * 8], ["x" * 7, "x" * 8], ["x" * 7, "x" * 8]]


def test_a_library_is_left_with_one_mapping_to_read_and_one_to_write():
    found = _run("""
import hashlib, _hashlib
def mappings():
    with open("/proc/self/maps", encoding="latin-1") as file:
        return [line.split() for line in file]
def of_library():
    lines = mappings()
    named = [number for number, line in enumerate(lines) if line[-1] == _hashlib.__file__]
    return [*(lines[number] for number in named), lines[named[-1] + 1]]
# Zero when it was loaded: of no file.
flag = ctypes.c_int.in_dll(ctypes.pythonapi, "Py_InspectFlag")
before = of_library()
file_backed_memory.move()
def change():
    flag.value = 7
    return [flag.value, hashlib.sha256(b"x").hexdigest()[:8]]
changed = in_child(change)
after = [[line[1], "memfd" in line[-2]] for line in of_library()]
print(json.dumps([len(before), after, is_moved(ctypes.addressof(flag)), changed, flag.value]))
""")
    before, after, is_moved, changed, kept = found
    assert before > 4
    assert after == [["r-xp", False], ["rw-p", True]]
    assert is_moved
    assert changed == [7, "2d711642"]
    assert kept == 0


def test_memory_of_other_allocators_stays_where_zeroes_come_from():
    found = _run("""
other = mmap.mmap(-1, 8_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
other.write(b"x" * 8_000_000)
address = ctypes.addressof(ctypes.c_char.from_buffer(other))
file_backed_memory.move()
moved = [is_moved(id(one)) for one in (things[0], things[2999]["text"])]
moved.append(is_moved(address))
other.madvise(mmap.MADV_DONTNEED)
print(json.dumps([moved, other[:3].hex()]))
""")
    assert found == [[True, True, False], "000000"]


def test_what_libc_maps_by_itself_can_grow_as_before():
    """Its mapping is made longer in place: of a file, the rest of that would come into sight."""
    found = _run("""
# Whatever was freed before: each list has a mapping of its own, and lies among arenas.
M_MMAP_THRESHOLD = -3
ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 128 * 1024)
lists, chain, among = [], None, []
for number in range(12):
    lists.append([None] * 20_000)
    for _ in range(20_000):
        chain = {"next": chain}
    among.append(id(chain))
gc.collect()
file_backed_memory.move()
def grow():
    for one in lists:
        one.extend([None] * 4_000_000)
    return [all(one == None for one in grown) for grown in lists]
print(json.dumps([sum(map(is_moved, among)) > 6, in_child(grow)]))
# Its end would be the end of each in turn, too deep for the stack.
sys.stdout.flush()
os._exit(0)
""")
    assert found == [True, [True] * 12]


def test_files_that_are_mapped_privately_stay_where_they_are(tmp_path):
    path = os.fsencode(tmp_path / "data") + b"\xe9"
    found = _run(
        """
path = os.fsencode(sys.argv[1])
open(path, "wb").write(b"x" * 1_000_000)
with open(path, "r+b") as file:
    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
data[:3] = b"own"
address = ctypes.addressof(ctypes.c_char.from_buffer(data))
os.truncate(path, 4096)
file_backed_memory.move()
print(json.dumps([is_moved(id(things[0])), is_moved(address), data[:4].decode()]))
""",
        os.fsdecode(path),
    )
    assert found == [True, False, "ownx"]


def test_nobody_can_ever_write_to_the_file():
    found = _run("""
import fcntl
seal, kept = fcntl.fcntl, []
def seal_and_keep(descriptor, *arguments):
    kept.append(os.dup(descriptor))
    return seal(descriptor, *arguments)
fcntl.fcntl = seal_and_keep
file_backed_memory.move()
def refusal(work):
    try:
        work()
    except OSError as error:
        return type(error).__name__
print(json.dumps([
    refusal(lambda: os.write(kept[0], b"x")),
    refusal(lambda: os.truncate(kept[0], 0)),
    refusal(lambda: mmap.mmap(kept[0], 4096)),
    things[5]["text"],
]))
""")
    assert found == ["PermissionError"] * 3 + ["xxxxx"]


_FAILURES = {
    "no memory for the first": "os.posix_fallocate = failing_at(1, os.posix_fallocate)",
    "no memory for the third": "os.posix_fallocate = failing_at(3, os.posix_fallocate)",
    "no seal": "import fcntl; fcntl.fcntl = failing_at(1, fcntl.fcntl)",
}


@pytest.mark.parametrize("failure", _FAILURES)
def test_where_it_fails_half_way_all_goes_on_and_nobody_gets_the_file(failure):
    found = _run(f"""
import errno, itertools
def failing_at(number, work):
    numbers = itertools.count(1)
    def fail(*arguments):
        if next(numbers) == number:
            raise OSError(errno.ENOSPC, "none left")
        return work(*arguments)
    return fail
{_FAILURES[failure]}
told = told_by(file_backed_memory.move)
left = [one for one in in_child(descriptors) if "preloaded" in one]
print(json.dumps([told, left, things[9]["text"], in_child(lambda: things[9]["text"])]))
""")
    assert found == ["none left", [], "x" * 9, "x" * 9]


# A thread on the processor of all else, on which it is the last to run.
WAITING = """
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
priority = os.SCHED_IDLE, os.sched_param(0)
"""


@pytest.mark.parametrize("begin", ["priority = ()", WAITING])
def test_nothing_is_moved_under_a_thread_that_works(begin):
    found = _run(f"""
import threading, time
{begin}
def work():
    if priority:
        os.sched_setscheduler(0, *priority)
    while True:
        time.sleep(0.001)
threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
print(json.dumps([told_by(file_backed_memory.move), is_moved(id(things[0]))]))
""")
    assert found == ["a thread of what is preloaded is at work", False]
