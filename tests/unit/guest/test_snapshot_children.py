"""What children that save variables tell, and how they end."""

import os
import signal
import time

import pytest

from interpreter_bot.guest import snapshot_children


def test_what_each_stage_tells_is_its_own():
    first, second = snapshot_children.ask(
        (lambda tell: tell({"at": "a"}), 10.0), (lambda tell: tell({"at": "b"}), 10.0)
    )
    assert (first.messages, second.messages) == ([{"at": "a"}], [{"at": "b"}])
    assert first.is_done
    assert second.is_done


def test_one_that_ends_is_not_taken_for_one_that_is_late():
    def end(tell):
        tell({"at": "a"})
        os._exit(1)

    def sleep(tell):
        tell({"at": "b"})
        time.sleep(60)

    ended, never = snapshot_children.ask((end, 10.0), (sleep, 10.0))
    assert (ended.at, ended.is_done, ended.is_late) == ("a", False, False)
    assert (never.at, never.is_done, never.is_late) == ("", False, False)
    (late,) = snapshot_children.ask((sleep, 2.0))
    assert (late.at, late.is_done, late.is_late) == ("b", False, True)


@pytest.fixture
def written(monkeypatch):
    """Return where a child tells what it does; each message there begins with zeros."""
    pipes = []
    pipe = os.pipe
    monkeypatch.setattr(os, "urandom", bytes)
    monkeypatch.setattr(os, "pipe", lambda: pipes.append(pipe()) or pipes[-1])
    return lambda content: os.write(pipes[-1][1], content)


@pytest.mark.parametrize(
    ("content", "pause", "seconds", "is_late"),
    # The one is ended for how much it is, the other for how long it takes.
    [(b"x" * 65536, 0.01, 20.0, False), (b"0000000000000000{}\n" * 200, 0.0, 1.0, True)],
)
def test_one_that_writes_without_an_end_is_ended(
    written, monkeypatch, content, pause, seconds, is_late
):
    def write(tell):
        # Else it is that which ends it.
        signal.setitimer(signal.ITIMER_REAL, 0)
        tell({"at": "a"})
        if not pause:
            # So that there is always something to be read.
            os.fork(), os.fork()
        while True:
            written(content)
            time.sleep(pause)

    monkeypatch.setattr(snapshot_children, "_LATE_SECONDS", 0.1)
    monkeypatch.setattr(snapshot_children, "_MOST_MESSAGE_BYTES", 1 << 20)
    begun = time.monotonic()
    (told,) = snapshot_children.ask((write, seconds))
    assert (told.at, told.is_done, told.is_late) == ("a", False, is_late)
    assert time.monotonic() - begun < 15


def test_one_that_forges_what_cannot_be_read_is_ended(written, monkeypatch):
    def write(_):
        written(b"0000000000000000{\n")
        time.sleep(60)

    forked, fork = [], os.fork
    monkeypatch.setattr(os, "fork", lambda: forked.append(fork()) or forked[-1])
    with pytest.raises(ValueError, match="Expecting"):
        snapshot_children.ask((write, 10.0))
    assert os.waitpid(forked[0], 0)[1] == signal.SIGKILL


def test_one_whose_parent_is_ended_ends_all_the_same(monkeypatch):
    def end_parent(_):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)

    monkeypatch.setattr(snapshot_children, "_LATE_SECONDS", 0.1)
    begun = time.monotonic()
    read, write = os.pipe()
    parent = os.fork()
    if not parent:
        try:
            os.close(read)
            snapshot_children.ask((end_parent, 2.0))
        finally:
            os._exit(1)
    os.close(write)
    # The end of it: nobody has it open any more.
    assert os.read(read, 1) == b""
    os.close(read)
    assert os.waitpid(parent, 0)[1] == signal.SIGKILL
    assert time.monotonic() - begun < 30
