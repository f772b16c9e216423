"""The streams of an execution, on connections that broke."""

import asyncio

import pytest

from interpreter_bot import settings
from interpreter_bot.kernels import execution_streams, outputs
from interpreter_bot.kernels.wire import sockets
from interpreter_bot.wording import run_words


class BrokenConnection:
    received_bytes, reading_seconds = 0, 0.0

    async def send(self, *_):
        raise sockets.LostSocket

    async def renew(self):
        raise sockets.LostSocket


@pytest.mark.looptime
async def test_a_kernel_that_cannot_be_reached_is_ended_however_long_that_takes():
    reasons = []
    stream = execution_streams.ExecutionStream(
        BrokenConnection(),
        outputs.OutputReader(settings.Limits()),
        show=lambda _: None,
        ask=None,
        install=None,
        max_bytes=1000,
        input_seconds=60.0,
        kill=lambda _, reason: reasons.append(reason),
        interrupt=lambda _: None,
    )
    execution = stream.start("1")
    await asyncio.wait({execution}, timeout=60)
    assert not execution.done(), "the end of the kernel is the end of the execution"
    assert set(reasons) == {run_words.CONNECTIONS_BROKEN}
    await stream.close()
