"""Models that the environment variables of OpenAI's and Anthropic's tools lead to."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import logging
from collections.abc import Callable, Mapping
from typing import Final

from interpreter_bot import events, settings
from interpreter_bot.agent import chat_messages, model_errors, ports
from interpreter_bot.agent.llms import model_listing
from interpreter_bot.wording import model_words

_log = logging.getLogger(__name__)

_OPENAI_KEY: Final = "OPENAI_API_KEY"
_OPENAI_URL: Final = "OPENAI_BASE_URL"
_OPENAI_MODEL: Final = "OPENAI_MODEL"
_DEFAULT_OPENAI_MODEL: Final = "gpt-5-mini"
_ANTHROPIC_KEY: Final = "ANTHROPIC_API_KEY"
_ANTHROPIC_URL: Final = "ANTHROPIC_BASE_URL"
_ANTHROPIC_MODEL: Final = "ANTHROPIC_MODEL"
_PLACEHOLDER_NAME: Final = "any"


@dataclasses.dataclass(frozen=True, slots=True)
class UnlistedServer:
    """A server that was asked for its models and did not list them.

    Attributes:
        model: placeholder for its first model, until it lists its models.
        key: the API key.
        problem: why it did not list them.
    """

    model: settings.Model
    key: str = dataclasses.field(repr=False)
    problem: model_errors.ModelError


@dataclasses.dataclass(frozen=True, slots=True)
class Discovery:
    """The models that the environment names.

    Attributes:
        models: the default first, with a stand-in for each of `unlisted`.
        unlisted: servers that did not list their models.
    """

    models: tuple[settings.Model, ...]
    unlisted: tuple[UnlistedServer, ...]


async def discover(environment: Mapping[str, str]) -> Discovery:
    """Discover models from the environment variables that OpenAI's and Anthropic's tools use.

    `OPENAI_MODEL` names a model, or several separated by commas. Without it, the server at
    `OPENAI_BASE_URL` is asked for its models; OpenAI's own server is not asked, and a small model
    is used. `ANTHROPIC_MODEL` works alike, but Anthropic's own server is asked, too.
    """
    # One server may offer a model over both protocols.
    models: dict[str, settings.Model] = {}
    unlisted: list[UnlistedServer] = []
    for listing in (await _discover_openai(environment), await _discover_anthropic(environment)):
        if isinstance(listing, UnlistedServer):
            unlisted.append(listing)
            models.setdefault(listing.model.title, listing.model)
        else:
            for model in listing:
                models.setdefault(model.title, model)
    return Discovery(tuple(models.values()), tuple(unlisted))


async def _discover_anthropic(
    environment: Mapping[str, str],
) -> tuple[settings.Model, ...] | UnlistedServer:
    url, key = environment.get(_ANTHROPIC_URL, ""), environment.get(_ANTHROPIC_KEY, "")
    if not url and not key:
        return ()
    if not has_anthropic_sdk():
        _log.warning(model_words.NO_ANTHROPIC_SDK)
        return ()
    address = {"base_url": url} if url else {}
    if names := _split_names(environment.get(_ANTHROPIC_MODEL, "")):
        return tuple(settings.Model(name=name, protocol="anthropic", **address) for name in names)
    return await _list_models(
        settings.Model(name=_PLACEHOLDER_NAME, protocol="anthropic", **address), key
    )


def has_anthropic_sdk() -> bool:
    """Return whether Anthropic's SDK is installed, without importing it."""
    return importlib.util.find_spec("anthropic") is not None


def _split_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


async def _discover_openai(
    environment: Mapping[str, str],
) -> tuple[settings.Model, ...] | UnlistedServer:
    url, key = environment.get(_OPENAI_URL, ""), environment.get(_OPENAI_KEY, "")
    if not url and not key:
        return ()
    address = {"base_url": url} if url else {}
    names = _split_names(environment.get(_OPENAI_MODEL, "")) or (
        [] if url else [_DEFAULT_OPENAI_MODEL]
    )
    if names:
        return tuple(settings.Model(name=name, **address) for name in names)
    return await _list_models(settings.Model(name=_PLACEHOLDER_NAME, **address), key)


async def _list_models(
    any_model: settings.Model, key: str
) -> tuple[settings.Model, ...] | UnlistedServer:
    try:
        return await _fetch_models(any_model, key)
    except model_errors.ModelError as error:
        label = f"model at {model_errors.server_name(any_model)}"
        model = any_model.model_copy(update={"label": label})
        return UnlistedServer(model, key, error)


async def _fetch_models(any_model: settings.Model, key: str) -> tuple[settings.Model, ...]:
    """Ask a server for its models.

    Raises:
        ModelError: it lists none; the sentence names it.
    """
    try:
        models = await model_listing.list_models(any_model, key)
    except model_errors.UnknownModelError as error:
        # The server has no page that lists models.
        raise model_errors.name_server(model_errors.NoModelListError(), any_model) from error
    except model_errors.ModelError as error:
        raise model_errors.name_server(error, any_model, has_key=bool(key)) from error
    if not models:
        raise model_errors.name_server(model_errors.NoModelListError(), any_model)
    return tuple(models)


class FirstListedLlm:
    """The first model of a server that did not list its models before; asked again until it does.

    Attributes:
        problem: why its models are not known; empty once they are.
    """

    def __init__(
        self, server: UnlistedServer, connect: Callable[[settings.Model], ports.Llm]
    ) -> None:
        self._server = server
        self._connect = connect
        self._llm: ports.Llm | None = None
        self.problem = str(server.problem)

    async def reply(
        self, prompt: chat_messages.Prompt, *, emit: events.Emit
    ) -> chat_messages.ModelReply:
        """Request a reply, once the server has listed its models."""
        if self._llm is None:
            try:
                first_model, *_ = await _fetch_models(self._server.model, self._server.key)
            except model_errors.ModelError as error:
                self.problem = str(error)
                raise
            self.problem = ""
            self._llm = await asyncio.to_thread(self._connect, first_model)
        return await self._llm.reply(prompt, emit=emit)
