"""Models over OpenAI's protocols: opens connections to servers, and chooses the protocol.

Imported only if a model needs it, because importing the SDK takes most of a second.
"""

from __future__ import annotations

import ssl
from typing import Final

import openai

from interpreter_bot import settings
from interpreter_bot.agent import ports
from interpreter_bot.agent.llms import (
    chat_completions,
    code_block_llm,
    fallbacks,
    responses_api,
    retries,
    tls_contexts,
)

_CONNECT_SECONDS: Final = 10.0
_LOCAL_SILENCE_SECONDS: Final = 1200.0


def make_timeout(patience: settings.Patience) -> openai.Timeout:
    """Make the timeouts of requests to a server."""
    return openai.Timeout(patience.silence_seconds, connect=_CONNECT_SECONDS)


def open_client(base_url: str, api_key: str, patience: settings.Patience) -> openai.AsyncOpenAI:
    """Open a connection pool.

    Args:
        base_url: the server's URL.
        api_key: empty if the server needs none.
        patience: the timeouts.
    """
    timeouts = make_timeout(patience)
    return openai.AsyncOpenAI(
        # Local servers need no key, but the SDK does.
        api_key=api_key or "none",
        base_url=base_url,
        max_retries=0,
        timeout=timeouts,
        # No redirects: keys and people's words are sent only to the configured address.
        http_client=openai.DefaultAsyncHttpx2Client(
            timeout=timeouts, verify=tls_contexts.shared_context(), follow_redirects=False
        ),
    )


def open_local_client(
    address: retries.ServerAddress, patience: settings.Patience
) -> openai.AsyncOpenAI:
    """Open a connection to a server started by the bot on this machine."""
    # A long timeout, because it processes prompts slowly and one by one. A crash closes the
    # connection, so it is noticed without a timeout.
    seconds = max(patience.silence_seconds, _LOCAL_SILENCE_SECONDS)
    timeouts = openai.Timeout(seconds, connect=_CONNECT_SECONDS)
    return openai.AsyncOpenAI(
        api_key=address.api_key,
        base_url=address.base_url,
        max_retries=0,
        timeout=timeouts,
        # One connection per request, because the server may close an idle connection at the moment
        # when it is used again.
        default_headers={"Connection": "close"},
        # Proxies and authorities of the environment are for other machines, so they are ignored.
        # This server does not use TLS, so no certificate is trusted.
        http_client=openai.DefaultAsyncHttpx2Client(
            timeout=timeouts, trust_env=False, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        ),
    )


def make_llm(client: openai.AsyncOpenAI, model: settings.Model) -> ports.Llm:
    """Make a model that uses the protocol of its settings."""
    if model.protocol == "responses":
        return fallbacks.FallbackLlm(responses_api.ResponsesLlm(client, model))
    chat = chat_completions.ChatCompletionsLlm(client, model)
    if model.protocol == "chat":
        return fallbacks.FallbackLlm(chat)
    fenced = code_block_llm.FencedLlm(chat, is_small=model.is_small)
    if model.protocol == "fenced" or model.is_small:
        return fallbacks.FallbackLlm(fenced)
    return fallbacks.FallbackLlm(chat, fenced)
