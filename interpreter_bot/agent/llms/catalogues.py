"""The models that the settings list, opened when they are first used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import openai
import pydantic

from interpreter_bot import settings
from interpreter_bot.agent import failures, ports
from interpreter_bot.agent.llms import chat, choosing, fenced, responses, retrying


class Catalogue:
    """Models by name, each with one connection pool and one memory of what it can do.

    Args:
        models: in the order people see them; the first is the default.
        keys: API keys by the name of the environment variable that holds them.
        patience: how long a server is waited for.
        sleep: waits between tries.
    """

    def __init__(
        self,
        models: Sequence[settings.Model],
        *,
        keys: Mapping[str, pydantic.SecretStr],
        patience: settings.Patience,
        sleep: retrying.Sleep | None = None,
    ) -> None:
        self._models = {model.title: model for model in models}
        self._keys = keys
        self._patience = patience
        self._sleep = sleep
        self._clients: list[openai.AsyncOpenAI] = []
        self._llms: dict[str, ports.Llm] = {}

    @property
    def titles(self) -> tuple[str, ...]:
        """What people can choose, the default first."""
        return tuple(self._models)

    def model(self, title: str = "") -> settings.Model:
        """Return what the settings say of a model; of the default, where no title is given.

        Raises:
            UnknownChoiceError: there is none of that title, or none at all.
        """
        if not self._models:
            raise failures.UnknownChoiceError("No language model is configured.")
        chosen = self._models.get(title or self.titles[0])
        if chosen is None:
            names = ", ".join(self.titles)
            raise failures.UnknownChoiceError(f"There is no such model. There are: {names}.")
        return chosen

    def llm(self, title: str = "") -> ports.Llm:
        """Return a model to talk to.

        Raises:
            UnknownChoiceError: as above.
        """
        model = self.model(title)
        if model.title not in self._llms:
            client = self._opened(model)
            self._clients.append(client)
            speaking = _speaking(client, model)
            self._llms[model.title] = (
                retrying.Retrying(speaking, self._patience, sleep=self._sleep)
                if self._sleep
                else retrying.Retrying(speaking, self._patience)
            )
        return self._llms[model.title]

    async def close(self) -> None:
        """Close all connections."""
        clients, self._clients, self._llms = self._clients, [], {}
        for client in clients:
            await client.close()

    def _opened(self, model: settings.Model) -> openai.AsyncOpenAI:
        key = self._keys.get(model.api_key_variable)
        patience = self._patience
        return openai.AsyncOpenAI(
            # Local servers want none, but the SDK does.
            api_key=(key.get_secret_value() if key else "") or "none",
            base_url=model.base_url,
            max_retries=0,
            timeout=openai.Timeout(patience.silence_seconds, connect=patience.connect_seconds),
        )


def _speaking(client: openai.AsyncOpenAI, model: settings.Model) -> ports.Llm:
    match model.protocol:
        case "chat":
            return chat.Chat(client, model)
        case "responses":
            return responses.Responses(client, model)
        case "fenced":
            return fenced.Fenced(chat.Chat(client, model))
        case "auto":
            with_tools = chat.Chat(client, model)
            return choosing.Choosing(with_tools, fenced.Fenced(with_tools))
