"""The catalogue of models: those of the settings, or discovered, opened when first used."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Final

import openai
import pydantic

from interpreter_bot import errors, settings
from interpreter_bot.agent import model_errors, ports
from interpreter_bot.agent.llms import (
    chat_completions,
    fenced_llm,
    picture_support,
    responses_api,
    retries,
    tool_support,
)

_log = logging.getLogger(__name__)

_KEY: Final = "OPENAI_API_KEY"
_URL: Final = "OPENAI_BASE_URL"
_NAME: Final = "OPENAI_MODEL"
_DEFAULT: Final = "gpt-5-mini"
_SECONDS: Final = 5.0
_MOST: Final = 50

_OWN_SILENCE_SECONDS: Final = 1200.0


async def discover(environment: Mapping[str, str]) -> tuple[settings.Model, ...]:
    """Discover models from the environment variables that OpenAI's tools use.

    `OPENAI_MODEL` names the model, or several, with commas; without it a server named by
    `OPENAI_BASE_URL` is asked for its models, and for OpenAI's own a small one is taken.

    Returns:
        The models, the default first; none if no variable is set or the server does not answer.
    """
    url, key = environment.get(_URL, ""), environment.get(_KEY, "")
    if not url and not key:
        return ()
    names = [name.strip() for name in environment.get(_NAME, "").split(",") if name.strip()]
    if not names:
        names = await _listed(url, key) if url else [_DEFAULT]
    if url:
        return tuple(settings.Model(name=name, base_url=url) for name in names)
    return tuple(settings.Model(name=name) for name in names)


async def _listed(url: str, key: str) -> list[str]:
    client = openai.AsyncOpenAI(
        base_url=url, api_key=key or "none", timeout=_SECONDS, max_retries=0
    )
    async with client:
        try:
            return [model.id async for model in client.models.list()][:_MOST]
        except openai.OpenAIError as error:
            _log.warning("the server of %s does not list its models: %s", _URL, error)
            return []


class Catalogue:
    """Models by name, each with one connection pool and one memory of its abilities.

    Args:
        models: in the order people see them; the first is the default.
        keys: API keys by the name of the environment variable that holds them.
        patience: how long a server is waited for.
        servers: by model title, what starts the server of a model that has to be started.
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
        servers: Mapping[str, retries.StartingServer] | None = None,
        sleep: retries.Sleep | None = None,
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
        self._llms: dict[str, picture_support.PictureFallbackLlm] = {}

    @property
    def titles(self) -> tuple[str, ...]:
        """Return the titles that people can choose, the default first."""
        return tuple(self._models)

    def model(self, title: str = "") -> settings.Model:
        """Return the settings of a model; of the default if no title is given.

        Where the settings leave open whether it can see, the answer is what its server has shown so
        far.

        Raises:
            UnknownChoiceError: there is none of that title, or none at all.
        """
        if not self._models:
            raise model_errors.UnknownChoiceError("No language model is configured.")
        chosen = self._models.get(title or self.titles[0])
        if chosen is None:
            names = ", ".join(self.titles)
            raise model_errors.UnknownChoiceError(f"There is no such model. There are: {names}.")
        known = self._llms.get(chosen.title)
        if known is not None and known.is_blind:
            return chosen.model_copy(update={"can_see_images": "no"})
        return chosen

    def llm(self, title: str = "") -> ports.Llm:
        """Return the `Llm` of a model.

        Raises:
            UnknownChoiceError: as above.
        """
        model = self.model(title)
        if model.title not in self._llms:
            speaking = self._speaking(model)
            patient = (
                retries.RetryingLlm(speaking, self._patience, sleep=self._sleep)
                if self._sleep
                else retries.RetryingLlm(speaking, self._patience)
            )
            self._llms[model.title] = picture_support.PictureFallbackLlm(patient, model)
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

        def connected(address: retries.ServerAddress) -> ports.Llm:
            return _speaking(self._connected(address), model)

        return retries.StartingServerLlm(server, connected)

    def _opened(self, model: settings.Model) -> openai.AsyncOpenAI:
        key = self._keys.get(model.api_key_variable)
        patience = self._patience
        client = openai.AsyncOpenAI(
            # Local servers need no key, but the SDK does.
            api_key=(key.get_secret_value() if key else "") or "none",
            base_url=model.base_url,
            max_retries=0,
            timeout=openai.Timeout(patience.silence_seconds, connect=patience.connect_seconds),
        )
        self._clients.append(client)
        return client

    def _connected(self, address: retries.ServerAddress) -> openai.AsyncOpenAI:
        """Open a connection to a server started by the bot on this machine."""
        # Its prompts are processed slowly and one after the other, and its end is noticed at once.
        seconds = max(self._patience.silence_seconds, _OWN_SILENCE_SECONDS)
        timeout = openai.Timeout(seconds, connect=self._patience.connect_seconds)
        client = openai.AsyncOpenAI(
            api_key=address.api_key,
            base_url=address.base_url,
            max_retries=0,
            timeout=timeout,
            # It closes idle connections, often at the moment they are used again.
            default_headers={"Connection": "close"},
            # The proxy that the environment may name is for other machines.
            http_client=openai.DefaultAsyncHttpx2Client(timeout=timeout, trust_env=False),
        )
        self._clients.append(client)
        return client


def _speaking(client: openai.AsyncOpenAI, model: settings.Model) -> ports.Llm:
    match model.protocol:
        case "chat":
            return chat_completions.ChatCompletionsLlm(client, model)
        case "responses":
            return responses_api.ResponsesLlm(client, model)
        case "fenced":
            return fenced_llm.FencedLlm(
                chat_completions.ChatCompletionsLlm(client, model), is_small=model.is_small
            )
        case "auto":
            with_tools = chat_completions.ChatCompletionsLlm(client, model)
            without = fenced_llm.FencedLlm(with_tools, is_small=model.is_small)
            return tool_support.AdaptiveLlm(with_tools, without, is_small=model.is_small)
