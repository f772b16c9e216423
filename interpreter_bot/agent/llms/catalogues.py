"""The catalogue of models. Each model is connected when it is first used."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import pydantic

from interpreter_bot import errors, events, logs, settings
from interpreter_bot.agent import chat_messages, model_errors, ports
from interpreter_bot.agent.llms import fallbacks, model_discovery, retries
from interpreter_bot.wording import model_words


class _Client(Protocol):
    """A connection pool of either SDK."""

    async def close(self) -> None:
        """Close all connections."""


class Catalogue:
    """All models by title. Each has one connection pool, and remembers what its server refused.

    Args:
        models: in the order in which people see them; the first is the default.
        keys: API keys by the name of the environment variable that has them.
        patience: the timeouts.
        max_retries: retries of each request.
        servers: the servers that are started on demand, by the title of their model.
        unlisted: servers whose models are not known yet; each has a placeholder in `models`.
        sleep: waits between retries.

    Raises:
        SettingsError: two models have the same title, or a needed library is not installed.
    """

    def __init__(
        self,
        models: Sequence[settings.Model],
        *,
        keys: Mapping[str, pydantic.SecretStr],
        patience: settings.Patience,
        servers: Mapping[str, retries.OnDemandServer] | None = None,
        unlisted: Sequence[model_discovery.UnlistedServer] = (),
        max_retries: int = retries.MAX_RETRIES,
        sleep: retries.Sleep = asyncio.sleep,
    ) -> None:
        self._models = {model.title: model for model in models}
        if len(self._models) < len(models):
            titles = [model.title for model in models]
            duplicate_title = next(title for title in titles if titles.count(title) > 1)
            raise errors.SettingsError(model_words.same_title(duplicate_title))
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
        self._max_retries = max_retries
        self._sleep = sleep
        self._clients: list[_Client] = []
        self._llms: dict[str, ports.Llm] = {}
        self._open_tasks: dict[str, asyncio.Task[ports.Llm]] = {}

    @property
    def titles(self) -> tuple[str, ...]:
        """Return the titles that people can choose, the default first."""
        return tuple(self._models)

    @property
    def problem(self) -> str:
        """Return why the models of some server are not known yet; empty if all are known."""
        return " ".join(llm.problem for llm in self._unlisted.values() if llm.problem)

    @property
    def one_title_per_protocol(self) -> tuple[str, ...]:
        """Return the title of the first model of each protocol; the default model comes first."""
        titles: dict[str, str] = {}
        for title, model in self._models.items():
            titles.setdefault(model.protocol, title)
        return tuple(titles.values())

    def find_model(self, title: str = "") -> settings.Model:
        """Return the settings of a model; without a title, those of the default model.

        Raises:
            UnknownChoiceError: no model has this title, or there are no models.
        """
        if not self._models:
            raise model_errors.UnknownChoiceError(model_words.NO_MODEL)
        choice = self._models.get(title or self.titles[0])
        if choice is None:
            raise model_errors.UnknownChoiceError(model_words.unknown_model(title, self.titles))
        return choice

    async def open_llm(self, title: str = "") -> ports.Llm:
        """Return the `Llm` of a model, which is connected on first use.

        Raises:
            UnknownChoiceError: no model has this title, or there are no models.
        """
        model = self.find_model(title)
        if (llm := self._llms.get(model.title)) is not None:
            return llm
        if model.title not in self._open_tasks:
            open_task = asyncio.create_task(self._open(model), name=f"open {model.title}")
            open_task.add_done_callback(lambda _: self._open_tasks.pop(model.title))
            self._open_tasks[model.title] = open_task
        # Shielded, because other callers may wait for the same task.
        return await asyncio.shield(self._open_tasks[model.title])

    async def _open(self, model: settings.Model) -> ports.Llm:
        # In a thread, because importing an SDK and reading certificate authorities take a second.
        llm: ports.Llm | None = self._unlisted.get(model.title)
        if llm is None:
            llm = await asyncio.to_thread(self._connect, model)
        retrying_llm = retries.RetryingLlm(llm, max_retries=self._max_retries, sleep=self._sleep)
        self._llms[model.title] = retrying_llm
        return retrying_llm

    async def adopt(self, other: Catalogue) -> None:
        """Replace the models by those of another catalogue; running calls continue unchanged.

        This catalogue takes over the other one's connections, so do not close the other one.
        """
        # A task that ended later would replace a model of the other catalogue.
        await self._wait_for_open_tasks()
        self._models, self._keys = other._models, other._keys
        self._servers, self._unlisted = other._servers, other._unlisted
        self._llms = other._llms
        self._clients += other._clients

    async def close(self) -> None:
        """Close all connections."""
        await self._wait_for_open_tasks()
        clients, self._clients, self._llms = self._clients, [], {}
        async with contextlib.AsyncExitStack() as stack:
            for client in clients:
                stack.push_async_callback(client.close)

    async def _wait_for_open_tasks(self) -> None:
        """Wait until no model is being opened."""
        while self._open_tasks:
            await asyncio.wait(self._open_tasks.values())

    def is_started_locally(self, title: str) -> bool:
        """Return whether the bot starts the model's server on this machine."""
        return self.find_model(title).title in self._servers

    def _connect(self, model: settings.Model) -> ports.Llm:
        if (server := self._servers.get(model.title)) is not None:
            return self._connect_on_demand(server, model)
        key = self._find_key(model)
        if model.protocol == "anthropic":
            return _NamingServerLlm(self._connect_anthropic(model, key), model, has_key=bool(key))
        from interpreter_bot.agent.llms import openai_clients

        client = openai_clients.open_client(model.base_url, key, self._patience)
        self._clients.append(client)
        llm = openai_clients.make_llm(client, model)
        return _NamingServerLlm(llm, model, has_key=bool(key))

    def _connect_on_demand(
        self, server: retries.OnDemandServer, model: settings.Model
    ) -> ports.Llm:
        from interpreter_bot.agent.llms import openai_clients

        def connect_to(address: retries.ServerAddress) -> ports.Llm:
            client = openai_clients.open_local_client(address, self._patience)
            self._clients.append(client)
            return openai_clients.make_llm(client, model)

        return retries.OnDemandServerLlm(server, connect_to)

    def _connect_anthropic(self, model: settings.Model, key: str) -> ports.Llm:
        from interpreter_bot.agent.llms import anthropic_messages, openai_clients

        timeout = openai_clients.make_timeout(self._patience)
        client = anthropic_messages.open_client(model.base_url, key, timeout)
        self._clients.append(client)
        return fallbacks.FallbackLlm(anthropic_messages.MessagesLlm(client, model))

    def _find_key(self, model: settings.Model) -> str:
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
    """A model whose errors name its server."""

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
