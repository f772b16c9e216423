"""What children that save variables report, and how they end."""

import os
import signal
import time

import pytest

from interpreter_bot.guest import snapshot_children
from interpreter_bot.guest.snapshot_children import Loss, Step


def run(work, seconds=10.0):
    """Return what a child reports, and its ending."""
    messages = []
    deadline = time.monotonic() + seconds
    return messages, snapshot_children.run_in_child(work, messages.append, deadline)


def test_what_a_child_reports_comes_in_its_order():
    def work(report):
        for name in "ab":
            report(Step(name, 5.0))
            report(Loss(name, f"why\n{name}\udcff"))

    messages, ending = run(work)
    assert messages == [Loss("a", "why\na\udcff"), Loss("b", "why\nb\udcff")]
    assert (ending.name, ending.reason) == ("b", "")


def test_one_that_ends_is_not_taken_for_one_that_is_late():
    def end(report):
        report(Step("a", 5.0))
        os._exit(1)

    def sleep(report):
        report(Step("b", 0.5))
        time.sleep(60)

    def fail(report):
        report(Step("c", 5.0))
        raise SystemExit("no")

    endings = [run(work)[1] for work in (end, sleep, fail)]
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
    # The one is ended for how much it is, the other for how long it takes.
    [
        (b"x" * 65536, 0.001, 20.0, snapshot_children.DIED),
        (b'0000000000000000["Loss", {"name": "a", "reason": ""}]\n' * 60, 0.0, 1.0, "time"),
    ],
)
def test_one_that_writes_without_an_end_is_ended(written, content, pause, seconds, reason):
    def write(report):
        # Else it is that which ends it.
        signal.setitimer(signal.ITIMER_REAL, 0)
        report(Step("a", seconds))
        if not pause:
            # So that there is always something to be read.
            os.fork(), os.fork()
        while True:
            written(content)
            time.sleep(pause)

    begun = time.monotonic()
    _, ending = run(write, seconds)
    assert ending.name == "a"
    assert reason in ending.reason
    assert time.monotonic() - begun < 15


@pytest.mark.parametrize("forged", [b"{\n", b"[]\n", b'["Loss", {}]\n', b'["Gone", {}]\n'])
def test_one_that_forges_what_cannot_be_read_is_ended(written, forged):
    def write(report):
        report(Step("a", 5.0))
        written(b"0" * 16 + forged)
        time.sleep(60)

    assert run(write) == ([], snapshot_children.ChildReport("a", snapshot_children.DIED))


def test_one_whose_parent_is_ended_ends_all_the_same():
    def end_parent(_):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)

    begun = time.monotonic()
    read, write = os.pipe()
    parent = os.fork()
    if not parent:
        try:
            os.close(read)
            run(end_parent, 2.0)
        finally:
            os._exit(1)
    os.close(write)
    # The end of it: nobody has it open any more.
    assert os.read(read, 1) == b""
    os.close(read)
    assert os.waitpid(parent, 0)[1] == signal.SIGKILL
    assert time.monotonic() - begun < 30
