"""List the models of a server by one plain request, as importing an SDK for that takes a second."""

from __future__ import annotations

import asyncio
import importlib
import logging
from typing import Annotated, Final, TypeAlias

import httpx2
import pydantic

from interpreter_bot import settings
from interpreter_bot.agent import model_errors
from interpreter_bot.agent.llms import tls_contexts

_log = logging.getLogger(__name__)

_TIMEOUT_SECONDS: Final = 5.0
_MAX_MODELS: Final = 50
# The list of a server with models of many makers takes a mebibyte.
_MAX_BYTES: Final = 4 * 1024 * 1024
_ANTHROPIC_VERSION: Final = "2026-10-21"
_CONTEXT_TOKENS: Final = 200_000
_ANSWER_TOKENS: Final = 16_384
_DEFAULT_LINE: Final = "sonnet"

_Tokens: TypeAlias = Annotated[int, pydantic.Field(gt=0)]


class _Capability(pydantic.BaseModel):
    supported: bool | None = None


class _Capabilities(pydantic.BaseModel):
    image_input: _Capability | None = None


class _ListedModel(pydantic.BaseModel):
    """A model in a server's list; only Anthropic's servers give more than its id."""

    id: str
    line: str | None = None
    lifecycle: str | None = None
    max_input_tokens: _Tokens | None = None
    max_tokens: _Tokens | None = None
    capabilities: _Capabilities | None = None


class _Listing(pydantic.BaseModel):
    data: list[_ListedModel]


async def list_models(server: settings.Model, key: str) -> list[settings.Model]:
    """List the models of a server, the default first; `server` has its address and protocol.

    Raises:
        ModelError: the server does not list them.
    """
    is_anthropic = server.protocol == "anthropic"
    url = server.base_url.rstrip("/")
    # Uncompressed, so that the limit holds for the bytes that are received.
    headers = {"Authorization": f"Bearer {key or 'none'}", "Accept-Encoding": "identity"}
    if is_anthropic:
        url = f"{url.removesuffix('/v1')}/v1"
        headers["anthropic-version"] = _ANTHROPIC_VERSION
    try:
        verify = await asyncio.to_thread(tls_contexts.shared_context)
        params = {"limit": str(_MAX_MODELS)} if is_anthropic else None
        async with (
            asyncio.timeout(_TIMEOUT_SECONDS),
            httpx2.AsyncClient(verify=verify) as client,
            client.stream("GET", f"{url}/models", headers=headers, params=params) as response,
        ):
            content = await _read_content(response)
        if not response.is_success:
            raise await _translate_refusal(response, content)
        models = _Listing.model_validate_json(content).data
    except (TimeoutError, httpx2.TimeoutException) as error:
        raise model_errors.ResponseTimeoutError from error
    except httpx2.HTTPError as error:
        raise model_errors.UnreachableError from error
    except pydantic.ValidationError as error:
        raise model_errors.MalformedResponseError from error
    if is_anthropic:
        models = [model for model in models if model.lifecycle not in ("deprecated", "retired")]
        models.sort(key=lambda model: model.line != _DEFAULT_LINE)
    models = [model for model in models if model.id][:_MAX_MODELS]
    return [_make_model(model, server) for model in models]


async def _read_content(response: httpx2.Response) -> bytes:
    """Read an answer as it came.

    Raises:
        MalformedResponseError: it is longer than any list of models.
    """
    content = bytearray()
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) > _MAX_BYTES:
            raise model_errors.MalformedResponseError
    return bytes(content)


async def _translate_refusal(response: httpx2.Response, content: bytes) -> model_errors.ModelError:
    # Only here, as it imports an SDK.
    await asyncio.to_thread(importlib.import_module, "interpreter_bot.agent.llms.sdk_errors")
    from interpreter_bot.agent.llms import sdk_errors

    status = response.status_code
    _log.warning("a model server refused to list its models: status %d", status)
    text = content.decode("utf-8", "replace")
    return sdk_errors.translate_status(status, text, response.headers, has_pictures=False)


def _make_model(model: _ListedModel, server: settings.Model) -> settings.Model:
    base_model = settings.Model(name=model.id, base_url=server.base_url)
    if server.protocol != "anthropic":
        return base_model
    image_input = model.capabilities and model.capabilities.image_input
    can_see_images = image_input.supported if image_input else None
    return base_model.model_copy(
        update={
            "protocol": "anthropic",
            "context_tokens": min(model.max_input_tokens or _CONTEXT_TOKENS, _CONTEXT_TOKENS),
            "answer_tokens": min(model.max_tokens or _ANSWER_TOKENS, _ANSWER_TOKENS),
            "can_see_images": can_see_images is not False,
        }
    )
