"""Reports and ends of the children that save variables."""

import os
import signal
import time

import pytest

from interpreter_bot.guest import snapshot_children
from interpreter_bot.guest.snapshot_children import Loss, Step


def run_child(work, seconds=10.0):
    """Return a child's messages, and its final report."""
    messages = []
    deadline = time.monotonic() + seconds
    return messages, snapshot_children.run_in_child(work, messages.append, deadline)


def test_reports_of_a_child_arrive_in_order():
    def work(report):
        for name in "ab":
            report(Step(name, 5.0))
            report(Loss(name, f"why\n{name}\udcff"))

    messages, ending = run_child(work)
    assert messages == [Loss("a", "why\na\udcff"), Loss("b", "why\nb\udcff")]
    assert (ending.name, ending.reason) == ("b", "")


def test_a_child_that_dies_is_told_from_one_that_is_late():
    def end(report):
        report(Step("a", 5.0))
        os._exit(1)

    def sleep(report):
        report(Step("b", 0.5))
        time.sleep(60)

    def fail(report):
        report(Step("c", 5.0))
        raise SystemExit("no")

    endings = [run_child(work)[1] for work in (end, sleep, fail)]
    assert [(ending.name, ending.reason) for ending in endings] == [
        ("a", snapshot_children.DIED),
        ("b", snapshot_children.TOO_LATE),
        ("c", "SystemExit: no"),
    ]


@pytest.fixture
def written(monkeypatch):
    """Return where a child reports; each message there begins with zeros."""
    pipes = []
    pipe = os.pipe
    monkeypatch.setattr(os, "urandom", bytes)
    monkeypatch.setattr(os, "pipe", lambda: pipes.append(pipe()) or pipes[-1])
    return lambda content: os.write(pipes[-1][1], content)


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("content", "pause", "seconds", "reason"),
    # The first child exceeds the size of a message, the second one its time.
    [
        (b"x" * 65536, 0.001, 20.0, snapshot_children.DIED),
        (b'0000000000000000["Loss", {"name": "a", "reason": ""}]\n' * 60, 0.0, 1.0, "time"),
    ],
)
def test_a_child_that_writes_for_ever_is_killed(written, content, pause, seconds, reason):
    def write(report):
        # The leader shall end the child, not this timer.
        signal.setitimer(signal.ITIMER_REAL, 0)
        report(Step("a", seconds))
        if not pause:
            # Several writers, so that there is always something to be read.
            os.fork(), os.fork()
        while True:
            written(content)
            time.sleep(pause)

    start_time = time.monotonic()
    _, ending = run_child(write, seconds)
    assert ending.name == "a"
    assert reason in ending.reason
    assert time.monotonic() - start_time < 15


@pytest.mark.parametrize("forged", [b"{\n", b"[]\n", b'["Loss", {}]\n', b'["Gone", {}]\n'])
def test_a_child_that_forges_a_report_is_killed(written, forged):
    def write(report):
        report(Step("a", 5.0))
        written(b"0" * 16 + forged)
        time.sleep(60)

    assert run_child(write) == ([], snapshot_children.ChildReport("a", snapshot_children.DIED))


def test_a_child_ends_after_its_parent_was_killed():
    def end_parent(_):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)

    start_time = time.monotonic()
    reader, writer = os.pipe()
    parent = os.fork()
    if not parent:
        try:
            os.close(reader)
            run_child(end_parent, 2.0)
        finally:
            os._exit(1)
    os.close(writer)
    # The end of the file: no process has the pipe open any more.
    assert os.read(reader, 1) == b""
    os.close(reader)
    assert os.waitpid(parent, 0)[1] == signal.SIGKILL
    assert time.monotonic() - start_time < 30
