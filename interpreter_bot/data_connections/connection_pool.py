"""Connections to databases: their worker processes, their lists of tables, their queries."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from interpreter_bot import code_activity, errors, logs, redaction, settings
from interpreter_bot.data_connections import (
    configured_connections,
    table_listings,
    worker_processes,
)
from interpreter_bot.wording import data_words

_log = logging.getLogger(__name__)

_MAX_PROMPT_CHARACTERS: Final = 6000
_GRACE_SECONDS: Final = 5.0
_FETCH_SECONDS: Final = 60.0
_PREPARE_SECONDS: Final = 5.0
_REAP_SECONDS: Final = 60.0


class ConnectionPool:
    """All data connections of the settings, whoever may use them.

    Attributes:
        rules: by name.
    """

    def __init__(self, config: settings.Settings, environment: Mapping[str, str]) -> None:
        """Prepare connections, which the first queries open.

        Raises:
            SettingsError: a connection cannot be used.
        """
        compiled = configured_connections.compile_rules(config.connections, environment)
        self.rules = {rule.name: rule for rule in compiled}
        for rule in compiled:
            logs.add_secrets(rule.secrets)
        self._workers = {rule.name: worker_processes.Workers(rule) for rule in compiled}
        self._listings = {
            rule.name: table_listings.TableListing(rule.name, functools.partial(self._fetch, rule))
            for rule in compiled
            if rule.kind != "files"
        }

    async def ask(
        self,
        rule: configured_connections.Rule,
        request: dict[str, Any],
        take: worker_processes.Take | None = None,
        *,
        seconds: float = _FETCH_SECONDS,
        is_framed: bool = True,
    ) -> dict[str, Any]:
        """Send a request to a worker process; return its reply.

        Args:
            rule: of the connection.
            request: for the worker.
            take: receives the data that comes before the reply.
            seconds: time for it.
            is_framed: see `worker_processes.Worker.ask`.

        Raises:
            BotError: the worker or its database refuses; the sentence has no secret in it.
        """
        async with self._workers[rule.name].worker() as worker:
            try:
                # The process keeps the time itself, as long as all is well with it.
                async with asyncio.timeout(seconds + _GRACE_SECONDS):
                    reply = await worker.ask(request, take, is_framed=is_framed)
            except TimeoutError as error:
                raise errors.BotError(data_words.too_slow(seconds)) from error
        if detail := reply.get("detail"):
            _log.warning("%s: %s", rule.name, detail)
        if (sentence := reply.get("error")) is not None:
            raise errors.BotError(
                redaction.redact(str(sentence), rule.secrets) or data_words.UNREACHABLE
            )
        return reply

    async def _fetch(self, rule: configured_connections.Rule) -> dict[str, Any]:
        return await self.ask(rule, {"do": "tables"})

    def describe_contents(self, rule: configured_connections.Rule) -> str:
        """Return what a model is told of what is in it."""
        listing = self._listings.get(rule.name)
        if listing is None:
            return f"  its files: connections[{rule.name!r}].files()"
        return listing.describe(_MAX_PROMPT_CHARACTERS)

    def listing(self, rule: configured_connections.Rule) -> table_listings.TableListing:
        """Return the tables of a connection.

        Raises:
            BotError: it has files.
        """
        if rule.name not in self._listings:
            raise errors.BotError(data_words.HAS_FILES)
        return self._listings[rule.name]

    async def probe(self, name: str) -> tuple[str, str | None, list[str]]:
        """Try a connection, for the doctor: what there is, and what its login could change.

        Of the latter, None stands for what is not known, or is meant to be. The last are functions
        that it may call and that do more than read.

        Raises:
            BotError: it cannot be used.
        """
        rule = self.rules[name]
        if rule.kind == "files":
            reply = await self.ask(rule, {"do": "list", "prefix": ""})
            return f"{len(reply['files'])} files", None, []
        tables = await self._listings[name].tables()
        reply = await self.ask(rule, {"do": "probe"})
        contents = f"{len(tables)} tables"
        return (
            (contents, None, []) if rule.writes else (contents, reply["writable"], reply["effects"])
        )

    def refresh_tables(self) -> list[asyncio.Task[Any]]:
        """Let databases tell of their tables, if that was long ago; returns who asks."""
        return [listing.begin() for listing in self._listings.values()]

    async def prepare(self) -> None:
        """Wait until the tables are known, but for no database that is slow."""
        if tasks := self.refresh_tables():
            await asyncio.wait(tasks, timeout=_PREPARE_SECONDS)

    def note_use(self, query: code_activity.Query) -> None:
        """Remember which tables are used: models are told of those first."""
        if (listing := self._listings.get(query.connection)) is not None:
            listing.note_use(query.statement)

    @contextlib.asynccontextmanager
    async def maintained(self) -> AsyncIterator[None]:
        """Look at tables now and then, and end processes that nobody uses; in the end, all."""
        self.refresh_tables()
        upkeep = asyncio.create_task(self._maintain(), name="data connections")
        try:
            yield
        finally:
            upkeep.cancel()
            await asyncio.wait({upkeep})
            for listing in self._listings.values():
                await listing.close()
            for workers in self._workers.values():
                await workers.close()

    async def _maintain(self) -> None:
        while True:
            await asyncio.sleep(_REAP_SECONDS)
            self.refresh_tables()
            for workers in self._workers.values():
                await workers.reap()
