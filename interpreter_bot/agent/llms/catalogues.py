"""The catalogue of models, opened when first used."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import pydantic

from interpreter_bot import errors, events, logs, settings
from interpreter_bot.agent import chat_messages, model_errors, ports
from interpreter_bot.agent.llms import fallbacks, model_discovery, retries
from interpreter_bot.wording import model_words

if TYPE_CHECKING:
    import openai


class _Client(Protocol):
    """A connection pool of either SDK."""

    async def close(self) -> None:
        """Close all connections."""


class Catalogue:
    """Models by name, each with one connection pool and one memory of its abilities.

    Args:
        models: in the order people see them; the first is the default.
        keys: API keys by the name of the environment variable that holds them.
        patience: how long a server is waited for.
        servers: by model title, what starts the server of a model that has to be started.
        unlisted: servers whose models are not known yet; each has a model of its own in `models`.
        sleep: waits between tries.

    Raises:
        SettingsError: two models have one title, or one needs a library that is not installed.
    """

    def __init__(
        self,
        models: Sequence[settings.Model],
        *,
        keys: Mapping[str, pydantic.SecretStr],
        patience: settings.Patience,
        servers: Mapping[str, retries.OnDemandServer] | None = None,
        unlisted: Sequence[model_discovery.UnlistedServer] = (),
        sleep: retries.Sleep | None = None,
    ) -> None:
        self._models = {model.title: model for model in models}
        if len(self._models) < len(models):
            titles = [model.title for model in models]
            duplicates = next(title for title in titles if titles.count(title) > 1)
            raise errors.SettingsError(model_words.same_title(duplicates))
        if (
            any(model.protocol == "anthropic" for model in models)
            and not model_discovery.has_anthropic_sdk()
        ):
            raise errors.SettingsError(model_words.NO_ANTHROPIC_SDK)
        self._keys = keys
        self._patience = patience
        self._servers = servers or {}
        self._unlisted = {
            server.model.title: model_discovery.FirstListedLlm(server, self._connect)
            for server in unlisted
        }
        self._sleep = sleep
        self._clients: list[_Client] = []
        self._llms: dict[str, ports.Llm] = {}
        self._opening: dict[str, asyncio.Task[ports.Llm]] = {}

    @property
    def titles(self) -> tuple[str, ...]:
        """Return the titles that people can choose, the default first."""
        return tuple(self._models)

    @property
    def problem(self) -> str:
        """Return why models of some server are not known yet; empty if all are."""
        return " ".join(llm.problem for llm in self._unlisted.values() if llm.problem)

    @property
    def first_titles(self) -> tuple[str, ...]:
        """Return the title of the first model of each protocol, that of the default first."""
        titles: dict[str, str] = {}
        for title, model in self._models.items():
            titles.setdefault(model.protocol, title)
        return tuple(titles.values())

    def model(self, title: str = "") -> settings.Model:
        """Return the settings of a model; of the default if no title is given.

        Raises:
            UnknownChoiceError: there is none of that title, or none at all.
        """
        if not self._models:
            raise model_errors.UnknownChoiceError(model_words.NO_MODEL)
        choice = self._models.get(title or self.titles[0])
        if choice is None:
            raise model_errors.UnknownChoiceError(model_words.unknown_model(title, self.titles))
        return choice

    async def llm(self, title: str = "") -> ports.Llm:
        """Return the `Llm` of a model.

        Raises:
            UnknownChoiceError: as above.
        """
        model = self.model(title)
        if (llm := self._llms.get(model.title)) is not None:
            return llm
        if model.title not in self._opening:
            opening = asyncio.create_task(self._open(model), name=f"open {model.title}")
            opening.add_done_callback(lambda _: self._opening.pop(model.title))
            self._opening[model.title] = opening
        # Others may wait for it, too.
        return await asyncio.shield(self._opening[model.title])

    async def _open(self, model: settings.Model) -> ports.Llm:
        # To import an SDK takes most of a second, and the first client reads all authorities.
        speaking: ports.Llm | None = self._unlisted.get(model.title)
        if speaking is None:
            speaking = await asyncio.to_thread(self._connect, model)
        patient = (
            retries.RetryingLlm(speaking, self._patience, sleep=self._sleep)
            if self._sleep
            else retries.RetryingLlm(speaking, self._patience)
        )
        self._llms[model.title] = patient
        return patient

    async def adopt(self, other: Catalogue) -> None:
        """Offer the models of another catalogue instead; calls that are under way end as they are.

        The other one is not to be closed: its connections are this one's from now on.
        """
        # What is still opened would be kept as the other's model of that title.
        await self._end_openings()
        self._models, self._keys = other._models, other._keys
        self._servers, self._unlisted = other._servers, other._unlisted
        self._llms = other._llms
        self._clients += other._clients

    async def close(self) -> None:
        """Close all connections."""
        await self._end_openings()
        clients, self._clients, self._llms = self._clients, [], {}
        async with contextlib.AsyncExitStack() as stack:
            for client in clients:
                stack.push_async_callback(client.close)

    async def _end_openings(self) -> None:
        """Wait until no model is being opened."""
        while self._opening:
            await asyncio.wait(self._opening.values())

    def starts_itself(self, title: str) -> bool:
        """Return whether a model's server is one that is started here, on this machine."""
        return self.model(title).title in self._servers

    def _connect(self, model: settings.Model) -> ports.Llm:
        if (server := self._servers.get(model.title)) is not None:
            return self._connect_on_demand(server, model)
        key = self._key(model)
        if model.protocol == "anthropic":
            return _NamingServerLlm(self._connect_anthropic(model), model, has_key=bool(key))
        from interpreter_bot.agent.llms import openai_clients

        client = openai_clients.client(model.base_url, key, self._patience)
        llm = openai_clients.llm(self._register_client(client), model)
        return _NamingServerLlm(llm, model, has_key=bool(key))

    def _connect_on_demand(
        self, server: retries.OnDemandServer, model: settings.Model
    ) -> ports.Llm:
        from interpreter_bot.agent.llms import openai_clients

        def connected(address: retries.ServerAddress) -> ports.Llm:
            client = openai_clients.local_client(address, self._patience)
            return openai_clients.llm(self._register_client(client), model)

        return retries.OnDemandServerLlm(server, connected)

    def _register_client(self, client: openai.AsyncOpenAI) -> openai.AsyncOpenAI:
        """Note what is to be closed."""
        self._clients.append(client)
        return client

    def _connect_anthropic(self, model: settings.Model) -> ports.Llm:
        from interpreter_bot.agent.llms import anthropic_messages, openai_clients

        timeout = openai_clients.timeout(self._patience)
        client = anthropic_messages.client(model.base_url, self._key(model), timeout)
        self._clients.append(client)
        return fallbacks.FallbackLlm(anthropic_messages.MessagesLlm(client, model))

    def _key(self, model: settings.Model) -> str:
        key = self._keys.get(model.api_key_variable)
        return key.get_secret_value() if key else ""


def collect_keys(
    models: Iterable[settings.Model], environment: Mapping[str, str]
) -> dict[str, pydantic.SecretStr]:
    """Collect the models' keys by the variables that hold them, and redact them from every log."""
    names = {model.api_key_variable for model in models} & environment.keys()
    logs.add_secrets(environment[name] for name in names)
    return {name: pydantic.SecretStr(environment[name]) for name in names}


class _NamingServerLlm:
    """A model whose errors name the server that they are about."""

    def __init__(self, llm: ports.Llm, model: settings.Model, *, has_key: bool) -> None:
        self._llm = llm
        self._model = model
        self._has_key = has_key

    async def reply(
        self, prompt: chat_messages.Prompt, *, emit: events.Emit
    ) -> chat_messages.ModelReply:
        try:
            return await self._llm.reply(prompt, emit=emit)
        except model_errors.ModelError as error:
            named_error = model_errors.name_server(error, self._model, has_key=self._has_key)
            if named_error is error:
                raise
            raise named_error from error
