"""Children with limits, in a kernel whose code has changed its process."""

import os
import resource
import signal
import time

import pytest

from interpreter_bot.guest import bounded_children


def _run(work):
    return bounded_children.run(work, seconds=20.0, max_bytes=100)


@pytest.fixture
def ignoring_children():
    handler = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, handler)


@pytest.fixture
def many_open_files():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2000), limits[1]))
    descriptors = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    yield
    for descriptor in descriptors:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_an_answer_is_complete_or_empty():
    assert _run(lambda: b"done") == b"done"
    assert _run(lambda: b"x" * 101) == b""
    assert _run(lambda: b"1" + 1) == b""


@pytest.mark.usefixtures("ignoring_children")
def test_code_may_ignore_its_children():
    assert _run(lambda: b"done") == b"done"


@pytest.mark.usefixtures("many_open_files")
def test_code_may_have_many_files_open():
    assert _run(lambda: b"done") == b"done"


def test_work_that_hangs_is_ended():
    start_time = time.monotonic()
    assert bounded_children.run(lambda: time.sleep(60), seconds=0.5, max_bytes=100) == b""
    assert time.monotonic() - start_time < 30


def test_a_child_that_cannot_be_forked_leaves_no_descriptor_open(monkeypatch):
    def refuse():
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", refuse)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(BlockingIOError):
        bounded_children.run(lambda: b"", seconds=1.0, max_bytes=1)
    assert len(os.listdir("/proc/self/fd")) == len(before)
