"""Children with bounds, in a kernel whose code has made itself at home."""

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
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.fixture
def many_open_files():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 2000), before[1]))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    yield
    for one in opened:
        os.close(one)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_what_work_returns_comes_back_whole_or_not_at_all():
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
    began = time.monotonic()
    assert bounded_children.run(lambda: time.sleep(60), seconds=0.5, max_bytes=100) == b""
    assert time.monotonic() - began < 30
