"""Models over OpenAI's protocols: connections to their servers, and which protocol each speaks.

Imported only where a model needs it: its SDK takes most of a second.
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


def timeout(patience: settings.Patience) -> openai.Timeout:
    """Return how long a server is waited for."""
    return openai.Timeout(patience.silence_seconds, connect=_CONNECT_SECONDS)


def client(base_url: str, api_key: str, patience: settings.Patience) -> openai.AsyncOpenAI:
    """Open a connection pool.

    Args:
        base_url: of the server.
        api_key: empty if the server needs none.
        patience: how long it is waited for.
    """
    timeouts = timeout(patience)
    return openai.AsyncOpenAI(
        # Local servers need no key, but the SDK does.
        api_key=api_key or "none",
        base_url=base_url,
        max_retries=0,
        timeout=timeouts,
        # No redirects: keys and people's words go to the address that was set, and to no other.
        http_client=openai.DefaultAsyncHttpx2Client(
            timeout=timeouts, verify=tls_contexts.shared_context(), follow_redirects=False
        ),
    )


def local_client(address: retries.ServerAddress, patience: settings.Patience) -> openai.AsyncOpenAI:
    """Open a connection to a server started by the bot on this machine."""
    # Its prompts are processed slowly and one after the other, and its end is noticed at once.
    seconds = max(patience.silence_seconds, _LOCAL_SILENCE_SECONDS)
    timeouts = openai.Timeout(seconds, connect=_CONNECT_SECONDS)
    return openai.AsyncOpenAI(
        api_key=address.api_key,
        base_url=address.base_url,
        max_retries=0,
        timeout=timeouts,
        # It closes idle connections, often at the moment they are used again.
        default_headers={"Connection": "close"},
        # Proxies and authorities of the environment are for other machines, so they are ignored.
        # This server does not use TLS, so no certificate is trusted.
        http_client=openai.DefaultAsyncHttpx2Client(
            timeout=timeouts, trust_env=False, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        ),
    )


def llm(client: openai.AsyncOpenAI, model: settings.Model) -> ports.Llm:
    """Return a model that speaks the protocol of its settings."""
    if model.protocol == "responses":
        return fallbacks.FallbackLlm(responses_api.ResponsesLlm(client, model))
    chat = chat_completions.ChatCompletionsLlm(client, model)
    if model.protocol == "chat":
        return fallbacks.FallbackLlm(chat)
    fenced = code_block_llm.FencedLlm(chat, is_small=model.is_small)
    if model.protocol == "fenced" or model.is_small:
        return fallbacks.FallbackLlm(fenced)
    return fallbacks.FallbackLlm(chat, fenced)
