"""Models for which a person enters a key or an address; they are tried before use."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Final

import httpx2

from interpreter_bot import errors, events, settings
from interpreter_bot.agent import chat_messages, model_errors
from interpreter_bot.agent.llms import catalogues, model_discovery, model_listing
from interpreter_bot.egress import address_rules
from interpreter_bot.setting_groups import header_values
from interpreter_bot.wording import model_words

TRIAL_PATIENCE: Final = settings.Patience(silence_seconds=30.0)
"""How long a trial waits for a model."""

LOCAL_SERVERS: Final[Mapping[str, int]] = {"Ollama": 11434, "llama.cpp": 8080, "vLLM": 8000}
"""Ports on which servers of models listen by default, on this machine."""

_MAX_CHARACTERS: Final = 1000
_LOCAL_SERVER_TIMEOUT_SECONDS: Final = 2.0
_LOOKUP_SECONDS: Final = 5.0
# Models that think first need some room.
_ANSWER_TOKENS: Final = 512


def make_variables(key: str, address: str) -> dict[str, str]:
    """Return the environment variables that correspond to a key and an address.

    Raises:
        SettingsError: one of them cannot be used; the sentence says why.
    """
    key, address = key.strip(), address.strip()
    if not key and not address:
        raise errors.SettingsError(model_words.NOTHING_ENTERED)
    if len(key) > _MAX_CHARACTERS or len(address) > _MAX_CHARACTERS:
        raise errors.SettingsError(model_words.entry_too_long(_MAX_CHARACTERS))
    if fault := header_values.key_fault(key) if key else "":
        raise errors.SettingsError(model_words.bad_key(fault))
    if fault := header_values.address_fault(address) if address else "":
        raise errors.SettingsError(model_words.bad_address(fault))
    maker = "ANTHROPIC" if key.startswith("sk-ant-") else "OPENAI"
    entries = {f"{maker}_API_KEY": key, f"{maker}_BASE_URL": address}
    return {name: value for name, value in entries.items() if value}


async def refuse_reserved(address: str, lookup_seconds: float = _LOOKUP_SECONDS) -> None:
    """Refuse an address at which clouds hand out credentials.

    Addresses of this machine and of private networks are allowed: local models have them.

    Raises:
        SettingsError: the address is reserved, or its name cannot be resolved in time.
    """
    try:
        # Parsed like the client that will connect to it.
        host = httpx2.URL(address.strip()).host
        async with asyncio.timeout(lookup_seconds):
            entries = await asyncio.get_running_loop().getaddrinfo(
                host, None, type=socket.SOCK_STREAM
            )
    except TimeoutError as error:
        raise errors.SettingsError(model_words.SLOW_NAME) from error
    except (httpx2.InvalidURL, OSError, UnicodeError):
        # Perhaps only a proxy can resolve the name. If not, the trial of the model fails.
        return
    if any(address_rules.is_reserved(str(entry[4][0])) for entry in entries):
        raise errors.SettingsError(model_words.RESERVED_ADDRESS)


async def open_tested(
    environment: Mapping[str, str], patience: settings.Patience
) -> catalogues.Catalogue:
    """Open the models that variables lead to, once the first has answered; costs some tokens.

    Args:
        environment: has the variables.
        patience: how long the opened models are waited for; the trial is quicker.

    Raises:
        BotError: it does not answer; the sentence says why.
    """
    discovery = await model_discovery.discover(environment)
    for server in discovery.unlisted:
        raise server.problem
    if not discovery.models:
        # The library for that protocol is missing.
        raise errors.SettingsError(model_words.NO_ANTHROPIC_SDK)
    keys = catalogues.collect_keys(discovery.models, environment)
    trial = catalogues.Catalogue(
        discovery.models, keys=keys, patience=TRIAL_PATIENCE, max_retries=0
    )
    try:
        await require_answer(trial, trial.titles[0])
    finally:
        await trial.close()
    return catalogues.Catalogue(discovery.models, keys=keys, patience=patience)


async def require_answer(catalogue: catalogues.Catalogue, title: str) -> None:
    """Ask a model for one word.

    Raises:
        BotError: it does not answer; the sentence says why.
    """
    prompt = chat_messages.Prompt(
        system="Answer in one word.",
        messages=(chat_messages.UserMessage("Say OK."),),
        answer_tokens=_ANSWER_TOKENS,
    )
    llm = await catalogue.open_llm(title)
    await llm.reply(prompt, emit=events.discard)


async def find_local_servers() -> dict[str, tuple[str, list[str]]]:
    """Look for servers of models on this machine; return their addresses and models by name."""

    async def probe(port: int) -> tuple[str, list[str]]:
        address = f"http://127.0.0.1:{port}/v1"
        try:
            async with asyncio.timeout(_LOCAL_SERVER_TIMEOUT_SECONDS):
                models = await model_listing.list_models(
                    settings.Model(name="any", base_url=address), ""
                )
        except (model_errors.ModelError, TimeoutError):
            return address, []
        return address, [model.name for model in models]

    servers = await asyncio.gather(*map(probe, LOCAL_SERVERS.values()))
    return {name: server for name, server in zip(LOCAL_SERVERS, servers, strict=True) if server[1]}
