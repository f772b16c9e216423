"""Models that the environment variables of OpenAI's and Anthropic's tools lead to."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import importlib.util
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from interpreter_bot import events, settings
from interpreter_bot.agent import chat_messages, model_errors, ports
from interpreter_bot.agent.llms import model_listing
from interpreter_bot.wording import model_words

_log = logging.getLogger(__name__)

_KEY: Final = "OPENAI_API_KEY"
_URL: Final = "OPENAI_BASE_URL"
_NAME: Final = "OPENAI_MODEL"
_DEFAULT: Final = "gpt-5-mini"
_ANTHROPICS_KEY: Final = "ANTHROPIC_API_KEY"
_ANTHROPICS_URL: Final = "ANTHROPIC_BASE_URL"
_ANTHROPICS_NAME: Final = "ANTHROPIC_MODEL"
_ANY: Final = "any"

Listing: TypeAlias = Callable[[], Awaitable[tuple[settings.Model, ...]]]
"""Asks a server for its models, the default first; raises `ModelError` if it lists none."""


@dataclasses.dataclass(frozen=True, slots=True)
class UnlistedServer:
    """A server that was asked for its models and did not list them.

    Attributes:
        model: stands for its first model until it does.
        listing: asks it again.
        problem: why it did not list them.
    """

    model: settings.Model
    listing: Listing
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

    `OPENAI_MODEL` names the model, or several, with commas; without it a server named by
    `OPENAI_BASE_URL` is asked for its models, and for OpenAI's own a small one is taken.
    `ANTHROPIC_MODEL` does the same for Anthropic, whose server is always asked without it.
    """
    # One server may offer a model over both protocols.
    models: dict[str, settings.Model] = {}
    unlisted: list[UnlistedServer] = []
    for listing in (await _openais(environment), await _anthropics(environment)):
        if isinstance(listing, UnlistedServer):
            unlisted.append(listing)
            models.setdefault(listing.model.title, listing.model)
        else:
            for model in listing:
                models.setdefault(model.title, model)
    return Discovery(tuple(models.values()), tuple(unlisted))


async def _anthropics(
    environment: Mapping[str, str],
) -> tuple[settings.Model, ...] | UnlistedServer:
    url, key = environment.get(_ANTHROPICS_URL, ""), environment.get(_ANTHROPICS_KEY, "")
    if not url and not key:
        return ()
    if not has_anthropics_sdk():
        _log.warning(model_words.NO_ANTHROPIC_SDK)
        return ()
    address = {"base_url": url} if url else {}
    if names := _names(environment.get(_ANTHROPICS_NAME, "")):
        return tuple(settings.Model(name=name, protocol="anthropic", **address) for name in names)
    return await _listed(settings.Model(name=_ANY, protocol="anthropic", **address), key)


def has_anthropics_sdk() -> bool:
    """Return whether Anthropic's SDK is installed, without importing it."""
    return importlib.util.find_spec("anthropic") is not None


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


async def _openais(environment: Mapping[str, str]) -> tuple[settings.Model, ...] | UnlistedServer:
    url, key = environment.get(_URL, ""), environment.get(_KEY, "")
    if not url and not key:
        return ()
    address = {"base_url": url} if url else {}
    names = _names(environment.get(_NAME, "")) or ([] if url else [_DEFAULT])
    if names:
        return tuple(settings.Model(name=name, **address) for name in names)
    return await _listed(settings.Model(name=_ANY, **address), key)


async def _listed(
    any_model: settings.Model, key: str
) -> tuple[settings.Model, ...] | UnlistedServer:
    try:
        return await _models(any_model, key)
    except model_errors.ModelError as error:
        label = f"model at {model_errors.server_name(any_model)}"
        model = any_model.model_copy(update={"label": label})
        return UnlistedServer(model, functools.partial(_models, model, key), error)


async def _models(any_model: settings.Model, key: str) -> tuple[settings.Model, ...]:
    """Ask a server for its models.

    Raises:
        ModelError: it lists none; the sentence names it.
    """
    try:
        models = await model_listing.listed(any_model, key)
    except model_errors.UnknownModelError as error:
        # Without such a page.
        raise model_errors.name_server(model_errors.UnlistedError(), any_model) from error
    except model_errors.ModelError as error:
        raise model_errors.name_server(error, any_model, has_key=bool(key)) from error
    if not models:
        raise model_errors.name_server(model_errors.UnlistedError(), any_model)
    return tuple(models)


class FirstListedLlm:
    """The first model of a server that did not list its models before; asked again until it does.

    Attributes:
        problem: why its models are not known; empty once they are.
    """

    def __init__(
        self, server: UnlistedServer, connect: Callable[[settings.Model], ports.Llm]
    ) -> None:
        self._listing = server.listing
        self._connect = connect
        self._llm: ports.Llm | None = None
        self.problem = str(server.problem)

    async def reply(
        self, prompt: chat_messages.Prompt, *, emit: events.Emit
    ) -> chat_messages.ModelReply:
        """Request a reply, once the server has listed its models."""
        if self._llm is None:
            try:
                first, *_ = await self._listing()
            except model_errors.ModelError as error:
                self.problem = str(error)
                raise
            self.problem = ""
            self._llm = await asyncio.to_thread(self._connect, first)
        return await self._llm.reply(prompt, emit=emit)
