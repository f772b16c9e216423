"""Finding out which models there are, where nobody listed them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import openai

from interpreter_bot import settings

_log = logging.getLogger(__name__)

_KEY: Final = "OPENAI_API_KEY"
_URL: Final = "OPENAI_BASE_URL"
_NAME: Final = "OPENAI_MODEL"
_DEFAULT: Final = "gpt-5-mini"
_SECONDS: Final = 5.0
_MOST: Final = 50


async def discover(environment: Mapping[str, str]) -> tuple[settings.Model, ...]:
    """Return what the variables that everybody knows lead to.

    `OPENAI_MODEL` names the model, or several, with commas; without it a server named by
    `OPENAI_BASE_URL` is asked what it has, and OpenAI's own is asked for a small one.

    Returns:
        The models, the default first; none where no variable is set or the server says nothing.
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
