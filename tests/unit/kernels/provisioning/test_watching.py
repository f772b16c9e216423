"""What a session without a control group uses, counted on real processes."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from interpreter_bot.kernels.provisioning import watching

MIB = 1024 * 1024
START = "import ctypes, mmap, os, sys, threading, time\nMIB = 1 << 20\n"
READY = "\nprint('ready', flush=True)\ntime.sleep(60)\n"


@pytest.fixture
def session():
    """Start code that stands for a session; it is counted once it says it is ready."""
    started = []

    def start(code):
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", START + code + READY],
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        found = watching.SessionProcesses(process.pid)
        found.process = process
        return found

    yield start
    for process in started:
        # By its group, which is of our making and ours until we wait for its leader. Never by
        # what the code under test lists: should it list too much, the machine would pay.
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


FAMILY = """
told, tell = os.pipe()
for _ in range(2):
    if os.fork() == 0:
        x = bytearray(40 * MIB)
        if os.fork() == 0:
            y = bytearray(20 * MIB)
            os.write(tell, b'.')
        time.sleep(60)
os.read(told, 1); os.read(told, 1)
"""


def test_children_and_grandchildren_count(session):
    found = session(FAMILY)
    reading = found.reading()
    assert reading.processes == 5
    assert found.pids()[0] == found.process.pid
    # Twice 40 shared between parent and child, and twice 20 of the grandchildren.
    assert 120 * MIB <= reading.memory_bytes < 160 * MIB
    assert reading.is_exact
    assert reading.hidden == 0


def test_children_of_threads_count(session):
    code = (
        "def run():\n"
        "    if os.fork() == 0: time.sleep(60)\n"
        "    time.sleep(60)\n"
        "threading.Thread(target=run, daemon=True).start()\n"
        "time.sleep(0.2)"
    )
    assert len(session(code).pids()) == 2


def test_a_memfd_nobody_maps_counts_once(session):
    found = session(
        "f = os.memfd_create('x')\n"
        "for _ in range(50): os.write(f, bytes(MIB))\n"
        "g = os.dup(f)\n"
        "if os.fork() == 0: time.sleep(60)\n"
    )
    assert 50 * MIB <= found.memory_bytes() < 80 * MIB


def test_a_mapped_memfd_counts_once(session):
    found = session(
        "f = os.memfd_create('x')\n"
        "os.truncate(f, 60 * MIB)\n"
        "m = mmap.mmap(f, 60 * MIB)\n"
        "m[:] = bytes(60 * MIB)\n"
        "if os.fork() == 0: m[:30 * MIB]; time.sleep(60)\n"
    )
    assert 60 * MIB <= found.memory_bytes() < 80 * MIB


def test_a_partly_mapped_memfd_counts_in_full(session):
    found = session(
        "f = os.memfd_create('x')\n"
        "for _ in range(50): os.write(f, bytes(MIB))\n"
        "m = mmap.mmap(f, 4096)\n"
        "m[0]\n"
    )
    assert 50 * MIB <= found.memory_bytes() < 70 * MIB


def test_shared_anonymous_memory_counts_once(session):
    found = session(
        "m = mmap.mmap(-1, 40 * MIB)\nm[:] = bytes(40 * MIB)\nif os.fork() == 0: time.sleep(60)\n"
    )
    assert 40 * MIB <= found.memory_bytes() < 60 * MIB


def test_a_file_that_is_called_like_a_memfd_is_no_memory(session, tmp_path):
    (tmp_path / "memfd:x").write_bytes(b"x" * MIB)
    found = session(f"a = open({str(tmp_path / 'memfd:x')!r})")
    assert found.memory_bytes() < 20 * MIB


@pytest.mark.parametrize("name", [") R 1 1", "a b) Z (", "\\n\\n0 0", "\\xff\\xfe"])
def test_hostile_process_names_change_nothing(session, name):
    found = session(
        f"ctypes.CDLL(None).prctl(15, b'{name}', 0, 0, 0)\n"
        f"f = os.memfd_create(b'{name}')\n"
        "os.write(f, bytes(30 * MIB))\n"
    )
    reading = found.reading()
    assert reading.processes == 1
    assert 30 * MIB <= reading.memory_bytes < 60 * MIB


def test_an_upper_bound_is_enough_where_it_is_small(session):
    found = session("x = bytearray(30 * MIB)")
    cheap = found.reading(enough_bytes=500 * MIB)
    exact = found.reading(enough_bytes=20 * MIB)
    assert not cheap.is_exact
    assert exact.is_exact
    assert 30 * MIB <= exact.memory_bytes <= cheap.memory_bytes


def test_cpu_time_counts_ended_children_and_never_falls(session):
    burn = "    end = time.process_time() + 0.2\n    while time.process_time() < end: pass\n"
    found = session(f"if os.fork() == 0:\n{burn}    os._exit(0)\nos.wait()")
    used = found.cpu_seconds()
    assert used >= 0.19
    found.process.kill()
    found.process.wait()
    assert found.cpu_seconds() == used


def test_what_is_gone_uses_nothing(session):
    found = session("")
    found.process.kill()
    gone = watching.Reading(0, found.cpu_seconds(), 0)
    for _ in range(2):
        deadline = time.monotonic() + 5
        while found.pids() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert found.reading() == gone
        found.process.wait()


def test_a_number_given_to_somebody_else_is_not_counted(session):
    found = session("")
    found._start -= 1
    assert found.pids() == []


def test_a_process_that_never_was():
    assert watching.SessionProcesses(2**22 + 1).reading() == watching.Reading(0, 0.0, 0)


def test_processes_may_vanish_at_any_moment(session):
    found = session(
        "def storm():\n"
        "    while True:\n"
        "        if os.fork() == 0:\n"
        "            f = os.memfd_create('x'); os.write(f, b'x'); os._exit(0)\n"
        "        os.wait()\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0: storm()\n"
    )
    seen = set()
    end = time.monotonic() + 1
    while time.monotonic() < end:
        reading = found.reading()
        seen.add(reading.processes)
        assert 4 <= reading.processes < 20
        assert reading.hidden == 0
    assert len(seen) > 1


def test_without_lists_of_children_the_namespace_tells(session, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("needs root to make a pid namespace")
    found = session(
        "libc = ctypes.CDLL(None)\n"
        "told, tell = os.pipe()\n"
        "assert libc.unshare(0x20000000) == 0\n"
        "if os.fork() == 0:\n"
        "    if os.fork() == 0: os.fork(); os.write(tell, b'.')\n"
        "    time.sleep(60)\n"
        "os.read(told, 1); os.read(told, 1)\n"
    )
    init = found.pids()[1]
    inside = watching.SessionProcesses(init)
    listed = inside.pids()
    monkeypatch.setattr(watching, "_lists_children", lambda: False)
    assert len(listed) == 3
    assert inside.pids()[0] == init
    assert sorted(inside.pids()) == sorted(listed)


def test_without_a_namespace_of_its_own_the_host_is_not_taken_for_the_session(session, monkeypatch):
    found = session("")
    monkeypatch.setattr(watching, "_lists_children", lambda: False)
    assert found.pids() == [found.process.pid]


def test_who_hides_is_counted_from_above_and_told(session, monkeypatch):
    """Root sees everything, so the refusal another user would get is played."""
    found = session("x = bytearray(30 * MIB)\nif os.fork() == 0: time.sleep(60)")
    hider = found.pids()[1]
    real_listdir, real_look = os.listdir, watching._look

    def listdir(path):
        if path == f"/proc/{hider}/fd":
            raise PermissionError(13, "hidden")
        return real_listdir(path)

    def look(path):
        if path.startswith(f"/proc/{hider}/smaps"):
            raise PermissionError(13, "hidden")
        return real_look(path)

    before = found.memory_bytes()
    monkeypatch.setattr(os, "listdir", listdir)
    monkeypatch.setattr(watching, "_look", look)
    reading = found.reading()
    assert reading.hidden == 1
    assert reading.memory_bytes >= before + 10 * MIB


def test_init_may_hide_because_it_is_ours(session, monkeypatch):
    found = session("x = bytearray(30 * MIB)")

    def refuse(path):
        if "smaps" in path:
            raise PermissionError(13, "hidden")
        return pathlib.Path(path).read_bytes()

    monkeypatch.setattr(watching, "_look", refuse)
    reading = found.reading()
    assert (reading.hidden, reading.memory_bytes) == (0, 0)


def test_too_many_descriptors_to_look_at_is_hiding(session, monkeypatch):
    found = session("if os.fork() == 0: x = [os.dup(0) for _ in range(50)]; time.sleep(60)")
    time.sleep(0.2)
    monkeypatch.setattr(watching, "_MOST_DESCRIPTORS", 20)
    assert found.reading().hidden == 1


def test_another_thread_may_read_meanwhile(session):
    found = session("")
    threads = [threading.Thread(target=found.reading) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def reading(memory_bytes, hidden=0):
    return watching.Reading(memory_bytes, 0.0, 1, hidden)


def test_a_watch_calls_too_much_at_once():
    watch = watching.Watch(100)
    verdicts = [watch.judge(reading(size)) for size in (0, 100, 101, 99)]
    assert verdicts == ["fine", "fine", "over memory", "fine"]


def test_a_watch_is_patient_with_a_moment_of_hiding():
    watch = watching.Watch(100, patience=3)
    verdicts = [watch.judge(reading(1, hidden)) for hidden in (1, 1, 0, 1, 2, 1, 1, 0)]
    assert verdicts == ["fine"] * 5 + ["hiding"] * 2 + ["fine"]
