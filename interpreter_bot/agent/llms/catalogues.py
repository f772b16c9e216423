"""The models that the settings list, opened when they are first used."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

import openai
import pydantic

from interpreter_bot import errors, settings
from interpreter_bot.agent import failures, ports
from interpreter_bot.agent.llms import awaiting, chat, choosing, fenced, responses, retrying, sight

_OWN_SILENCE_SECONDS: Final = 1200.0


class Catalogue:
    """Models by name, each with one connection pool and one memory of what it can do.

    Args:
        models: in the order people see them; the first is the default.
        keys: API keys by the name of the environment variable that holds them.
        patience: how long a server is waited for.
        servers: who gets the server of a model to run, by the model's title, where somebody has to.
        sleep: waits between tries.

    Raises:
        SettingsError: two models have one title.
    """

    def __init__(
        self,
        models: Sequence[settings.Model],
        *,
        keys: Mapping[str, pydantic.SecretStr],
        patience: settings.Patience,
        servers: Mapping[str, awaiting.Server] | None = None,
        sleep: retrying.Sleep | None = None,
    ) -> None:
        self._models = {model.title: model for model in models}
        if len(self._models) < len(models):
            titles = [model.title for model in models]
            twice = next(title for title in titles if titles.count(title) > 1)
            raise errors.SettingsError(f"Two models are called {twice!r}: give one a `label`.")
        self._keys = keys
        self._patience = patience
        self._servers = servers or {}
        self._sleep = sleep
        self._clients: list[openai.AsyncOpenAI] = []
        self._llms: dict[str, sight.Sighted] = {}

    @property
    def titles(self) -> tuple[str, ...]:
        """What people can choose, the default first."""
        return tuple(self._models)

    def model(self, title: str = "") -> settings.Model:
        """Return what the settings say of a model; of the default, where no title is given.

        Whether it can see is as its server showed meanwhile, where the settings leave it open.

        Raises:
            UnknownChoiceError: there is none of that title, or none at all.
        """
        if not self._models:
            raise failures.UnknownChoiceError("No language model is configured.")
        chosen = self._models.get(title or self.titles[0])
        if chosen is None:
            names = ", ".join(self.titles)
            raise failures.UnknownChoiceError(f"There is no such model. There are: {names}.")
        known = self._llms.get(chosen.title)
        if known is not None and known.is_blind:
            return chosen.model_copy(update={"can_see_images": "no"})
        return chosen

    def llm(self, title: str = "") -> ports.Llm:
        """Return a model to talk to.

        Raises:
            UnknownChoiceError: as above.
        """
        model = self.model(title)
        if model.title not in self._llms:
            speaking = self._speaking(model)
            patient = (
                retrying.Retrying(speaking, self._patience, sleep=self._sleep)
                if self._sleep
                else retrying.Retrying(speaking, self._patience)
            )
            self._llms[model.title] = sight.Sighted(patient, model)
        return self._llms[model.title]

    async def close(self) -> None:
        """Close all connections."""
        clients, self._clients, self._llms = self._clients, [], {}
        async with contextlib.AsyncExitStack() as stack:
            for client in clients:
                stack.push_async_callback(client.close)

    def _speaking(self, model: settings.Model) -> ports.Llm:
        server = self._servers.get(model.title)
        if server is None:
            return _speaking(self._opened(model), model)

        def connected(address: awaiting.Address) -> ports.Llm:
            return _speaking(self._connected(address), model)

        return awaiting.Awaiting(server, connected)

    def _opened(self, model: settings.Model) -> openai.AsyncOpenAI:
        key = self._keys.get(model.api_key_variable)
        patience = self._patience
        client = openai.AsyncOpenAI(
            # Local servers want none, but the SDK does.
            api_key=(key.get_secret_value() if key else "") or "none",
            base_url=model.base_url,
            max_retries=0,
            timeout=openai.Timeout(patience.silence_seconds, connect=patience.connect_seconds),
        )
        self._clients.append(client)
        return client

    def _connected(self, address: awaiting.Address) -> openai.AsyncOpenAI:
        """Open a connection to a server of our own, on this machine."""
        # It reads slowly, one request after the other, and its end is noticed at once.
        seconds = max(self._patience.silence_seconds, _OWN_SILENCE_SECONDS)
        timeout = openai.Timeout(seconds, connect=self._patience.connect_seconds)
        client = openai.AsyncOpenAI(
            api_key=address.api_key,
            base_url=address.base_url,
            max_retries=0,
            timeout=timeout,
            # It hangs up on connections that rest, often just when they are used again.
            default_headers={"Connection": "close"},
            # The proxy that the environment may name is for other machines.
            http_client=openai.DefaultAsyncHttpx2Client(timeout=timeout, trust_env=False),
        )
        self._clients.append(client)
        return client


def _speaking(client: openai.AsyncOpenAI, model: settings.Model) -> ports.Llm:
    match model.protocol:
        case "chat":
            return chat.Chat(client, model)
        case "responses":
            return responses.Responses(client, model)
        case "fenced":
            return fenced.Fenced(chat.Chat(client, model), is_small=model.is_small)
        case "auto":
            with_tools = chat.Chat(client, model)
            without = fenced.Fenced(with_tools, is_small=model.is_small)
            return choosing.Choosing(with_tools, without, is_small=model.is_small)
