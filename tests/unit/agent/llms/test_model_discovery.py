"""Models are found by the variables that people have set already."""

import sys

import pytest

from interpreter_bot import errors, settings
from interpreter_bot.agent.llms import catalogues, model_discovery
from tests.fakes import anthropic_server

SIGHT = {"image_input": {"supported": True}}
LISTED = [
    {"id": "claude-grand-9", "line": "opus", "max_input_tokens": 1_000_000, "max_tokens": 128_000},
    {"id": "claude-old-1", "line": "sonnet", "lifecycle": "retired"},
    {"id": "claude-fair-9", "line": "sonnet", "max_tokens": 8000, "capabilities": SIGHT},
    {"id": "someone-elses", "capabilities": {"image_input": {"supported": False}}},
]


def found(models):
    return [(one.name, one.protocol, one.context_tokens, one.answer_tokens) for one in models]


async def test_anthropics_server_is_asked_what_it_has():
    async with anthropic_server.Server([], listed=LISTED) as server:
        environment = {"ANTHROPIC_API_KEY": server.api_key, "ANTHROPIC_BASE_URL": server.base_url}
        models = await model_discovery.discover(environment)
        assert found(models) == [
            ("claude-fair-9", "anthropic", 200_000, 8000),
            ("claude-grand-9", "anthropic", 200_000, 16_384),
            ("someone-elses", "anthropic", 200_000, 16_384),
        ]
        assert [one.can_see_images for one in models] == ["yes", "auto", "no"]
        assert {one.base_url for one in models} == {server.base_url}
        # Nobody is there for a wrong key, which is said to the log alone.
        assert await model_discovery.discover({**environment, "ANTHROPIC_API_KEY": "no"}) == ()


async def test_models_that_are_named_are_taken_without_asking():
    environment = {
        "ANTHROPIC_API_KEY": "k",
        "ANTHROPIC_MODEL": "claude-a, claude-b",
        "OPENAI_API_KEY": "k",
        "OPENAI_MODEL": "gpt-x,claude-b",
    }
    models = await model_discovery.discover(environment)
    assert [(one.name, one.protocol) for one in models] == [
        ("gpt-x", "auto"),
        ("claude-b", "auto"),
        ("claude-a", "anthropic"),
    ]
    last = models[-1]
    assert (last.base_url, last.api_key_variable) == (
        "https://api.anthropic.com",
        "ANTHROPIC_API_KEY",
    )


async def test_without_the_sdk_models_are_none_and_settings_that_want_one_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "anthropic", None)
    named = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_MODEL": "claude-a"}
    assert await model_discovery.discover(named) == ()
    model = settings.Model(name="claude-a", protocol="anthropic")
    with pytest.raises(errors.SettingsError, match="need the extra `anthropic`"):
        catalogues.Catalogue([model], keys={}, patience=settings.Patience())
