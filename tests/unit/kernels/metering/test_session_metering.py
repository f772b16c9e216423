"""A session without a control group: who belongs to it, who hides, and what to make of it."""

import os
import pathlib
import signal
import threading
import time

import pytest

from interpreter_bot.kernels.metering import memory, procfs, session_metering

MIB = 1024 * 1024


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def at_rest(found):
    """Wait until nothing runs in a session; returns its clocks then."""
    clocks = {}

    def is_at_rest():
        clocks.clear()
        clocks.update(found.clocks())
        time.sleep(0.05)
        return not found.have_moved(clocks)

    until(is_at_rest)
    return clocks


def test_children_of_threads_count(session):
    code = (
        "forked = threading.Event()\n"
        "def run():\n"
        "    if os.fork() == 0: time.sleep(60)\n"
        "    forked.set()\n"
        "    time.sleep(60)\n"
        "threading.Thread(target=run, daemon=True).start()\n"
        "forked.wait()"
    )
    assert len(session(code).pids()) == 2


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
    gone = session_metering.Reading(0, found.cpu_seconds(), 0)
    for _ in range(2):
        until(lambda: not found.pids())
        assert found.reading() == gone
        found.process.wait()


def test_a_number_given_to_somebody_else_is_not_counted(session):
    found = session("")
    found._start -= 1
    assert found.pids() == []


def test_a_process_that_never_was():
    assert session_metering.SessionProcesses(2**22 + 1).reading() == session_metering.Reading(
        0, 0.0, 0
    )


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


@pytest.mark.namespaces
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
    inside = session_metering.SessionProcesses(init)
    listed = inside.pids()
    monkeypatch.setattr(session_metering, "_lists_children", lambda: False)
    assert len(listed) == 3
    assert inside.pids()[0] == init
    assert sorted(inside.pids()) == sorted(listed)


def test_without_a_namespace_of_its_own_the_host_is_not_taken_for_the_session(session, monkeypatch):
    found = session("")
    monkeypatch.setattr(session_metering, "_lists_children", lambda: False)
    assert found.pids() == [found.process.pid]


def test_who_hides_is_counted_from_above_and_told(session, monkeypatch):
    """Root sees everything, so the refusal another user would get is played."""
    found = session("x = bytearray(30 * MIB)\nif os.fork() == 0: time.sleep(60)")
    hider = found.pids()[1]
    real_listdir, real_look = os.listdir, procfs.read_or_raise

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
    monkeypatch.setattr(procfs, "read_or_raise", look)
    reading = found.reading()
    assert reading.hidden == 1
    assert reading.memory_bytes >= before + 10 * MIB


def test_init_may_hide_because_it_is_ours(session, monkeypatch):
    found = session("x = bytearray(30 * MIB)")

    def refuse(path):
        if "smaps" in path:
            raise PermissionError(13, "hidden")
        return pathlib.Path(path).read_bytes()

    monkeypatch.setattr(procfs, "read_or_raise", refuse)
    reading = found.reading()
    assert reading.hidden == 0
    assert reading.memory_bytes < MIB


def test_too_many_descriptors_to_look_at_is_hiding(session, monkeypatch):
    opened = "x = [os.dup(0) for _ in range(50)]; os.write(tell, b'.'); time.sleep(60)"
    found = session(f"told, tell = os.pipe()\nif os.fork() == 0: {opened}\nos.read(told, 1)")
    monkeypatch.setattr(memory, "_MOST_DESCRIPTORS", 20)
    assert found.reading().hidden == 1


def test_another_thread_may_read_meanwhile(session):
    found = session("")
    threads = [threading.Thread(target=found.reading) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_child_that_nobody_waits_for_neither_counts_nor_hides(session, monkeypatch):
    found = session(
        "child = os.fork() or os._exit(0)\nos.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)"
    )
    zombie = found.pids()[1]
    real = os.listdir

    def listdir(path):
        # What a plain user gets.
        if path == f"/proc/{zombie}/fd":
            raise PermissionError(13, "hidden")
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    reading = found.reading()
    assert (reading.processes, reading.hidden) == (2, 0)


def reading(memory_bytes, hidden=0, **others):
    return session_metering.Reading(memory_bytes, 0.0, 1, hidden, **others)


def test_a_watch_calls_too_much_at_once():
    watch = session_metering.LimitWatch(100)
    verdicts = [watch.evaluate(reading(size)) for size in (0, 100, 101, 99)]
    assert verdicts == ["fine", "fine", "over memory", "fine"]


def test_a_watch_calls_many_groups_of_processes_grabbing():
    watch = session_metering.LimitWatch(100)
    verdicts = [watch.evaluate(reading(1, groups=count)) for count in (0, 5, 6)]
    assert verdicts == ["fine", "fine", "grabbing"]


def test_a_watch_calls_many_processes_and_threads_crowded_where_nothing_bounds_them():
    readings = [reading(1, tasks=count) for count in (8, 9)]
    bound, free = session_metering.LimitWatch(100, tasks=8), session_metering.LimitWatch(100)
    assert list(map(bound.evaluate, readings)) == ["fine", "crowded"]
    assert list(map(free.evaluate, readings)) == ["fine", "fine"]


def test_a_watch_is_patient_with_a_moment_of_hiding():
    watch = session_metering.LimitWatch(100, patience=3)
    verdicts = [watch.evaluate(reading(1, hidden)) for hidden in (1, 1, 0, 1, 2, 1, 1, 0)]
    assert verdicts == ["fine"] * 5 + ["hiding"] * 2 + ["fine"]


def test_a_watch_is_patient_with_a_moment_without_time():
    watch = session_metering.LimitWatch(100)
    verdicts = [watch.evaluate(reading(1, is_late=late)) for late in (1, 1, 0, 1, 1, 1)]
    assert verdicts == ["fine"] * 5 + ["hiding"]


def test_a_watch_ends_who_has_too_much_whether_there_was_time_or_not():
    assert session_metering.LimitWatch(100).evaluate(reading(101, is_late=True)) == "over memory"


def test_a_watch_calls_sockets_hiding_only_when_they_could_hold_too_much():
    watch = session_metering.LimitWatch(100)
    verdicts = [watch.evaluate(reading(50, socket_bytes=size)) for size in (50, 51)]
    assert verdicts == ["fine", "hiding"]


MOVES = {
    "a thread": "threading.Thread(target=later).start()",
    "a child": "os.fork() or later()",
    "a grandchild whose parent is gone": "os.fork() or os.fork() and os._exit(0) or later()",
    "a thread of a process whose first ended": """
if os.fork() == 0:
    threading.Thread(target=later).start()
    ctypes.CDLL(None).syscall(60, 0)
""",
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the call's number is of x86-64")
@pytest.mark.parametrize("what", MOVES)
def test_whatever_runs_in_a_session_moves_its_clocks(session, tmp_path, what):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # As the first process of a session is, orphans are its children.
    code = "ctypes.CDLL(None).prctl(36, 1)\n"
    wait = f"open({str(gate)!r}).read()"
    code += f"def later():\n    {wait}\n    sum(range(1000))\n    time.sleep(60)\n"
    found = session(code + MOVES[what])
    # Opened once the other end is; what waits there goes on when it is closed.
    with gate.open("w"):
        clocks = at_rest(found)
    until(lambda: found.have_moved(clocks))
    at_rest(found)


SIBLING = """
told, tell = os.pipe()
def fork(*_):
    # Beside its parent, by CLONE_PARENT: neither that nor the first process has it for a child.
    ctypes.CDLL(None).syscall(56, 0x8000 | signal.SIGCHLD, 0, 0, 0, 0)
if os.fork() == 0:
    signal.signal(signal.SIGUSR1, fork)
    os.write(tell, b".")
    while True: time.sleep(60)
os.read(told, 1)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the call's number is of x86-64")
def test_a_sibling_that_comes_between_list_and_clock_is_not_taken_to_rest(session, monkeypatch):
    found = session("import signal\n" + SIBLING)
    at_rest(found)
    init, child = found.pids()
    read = procfs.clock_nanoseconds

    def read_after_a_fork(pid):
        if pid == child and len(procfs.children(init)) == 1:
            os.kill(child, signal.SIGUSR1)
            until(lambda: len(procfs.children(init)) == 2)
            time.sleep(0.1)
        return read(pid)

    with monkeypatch.context() as patch:
        patch.setattr(procfs, "clock_nanoseconds", read_after_a_fork)
        clocks = found.clocks()
    assert len(found.pids()) == 3
    assert found.have_moved(clocks)
    at_rest(found)


def test_an_end_is_a_move(session, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    found = session(f"if os.fork() == 0: open({str(gate)!r}).read(); os._exit(0)")
    with gate.open("w"):
        clocks = at_rest(found)
        assert len(clocks) == 2
    until(lambda: found.have_moved(clocks))
    found.process.kill()
    found.process.wait()
    assert found.have_moved(found.clocks()), "nobody is left to rest"


def test_of_a_storm_only_as_many_are_listed_as_there_may_be(session):
    found = session("for _ in range(20):\n    if os.fork() == 0: time.sleep(60)")
    bounded = session_metering.SessionProcesses(found.process.pid, max_tasks=8)
    assert len(found.pids()) == 21
    assert len(bounded.pids()) == 8
    assert bounded.reading(most_tasks=7).tasks > 7
    assert bounded.have_moved(bounded.clocks()), "those that are not listed may have run"
