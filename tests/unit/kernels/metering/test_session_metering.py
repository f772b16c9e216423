"""A session without a control group: who belongs to it, who hides, and what to make of it."""

import os
import signal
import threading
import time

import pytest

from interpreter_bot.kernels.metering import procfs, session_metering

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
        return not found.has_run_since(clocks)

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


def test_deleted_files_count_while_they_are_open(session, tmp_path):
    path = str(tmp_path / "x")
    code = (
        f"files = [open({path!r}, 'wb', 0) for _ in range(2)]\n"
        f"for file in files: file.write(bytes({20 * MIB}))\n"
        f"os.unlink({path!r})\n"
        f"other = open({path!r}, 'wb', 0)\nother.write(bytes({20 * MIB}))"
    )
    found = session(code)
    device = tmp_path.stat().st_dev

    def measured(device):
        return found.deleted_bytes(device, str(tmp_path), mapped_bytes=1)

    assert 20 * MIB <= measured(device) < 40 * MIB
    assert measured(device + 1) == 0


def test_deleted_files_that_are_only_mapped_count_as_the_given_size(session, tmp_path):
    path = str(tmp_path / "x")
    code = (
        "import ctypes\n"
        f"file = open({path!r}, 'wb+', 0)\nfile.write(bytes(4096))\n"
        "map = ctypes.CDLL(None).mmap\nmap.restype = ctypes.c_void_p\n"
        "address = map(None, ctypes.c_size_t(4096), 1, 1, file.fileno(), ctypes.c_long(0))\n"
        f"assert address != ctypes.c_void_p(-1).value\nos.unlink({path!r})\nfile.close()"
    )
    found, device = session(code), tmp_path.stat().st_dev
    assert found.deleted_bytes(device, str(tmp_path), mapped_bytes=7 * MIB) == 7 * MIB
    assert found.deleted_bytes(device, str(tmp_path / "other"), mapped_bytes=7 * MIB) == 0


def test_what_is_gone_uses_nothing(session):
    found = session("")
    found.process.kill()
    for _ in range(2):
        until(lambda: not found.pids())
        assert found.reading(0) == session_metering.Reading()
        found.process.wait()


def test_a_number_given_to_somebody_else_is_not_counted(session):
    found = session("")
    found._start -= 1
    assert found.pids() == []


def test_a_process_that_never_was():
    assert session_metering.SessionProcesses(2**22 + 1).reading(0) == session_metering.Reading()


def test_processes_may_vanish_at_any_moment(session):
    found = session(
        "def storm():\n"
        "    while True:\n"
        "        if os.fork() == 0:\n"
        "            os._exit(0)\n"
        "        os.wait()\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0: storm()\n"
    )
    seen = set()
    end = time.monotonic() + 1
    while time.monotonic() < end:
        reading = found.reading(0)
        seen.add(reading.task_count)
        assert 4 <= reading.task_count < 20
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
    monkeypatch.setattr(session_metering, "_can_list_children", lambda: False)
    assert len(listed) == 3
    assert inside.pids()[0] == init
    assert sorted(inside.pids()) == sorted(listed)


def test_without_a_namespace_of_its_own_the_host_is_not_taken_for_the_session(session, monkeypatch):
    found = session("")
    monkeypatch.setattr(session_metering, "_can_list_children", lambda: False)
    assert found.pids() == [found.process.pid]


@pytest.fixture
def hiding(monkeypatch):
    """Refuse what a user who is not root is refused; returns the processes that hide."""
    pids, look = set(), procfs.read_or_raise

    def refuse(path):
        if path.endswith("/smaps_rollup") and int(path.split("/")[2]) in pids:
            raise PermissionError(13, "hidden")
        return look(path)

    monkeypatch.setattr(procfs, "read_or_raise", refuse)
    return pids


def test_who_hides_counts_in_full(session, hiding):
    found = session("x = bytearray(30 * MIB)\nif os.fork() == 0: time.sleep(60)")
    before = found.memory_bytes()
    hiding.add(found.pids()[1])
    assert found.memory_bytes() >= before + 10 * MIB


def test_init_may_hide_because_it_is_ours(session, hiding):
    found = session("x = bytearray(30 * MIB)\nif os.fork() == 0: time.sleep(60)")
    init, kernel = found.pids()
    hiding.add(init)
    assert found.memory_bytes() > 40 * MIB
    assert session_metering.SessionProcesses(init, kernel).memory_bytes() < 30 * MIB


def test_another_thread_may_read_meanwhile(session):
    found = session("")
    threads = [threading.Thread(target=found.memory_bytes) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_child_that_nobody_waits_for_holds_nothing(session):
    found = session(
        "x = bytearray(30 * MIB)\n"
        "child = os.fork() or os._exit(0)\nos.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)"
    )
    reading = found.reading(0)
    assert reading.task_count == 2
    assert reading.memory_bytes < 50 * MIB


def test_programs_in_process_sessions_of_their_own_are_counted(session):
    found = session(
        "told, tell = os.pipe()\n"
        "end, going = os.pipe()\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        os.close(going)\n"
        "        os.write(tell, b'.')\n"
        "        os._exit(len(os.read(end, 1)))\n"
        "    os.read(told, 1)"
    )
    assert found.reading(0).process_session_count == 3


def test_what_was_written_counts_although_its_file_is_gone(session):
    write = (
        "import tempfile\nf = tempfile.TemporaryFile(dir={!r}, buffering=0)\n"
        "f.write(bytes(20 * MIB))"
    )
    in_memory, on_disk = (session(write.format(place)) for place in ("/dev/shm", "/var/tmp"))
    assert in_memory.written_bytes() >= 20 * MIB
    assert in_memory.stored_bytes() < MIB
    assert on_disk.stored_bytes() >= 20 * MIB


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
    until(lambda: found.has_run_since(clocks))
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
    read = procfs.processor_time_ns

    def read_after_a_fork(pid):
        if pid == child and len(procfs.children(init)) == 1:
            os.kill(child, signal.SIGUSR1)
            until(lambda: len(procfs.children(init)) == 2)
            time.sleep(0.1)
        return read(pid)

    with monkeypatch.context() as patch:
        patch.setattr(procfs, "processor_time_ns", read_after_a_fork)
        clocks = found.clocks()
    assert len(found.pids()) == 3
    assert found.has_run_since(clocks)
    at_rest(found)


def test_an_end_is_a_move(session, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    found = session(f"if os.fork() == 0: open({str(gate)!r}).read(); os._exit(0)")
    with gate.open("w"):
        clocks = at_rest(found)
        assert len(clocks) == 2
    until(lambda: found.has_run_since(clocks))
    found.process.kill()
    found.process.wait()
    assert found.has_run_since(found.clocks()), "nobody is left to rest"


def test_of_a_storm_only_as_many_are_listed_as_there_may_be(session):
    found = session("for _ in range(20):\n    if os.fork() == 0: time.sleep(60)")
    bounded = session_metering.SessionProcesses(found.process.pid, max_tasks=8)
    assert len(found.pids()) == 21
    assert len(bounded.pids()) == 8
    assert bounded.reading(0, 7).task_count > 7
    assert bounded.has_run_since(bounded.clocks()), "those that are not listed may have run"


def test_a_kernel_that_is_a_child_of_its_init_counts_once(session):
    found = session("if os.fork() == 0: time.sleep(60)")
    whole = session_metering.SessionProcesses(*found.pids())
    assert whole.pids() == found.pids()
    assert whole.reading(0).task_count == 2
