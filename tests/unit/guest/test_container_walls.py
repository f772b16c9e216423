"""Attempts in child processes: only an attempt that succeeds is reported as a success."""

import os
import signal

import pytest

from interpreter_bot.guest import container_walls


def _fork_and_refuse() -> str:
    if os.fork():
        os._exit(0)
    return "the grandchild failed"


def _fail() -> str:
    raise ValueError("no such thing")


def _be_killed() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [
        (lambda: "", ""),
        (lambda: "it is refused", "it is refused"),
        (_fork_and_refuse, "the grandchild failed"),
        (_fail, "ValueError: no such thing"),
        (_be_killed, "the attempt was killed"),
    ],
)
def test_an_attempt_returns_its_reason(attempt, reason):
    assert container_walls.try_in_child(attempt) == reason
