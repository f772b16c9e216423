"""Memory that moves under a program which goes on, each time in a process of its own."""

import json
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

def mappings_of(address):
    spans = (line.split() for line in open("/proc/self/maps"))
    return [one[-1] if len(one) == 6 else one[-2] for one in spans
            if int(one[0].split("-")[0], 16) <= address < int(one[0].split("-")[1], 16)]

# Objects of all sizes, small and in libc's heap; none of them with a mapping of its own.
things = [{"number": n, "text": "x" * (n % 3000)} for n in range(20_000)]
gc.collect()
"""


def _run(code):
    command = [sys.executable, "-c", _BEGIN + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(autouse=True)
def _is_known():
    if not file_backed_memory._IS_KNOWN:
        pytest.skip("contexts of this machine are not known")


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


def test_memory_of_other_allocators_stays_where_zeroes_come_from():
    found = _run("""
other = mmap.mmap(-1, 8_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
other.write(b"x" * 8_000_000)
address = ctypes.addressof(ctypes.c_char.from_buffer(other))
file_backed_memory.move()
moved = [mappings_of(id(one)) for one in (things[0], things[2999]["text"])]
other.madvise(mmap.MADV_DONTNEED)
print(json.dumps([moved, mappings_of(address), other[:3].hex()]))
""")
    moved, other, beginning = found
    assert ["/memfd:preloaded" in one[0] or one[0] == "(deleted)" for one in moved] == [True, True]
    assert "preloaded" not in "".join(other)
    assert beginning == "000000"


def test_nobody_can_ever_write_to_the_file():
    found = _run("""
import fcntl
create, kept = os.memfd_create, []
def create_and_keep(*arguments):
    descriptor = create(*arguments)
    kept.append(os.dup(descriptor))
    return descriptor
os.memfd_create = create_and_keep
file_backed_memory.move()
def refused(work):
    try:
        work()
    except OSError as error:
        return type(error).__name__
print(json.dumps([
    refused(lambda: os.write(kept[0], b"x")),
    refused(lambda: os.truncate(kept[0], 0)),
    refused(lambda: mmap.mmap(kept[0], 4096)),
    things[5]["text"],
]))
""")
    assert found == ["PermissionError"] * 3 + ["xxxxx"]


def test_with_too_little_memory_all_goes_on():
    found = _run("""
import errno
def allocate(*_):
    raise OSError(errno.ENOSPC, "no space")
os.posix_fallocate = allocate
try:
    file_backed_memory.move()
    told = ""
except OSError as error:
    told = error.strerror
print(json.dumps([told, things[9]["text"], in_child(lambda: things[9]["text"])]))
""")
    assert found == ["no space", "x" * 9, "x" * 9]
