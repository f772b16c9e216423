"""What a server refuses is declared by its host, its model or the settings."""

import pytest

from interpreter_bot import settings
from interpreter_bot.agent import model_errors
from interpreter_bot.agent.llms import server_quirks

WHOLE = {"model": "m", "messages": [], "max_tokens": 5, "temperature": 0.2, "stream_options": {}}


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ({}, {"max_tokens", "temperature", "stream_options"}),
        ({"refuses": ["temperature"]}, {"max_tokens", "stream_options"}),
        ({"refuses": ["max_tokens"]}, {"max_completion_tokens", "temperature", "stream_options"}),
        (
            {"base_url": "https://api.openai.com/v1"},
            {"max_completion_tokens", "temperature", "stream_options"},
        ),
        (
            {"base_url": "https://api.openai.com/v1", "name": "gpt-5-mini"},
            {"max_completion_tokens", "stream_options"},
        ),
        ({"base_url": "https://evil.example/api.openai.com/"}, {*WHOLE} - {"model", "messages"}),
    ],
)
def test_what_is_declared_is_left_out_or_renamed(model, names):
    model = settings.Model(**{"name": "m", "base_url": "http://127.0.0.1/v1", **model})
    sent = server_quirks.find_quirks(model).adapt(WHOLE)
    assert sent.keys() - {"model", "messages"} == names


def test_fields_are_left_out_but_where_a_model_wrote_them():
    quirks = server_quirks.Quirks(frozenset({"cache_control"}))
    call = {"type": "tool_use", "input": {"cache_control": "of a model"}}
    blocks = [{"type": "text", "cache_control": {"type": "ephemeral"}}, call]
    assert quirks.adapt({"messages": blocks}) == {"messages": [{"type": "text"}, call]}


async def test_a_body_is_mended_once():
    sent = []

    async def send(parameters):
        sent.append(parameters)
        raise UnicodeEncodeError("ascii", "\u2022", 0, 1, "ordinal not in range(128)")

    with pytest.raises(model_errors.RequestRefusedError):
        await server_quirks.send_well_formed(send, {"a": "\ud83d"})
    assert sent == [{"a": "\ud83d"}, {"a": "\ufffd"}]
