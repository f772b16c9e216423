"""Models are found by the variables that people have set already."""

import asyncio
import socket
import sys

import pytest

from interpreter_bot import errors, events, settings
from interpreter_bot.agent import chat_messages, model_errors
from interpreter_bot.agent.llms import catalogues, model_discovery
from tests.fakes import anthropic_server, openai_server

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
    async with anthropic_server.Server([], model_list=LISTED) as server:
        environment = {"ANTHROPIC_API_KEY": server.api_key, "ANTHROPIC_BASE_URL": server.base_url}
        models = (await model_discovery.discover(environment)).models
        assert found(models) == [
            ("claude-fair-9", "anthropic", 200_000, 8000),
            ("claude-grand-9", "anthropic", 200_000, 16_384),
            ("someone-elses", "anthropic", 200_000, 16_384),
        ]
        assert [one.can_see_images for one in models] == [True, True, False]
        assert {one.base_url for one in models} == {server.base_url}
        wrong = await model_discovery.discover({**environment, "ANTHROPIC_API_KEY": "no"})
        (unlisted,) = wrong.unlisted
        assert wrong.models == (unlisted.model,)
        assert "refused the API key" in str(unlisted.problem)


async def test_models_that_are_named_are_taken_without_asking():
    environment = {
        "ANTHROPIC_API_KEY": "k",
        "ANTHROPIC_MODEL": "claude-a, claude-b",
        "OPENAI_API_KEY": "k",
        "OPENAI_MODEL": "gpt-x,claude-b",
    }
    models = (await model_discovery.discover(environment)).models
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
    assert (await model_discovery.discover(named)).models == ()
    model = settings.Model(name="claude-a", protocol="anthropic")
    with pytest.raises(errors.SettingsError, match=r"needs the extra \[anthropic\]"):
        catalogues.Catalogue([model], keys={}, patience=settings.Patience())


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def catalogue_of(discovery, environment):
    return catalogues.Catalogue(
        discovery.models,
        keys=catalogues.collect_keys(discovery.models, environment),
        patience=settings.Patience(),
        max_retries=0,
        unlisted=discovery.unlisted,
    )


async def ask(catalogue):
    prompt = chat_messages.Prompt(
        system="Be short.", messages=(chat_messages.UserMessage("Hello?"),)
    )
    llm = await catalogue.open_llm()
    return await llm.reply(prompt, emit=events.discard)


async def test_a_server_that_starts_later_answers_with_its_own_model():
    port = free_port()
    server = openai_server.Server([openai_server.text("Hi")], models=("late-1",), port=port)
    url = f"http://127.0.0.1:{port}/v1"
    environment = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": server.api_key}
    catalogue = catalogue_of(await model_discovery.discover(environment), environment)
    away = f"The model server at 127.0.0.1:{port} cannot be reached. Try again in a minute."
    assert catalogue.problem == away
    with pytest.raises(model_errors.UnreachableError, match=away):
        await ask(catalogue)
    async with server:
        assert (await ask(catalogue)).text == "Hi"
        assert catalogue.problem == ""
        assert server.requests[0].body["model"] == "late-1"
    await catalogue.close()


@pytest.mark.parametrize(
    ("key", "lists_models", "sentence"),
    [
        ("wrong", True, "refused the API key. Ask whoever runs this bot to check it."),
        ("", True, "needs an API key. Ask whoever runs this bot to give the bot one."),
        (None, False, "lists no models. Ask whoever runs this bot to name one."),
    ],
)
async def test_a_server_that_names_no_model_is_reported_and_not_replaced(
    key, lists_models, sentence
):
    async with openai_server.Server([], lists_models=lists_models) as server:
        key = server.api_key if key is None else key
        environment = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": key}
        discovery = await model_discovery.discover(environment)
        catalogue = catalogue_of(discovery, environment)
        assert len(catalogue.titles) == 1
        assert catalogue.problem == f"The model server at 127.0.0.1:{server.port} {sentence}"
        with pytest.raises(model_errors.ModelError) as raised:
            await ask(catalogue)
        assert str(raised.value) == catalogue.problem
        await catalogue.close()


async def test_a_model_that_its_server_does_not_know_is_named():
    async with openai_server.Server([]) as server:
        environment = {
            "OPENAI_BASE_URL": server.base_url,
            "OPENAI_API_KEY": server.api_key,
            "OPENAI_MODEL": "gpt-nope",
        }
        catalogue = catalogue_of(await model_discovery.discover(environment), environment)
        with pytest.raises(model_errors.UnknownModelError, match='no model called "gpt-nope"'):
            await ask(catalogue)
        await catalogue.close()


@pytest.mark.parametrize("name", ["openai_server", "anthropic_server"])
async def test_a_model_that_redirects_is_not_followed(name):
    fake = {"openai_server": openai_server, "anthropic_server": anthropic_server}[name]
    maker = "OPENAI" if fake is openai_server else "ANTHROPIC"
    async with fake.Server([]) as other:
        elsewhere = {"Location": f"{other.base_url}/chat/completions"}
        async with fake.Server([openai_server.failure(307, headers=elsewhere)]) as server:
            environment = {
                f"{maker}_BASE_URL": server.base_url,
                f"{maker}_API_KEY": server.api_key,
                f"{maker}_MODEL": "scripted",
            }
            catalogue = catalogue_of(await model_discovery.discover(environment), environment)
            with pytest.raises(model_errors.MovedError, match="redirects to another address"):
                await ask(catalogue)
            await catalogue.close()
        assert not other.requests


async def test_a_model_that_is_being_opened_does_not_take_the_place_of_an_adopted_one():
    async with (
        openai_server.Server([], models=("same",)) as former,
        openai_server.Server([openai_server.text("Hi")], models=("same",)) as server,
    ):
        opened = []
        for place in (former, server):
            environment = {
                "OPENAI_BASE_URL": place.base_url,
                "OPENAI_API_KEY": place.api_key,
                "OPENAI_MODEL": "same",
            }
            discovery = await model_discovery.discover(environment)
            opened.append(catalogue_of(discovery, environment))
        catalogue, other = opened
        opening = asyncio.create_task(catalogue.open_llm())
        await asyncio.sleep(0)
        await catalogue.adopt(other)
        await opening
        assert (await ask(catalogue)).text == "Hi"
        await catalogue.close()
