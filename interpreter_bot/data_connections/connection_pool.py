"""All data connections: their worker processes, listings of tables, and requests to them."""

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
_MAX_FETCH_SECONDS: Final = 60.0
_MAX_PREPARING_SECONDS: Final = 5.0
_MAINTENANCE_INTERVAL_SECONDS: Final = 60.0


class ConnectionPool:
    """All data connections of the settings, without checking who may use them.

    Attributes:
        rules: of the connections, by name.
    """

    def __init__(self, config: settings.Settings, environment: Mapping[str, str]) -> None:
        """Prepare connections, which the first queries open.

        Raises:
            SettingsError: a connection cannot be used.
        """
        rules = configured_connections.compile_rules(config.connections, environment)
        self.rules = {rule.name: rule for rule in rules}
        for rule in rules:
            logs.add_secrets(rule.secrets)
        self._workers = {rule.name: worker_processes.WorkerPool(rule) for rule in rules}
        self._listings = {
            rule.name: table_listings.TableListing(rule.name, functools.partial(self._fetch, rule))
            for rule in rules
            if rule.kind != "files"
        }

    async def send_request(
        self,
        rule: configured_connections.Rule,
        request: dict[str, Any],
        on_data: worker_processes.OnData | None = None,
        *,
        seconds: float = _MAX_FETCH_SECONDS,
        is_framed: bool = True,
    ) -> dict[str, Any]:
        """Send a request to a worker process; return its reply.

        Args:
            rule: of the connection.
            request: for the worker.
            on_data: receives the data that comes before the reply.
            seconds: time limit.
            is_framed: see `worker_processes.Worker.send_request`.

        Raises:
            BotError: the worker or its database refuses; the sentence contains no secret.
        """
        async with self._workers[rule.name].lend_worker() as worker:
            try:
                # Normally the worker itself keeps the time limit.
                async with asyncio.timeout(seconds + _GRACE_SECONDS):
                    reply = await worker.send_request(request, on_data, is_framed=is_framed)
            except TimeoutError as error:
                raise errors.BotError(data_words.query_too_slow(seconds)) from error
        if detail := reply.get("detail"):
            _log.warning("%s: %s", rule.name, detail)
        if (sentence := reply.get("error")) is not None:
            raise errors.BotError(
                redaction.redact(str(sentence), rule.secrets) or data_words.UNREACHABLE
            )
        return reply

    async def _fetch(self, rule: configured_connections.Rule) -> dict[str, Any]:
        return await self.send_request(rule, {"do": "tables"})

    def describe_contents(self, rule: configured_connections.Rule) -> str:
        """Return a description of the tables or files of a connection for a model."""
        listing = self._listings.get(rule.name)
        if listing is None:
            return f"  its files: connections[{rule.name!r}].files()"
        return listing.describe(_MAX_PROMPT_CHARACTERS)

    def listing(self, rule: configured_connections.Rule) -> table_listings.TableListing:
        """Return the tables of a connection.

        Raises:
            BotError: the connection has files instead.
        """
        if rule.name not in self._listings:
            raise errors.BotError(data_words.FILES_NOT_TABLES)
        return self._listings[rule.name]

    async def probe(self, name: str) -> tuple[str, str | None, list[str]]:
        """Try a connection, for the doctor.

        Returns:
            A summary of its contents; a phrase for what its login could change, None if that is
            unknown or intended; and functions with effects that the login may call.

        Raises:
            BotError: it cannot be used.
        """
        rule = self.rules[name]
        if rule.kind == "files":
            reply = await self.send_request(rule, {"do": "list", "prefix": ""})
            return f"{len(reply['files'])} files", None, []
        tables = await self._listings[name].tables()
        reply = await self.send_request(rule, {"do": "probe"})
        contents = f"{len(tables)} tables"
        return (
            (contents, None, []) if rule.writes else (contents, reply["writable"], reply["effects"])
        )

    def refresh_tables(self) -> list[asyncio.Task[Any]]:
        """Begin to fetch tables that are unknown or old; return the tasks."""
        return [listing.refresh() for listing in self._listings.values()]

    async def prepare(self) -> None:
        """Wait until tables are fetched, but not for slow databases."""
        if tasks := self.refresh_tables():
            await asyncio.wait(tasks, timeout=_MAX_PREPARING_SECONDS)

    def note_use(self, query: code_activity.Query) -> None:
        """Count the use of tables, so that the most used are described first to models."""
        if (listing := self._listings.get(query.connection)) is not None:
            listing.note_use(query.statement)

    @contextlib.asynccontextmanager
    async def maintained(self) -> AsyncIterator[None]:
        """Refresh tables and end idle processes, until the context ends."""
        self.refresh_tables()
        maintenance_task = asyncio.create_task(self._maintain(), name="data connections")
        try:
            yield
        finally:
            maintenance_task.cancel()
            await asyncio.wait({maintenance_task})
            for listing in self._listings.values():
                await listing.close()
            for workers in self._workers.values():
                await workers.close()

    async def _maintain(self) -> None:
        while True:
            await asyncio.sleep(_MAINTENANCE_INTERVAL_SECONDS)
            self.refresh_tables()
            for workers in self._workers.values():
                await workers.reap()
