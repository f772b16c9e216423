"""A server that refuses whatever it is sent is asked a bounded number of times."""

import pytest

from interpreter_bot.agent import model_errors
from interpreter_bot.agent.llms import server_quirks


async def test_a_server_that_refuses_everything_is_not_asked_for_ever():
    sent = []

    async def send(parameters):
        sent.append(parameters)
        raise ValueError

    with pytest.raises(model_errors.RequestRefusedError):
        await server_quirks.open_accepted(
            send,
            {"a": 1},
            refusals=ValueError,
            adapt=dict,
            mend=lambda _error, _sent, parameters: parameters,
        )
    assert len(sent) == 10


async def test_a_body_is_mended_once():
    sent = []

    async def send(parameters):
        sent.append(parameters)
        raise UnicodeEncodeError("ascii", "\u2022", 0, 1, "ordinal not in range(128)")

    with pytest.raises(model_errors.RequestRefusedError):
        await server_quirks.open_accepted(
            send, {"a": "\ud83d"}, refusals=ValueError, adapt=dict, mend=lambda *_: None
        )
    assert sent == [{"a": "\ud83d"}, {"a": "\ufffd"}]
