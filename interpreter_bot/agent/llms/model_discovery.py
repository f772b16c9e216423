"""Models that the environment variables of OpenAI's and Anthropic's tools lead to."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
from collections.abc import Mapping
from typing import Final

from interpreter_bot import settings
from interpreter_bot.agent import model_errors

_log = logging.getLogger(__name__)

_KEY: Final = "OPENAI_API_KEY"
_URL: Final = "OPENAI_BASE_URL"
_NAME: Final = "OPENAI_MODEL"
_DEFAULT: Final = "gpt-5-mini"
_PACKAGE: Final = "interpreter_bot.agent.llms"
_ANTHROPICS_KEY: Final = "ANTHROPIC_API_KEY"
_ANTHROPICS_URL: Final = "ANTHROPIC_BASE_URL"
_ANTHROPICS_NAME: Final = "ANTHROPIC_MODEL"
_ANTHROPICS_DEFAULT: Final = "claude-sonnet-5"
NO_SDK: Final = (
    "Models over Anthropic's protocol need the extra `anthropic`: "
    "pip install 'interpreter-bot[anthropic]'."
)
"""What to do where Anthropic's SDK is not installed."""
_SECONDS: Final = 5.0
_MOST: Final = 50


async def discover(environment: Mapping[str, str]) -> tuple[settings.Model, ...]:
    """Discover models from the environment variables that OpenAI's and Anthropic's tools use.

    `OPENAI_MODEL` names the model, or several, with commas; without it a server named by
    `OPENAI_BASE_URL` is asked for its models, and for OpenAI's own a small one is taken.
    `ANTHROPIC_MODEL` does the same for Anthropic, whose server is always asked without it.

    Returns:
        The models, the default first; none if no variable is set or the server does not answer.
    """
    found: dict[str, settings.Model] = {}
    for model in (*await _openais(environment), *await _anthropics(environment)):
        # One server may offer a model over both protocols.
        found.setdefault(model.title, model)
    return tuple(found.values())


async def _anthropics(environment: Mapping[str, str]) -> tuple[settings.Model, ...]:
    url, key = environment.get(_ANTHROPICS_URL, ""), environment.get(_ANTHROPICS_KEY, "")
    if not url and not key:
        return ()
    if not has_anthropics_sdk():
        _log.warning(NO_SDK)
        return ()
    address = {"base_url": url} if url else {}
    names = _names(environment.get(_ANTHROPICS_NAME, ""))
    if not names:
        # Takes seconds, and must not be done by the event loop.
        await asyncio.to_thread(importlib.import_module, f"{_PACKAGE}.anthropic_messages")
        from interpreter_bot.agent.llms import anthropic_messages

        base_url = settings.Model(name="any", protocol="anthropic", **address).base_url
        try:
            return tuple(await anthropic_messages.listed(base_url, key, seconds=_SECONDS))
        except model_errors.ModelError as error:
            _log.warning("Anthropic's server does not list its models: %s", error)
            names = [] if url else [_ANTHROPICS_DEFAULT]
    return tuple(settings.Model(name=name, protocol="anthropic", **address) for name in names)


def has_anthropics_sdk() -> bool:
    """Say whether Anthropic's SDK is installed, without importing it."""
    return importlib.util.find_spec("anthropic") is not None


def _names(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",") if name.strip()]


async def _openais(environment: Mapping[str, str]) -> tuple[settings.Model, ...]:
    url, key = environment.get(_URL, ""), environment.get(_KEY, "")
    if not url and not key:
        return ()
    names = _names(environment.get(_NAME, ""))
    if not names:
        names = await _listed(url, key) if url else [_DEFAULT]
    if url:
        return tuple(settings.Model(name=name, base_url=url) for name in names)
    return tuple(settings.Model(name=name) for name in names)


async def _listed(url: str, key: str) -> list[str]:
    # Takes long, and must not be done by the event loop.
    await asyncio.to_thread(importlib.import_module, f"{_PACKAGE}.openai_clients")
    from interpreter_bot.agent.llms import openai_clients

    return (await openai_clients.listed(url, key, seconds=_SECONDS))[:_MOST]
