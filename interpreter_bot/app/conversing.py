"""Conversations: kernels, models, memory, and what looks after them."""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

import pydantic

from interpreter_bot import logs, settings
from interpreter_bot.agent.llms import catalogues, discovering
from interpreter_bot.agent.llms.embedded import opening
from interpreter_bot.app import spools
from interpreter_bot.kernels import pools
from interpreter_bot.sessions import caring, conversations, reaping, turns
from interpreter_bot.store import addresses, databases

_NO_MODEL: Final = (
    "No language model is configured, so only code can be run (/py). Set OPENAI_API_KEY, or "
    "OPENAI_BASE_URL for another server."
)
_DEMO: Final = (
    "This is a small demo model that runs on this machine and is often wrong. Set OPENAI_API_KEY, "
    "or OPENAI_BASE_URL for another server, to use a better one."
)


@contextlib.asynccontextmanager
async def opened(
    bot: settings.Settings, environment: Mapping[str, str], *, is_ephemeral: bool = False
) -> AsyncIterator[conversations.Conversations]:
    """Open everything that platforms need.

    Args:
        bot: the settings in effect.
        environment: where keys of models are.
        is_ephemeral: nothing of it outlives it: no file, no memory.

    Raises:
        BotError: it cannot be opened; the sentence says why.
    """
    async with contextlib.AsyncExitStack() as stack:
        pool = await stack.enter_async_context(pools.Pool.open(bot, is_ephemeral=is_ephemeral))
        stack.enter_context(spools.opened(bot.paths.data))
        memory = _memory(bot, stack, is_ephemeral=is_ephemeral)
        database = await stack.enter_async_context(memory)
        catalogue, notice = await _models(bot, environment, stack)
        means = turns.Means(bot=bot, pool=pool, database=database, catalogue=catalogue)
        held = await stack.enter_async_context(
            conversations.Conversations.open(means, model_notice=notice)
        )
        caretaker = caring.Caretaker(means, held)
        await caretaker.tell(database.orphans)
        await stack.enter_async_context(reaping.scheduled(*caretaker.jobs()))
        yield held


async def _models(
    bot: settings.Settings, environment: Mapping[str, str], stack: contextlib.AsyncExitStack
) -> tuple[catalogues.Catalogue, str]:
    """Return the models there are, and what people should know of them."""
    models = bot.models or await discovering.discover(environment)
    servers: dict[str, opening.Embedded] = {}
    notice = ""
    if not models:
        local = await stack.enter_async_context(opening.Embedded.open(bot.local, bot.paths.data))
        notice = f"{_NO_MODEL} {local.unavailable}"
        if not local.unavailable:
            models, servers = (local.model,), {local.model.title: local}
            notice = f"{_DEMO} {local.licence}".strip()
    catalogue = catalogues.Catalogue(
        models, keys=_keys(models, environment), patience=bot.patience, servers=servers
    )
    # Before the embedded model, which it talks to.
    stack.push_async_callback(catalogue.close)
    return catalogue, notice


def _memory(
    bot: settings.Settings, stack: contextlib.AsyncExitStack, *, is_ephemeral: bool
) -> AbstractAsyncContextManager[databases.Database]:
    """Return the database, not yet opened."""
    if is_ephemeral:
        directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        return databases.Database.open(addresses.default(directory), files=directory / "kept")
    url = bot.store.url or addresses.default(bot.paths.data)
    return databases.Database.open(url, files=bot.paths.data / "kept")


def _keys(
    models: Iterable[settings.Model], environment: Mapping[str, str]
) -> dict[str, pydantic.SecretStr]:
    """Collect the models' keys, and keep them out of every log."""
    names = {model.api_key_variable for model in models} & environment.keys()
    logs.redact(environment[name] for name in names)
    return {name: pydantic.SecretStr(environment[name]) for name in names}
