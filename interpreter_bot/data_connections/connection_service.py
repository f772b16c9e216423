"""Service for requests of code to data connections: it checks, forwards and records them."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Any, Final

import cachetools
import pydantic

from interpreter_bot import cancellation, code_activity, errors, settings, values
from interpreter_bot.data_connections import (
    configured_connections,
    connection_pool,
    turn_queries,
    worker_messages,
)
from interpreter_bot.egress import policies, services_door
from interpreter_bot.hosts import ports
from interpreter_bot.wording import data_words

_log = logging.getLogger(__name__)

# Queries that one session runs at a time; more wait.
_MAX_SESSION_QUERIES: Final = 2
_MAX_HOURLY_CALLS: Final = 3000
_MAX_ROWS: Final = 5_000_000
_HOUR_SECONDS: Final = 3600.0
_MAX_SESSIONS: Final = 10_000
_MAX_STATEMENT_CHARACTERS: Final = 200_000
_MAX_RECORDED_CHARACTERS: Final = 10_000
_MAX_REASON_CHARACTERS: Final = 1000
_REFUSAL_PAUSE_SECONDS: Final = 0.1
_TOO_MANY_REQUESTS: Final = 429
_MAX_WAITING_PIECES: Final = 4
_MAX_RECENT_QUERIES: Final = 10
_MAX_SHOWN_CHARACTERS: Final = 300


class _Request(pydantic.BaseModel):
    """A request of code."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    sql: str = pydantic.Field(default="", max_length=_MAX_STATEMENT_CHARACTERS)
    parameters: dict[str, Any] = pydantic.Field(default={}, max_length=1000)
    name: str = pydantic.Field(default="", max_length=1000)


class ConnectionService:
    """All data connections; implements `services_door.DoorService`. Use `open_service`.

    Attributes:
        name: first part of the service's paths.
        pool: the connections, without checks.
        on_query: called with each finished query.
        open_workspace: returns the files of a session.
        turns: queries of running turns, and people's approvals of them.
    """

    name = "connections"

    def __init__(
        self,
        config: settings.Settings,
        environment: Mapping[str, str],
        *,
        max_hourly_calls: int = _MAX_HOURLY_CALLS,
    ) -> None:
        """Prepare connections, which the first queries open.

        `max_hourly_calls` limits the requests of one session in an hour.

        Raises:
            SettingsError: a connection cannot be used.
        """
        self._limits = config.connection_limits
        self._max_hourly_calls = max_hourly_calls
        self.pool = connection_pool.ConnectionPool(config, environment)
        self.on_query: Callable[[code_activity.Query], None] | None = None
        self.open_workspace: Callable[[str], Awaitable[ports.Workspace]] | None = None
        self._session_people = cachetools.LRUCache[str, tuple[str, frozenset[str]]](_MAX_SESSIONS)
        self._recent_queries = cachetools.LRUCache[str, collections.deque[code_activity.Query]](
            _MAX_SESSIONS
        )
        self.turns = turn_queries.TurnQueryLog()
        self._semaphores: weakref.WeakValueDictionary[str, asyncio.Semaphore] = (
            weakref.WeakValueDictionary()
        )
        self._call_times = cachetools.LRUCache[str, collections.deque[float]](_MAX_SESSIONS)

    def note_person(
        self,
        key: str,
        person: str,
        *,
        other_people: Collection[str] = frozenset(),
        turn_id: int = 0,
    ) -> None:
        """Record the person whose code runs in a session until `turns.end`.

        `other_people` are people whose earlier code may still run there. If one of all these people
        may not use a connection, no code of the session may use it.
        """
        self.turns.begin(key, turn_id)
        self._session_people[key] = person, frozenset((person, *other_people))

    def note_opened(self, key: str) -> None:
        """Forget the people of a session, unless a turn of this process runs there.

        Meanwhile, other bots may have run turns of the session, for people unknown to this bot.
        """
        if not self.turns.is_running(key):
            self._session_people.pop(key, None)

    def check_writing(self, key: str, name: str) -> None:
        """Check that a session's code may request approval of statements on a connection.

        Raises:
            BotError: the connection cannot be used, or needs no approval.
        """
        rules = self._rules_for(key)
        if name not in rules:
            raise errors.BotError(data_words.no_connection(name[:40], rules))
        if not rules[name].writes:
            raise errors.BotError(data_words.NEEDS_NO_APPROVAL)

    def note_refusal(self, key: str, name: str, sql: str, reason: str) -> None:
        """Record a statement that a person refused, with the reason as a sentence."""
        record = code_activity.Query(
            *(key, "", self._find_people(key)[0], name, sql[:_MAX_RECORDED_CHARACTERS], reason)
        )
        self.turns.add_query(record)
        self._record(record)

    def _rules_for(self, key: str) -> dict[str, configured_connections.Rule]:
        session, (_, people) = values.parse_key(key), self._find_people(key)
        return {
            name: rule
            for name, rule in self.pool.rules.items()
            if rule.is_usable_by(session, people)
        }

    def _find_people(self, key: str) -> tuple[str, frozenset[str]]:
        """Return the person of a session's turn, and all people whose code may run there."""
        return self._session_people.get(key, ("", frozenset(("",))))

    def is_offered(self, key: str) -> bool:
        """Return whether a session has connections; see `DoorService.is_offered`."""
        return bool(self._rules_for(key))

    def offers(self, key: str) -> tuple[code_activity.Offer, ...]:
        """Return the connections of a session; see `DoorService.offers`."""
        return tuple(
            code_activity.Offer(
                self.name,
                rule.name,
                rule.summary,
                self.pool.describe_contents(rule),
                tuple(
                    (
                        " ".join(query.statement.split())[:_MAX_SHOWN_CHARACTERS],
                        _describe_outcome(query),
                    )
                    for query in self._recent_queries.get(key, ())
                    if query.connection == rule.name
                ),
            )
            for rule in self._rules_for(key).values()
        )

    async def answer(self, call: services_door.ServiceCall) -> None:
        """Answer code; see `DoorService.answer`."""
        name, _, verb = call.path.partition("/")
        self._admit(call.key)
        try:
            request = _Request.model_validate_json(await call.body())
        except pydantic.ValidationError as error:
            raise policies.Refusal(data_words.INVALID_REQUEST, status=400) from error
        rules = self._rules_for(call.key)
        if not name:
            entries = [{"name": rule.name, "about": rule.summary} for rule in rules.values()]
            await call.begin()
            await call.send(worker_messages.pack_note({"connections": entries}))
            return
        if name not in rules:
            raise policies.Refusal(data_words.no_connection(name[:40], rules), status=404)
        handling = self._handle_request(call, rules[name], verb, request)
        await cancellation.run_until(handling, call.wait_closed(), name=f"{verb} of {name}")

    async def _handle_request(
        self,
        call: services_door.ServiceCall,
        rule: configured_connections.Rule,
        verb: str,
        request: _Request,
    ) -> None:
        """Handle a request of code; the last frame of the answer is a note with the outcome."""
        reply: dict[str, Any]
        await call.begin()
        try:
            if verb == "tables" and not request.name:
                await call.send(await self.pool.listing(rule).frame())
                return
            if verb == "tables":
                reply = {"tables": [await self.pool.listing(rule).table(request.name)]}
            elif verb == "query":
                reply = await self._run_query(call, rule, request)
            elif verb == "files" and rule.kind == "files":
                reply = await self._list_files(call, rule, request.name)
            elif verb == "get" and rule.kind == "files":
                reply = await self._copy_file(call, rule, request.name)
            else:
                raise errors.BotError(data_words.INVALID_REQUEST)
        except errors.BotError as error:
            reply = {"error": str(error)}
            # Delayed, because refused code may retry at once.
            await asyncio.sleep(_REFUSAL_PAUSE_SECONDS)
        await call.send(worker_messages.pack_note(reply))

    async def _run_query(
        self, call: services_door.ServiceCall, rule: configured_connections.Rule, query: _Request
    ) -> dict[str, Any]:
        if rule.writes and not self.turns.consume_approval(
            call.key, rule.name, query.sql, query.parameters
        ):
            return {"is_approval_wanted": True}
        limits = self._limits
        request = {
            "do": "query",
            "sql": query.sql,
            "parameters": query.parameters,
            "limits": {"rows": _MAX_ROWS, "bytes": limits.bytes, "seconds": limits.seconds},
        }

        async with self._recorded(call, rule, query.sql) as record:

            async def send_piece(piece: bytes) -> None:
                record.sent_bytes += len(piece)
                await call.send(piece)

            reply = await self.pool.send_request(rule, request, send_piece, seconds=limits.seconds)
            record.rows, record.reason = reply["rows"], _cut_notice(reply)
            self.pool.note_use(record)
            return reply | {"notice": record.reason}

    async def _list_files(
        self, call: services_door.ServiceCall, rule: configured_connections.Rule, prefix: str
    ) -> dict[str, Any]:
        async with self._recorded(call, rule, f"files {prefix}") as record:
            reply = await self.pool.send_request(rule, {"do": "list", "prefix": prefix})
            record.rows, record.reason = len(reply["files"]), ""
            return reply

    async def _copy_file(
        self, call: services_door.ServiceCall, rule: configured_connections.Rule, name: str
    ) -> dict[str, Any]:
        """Store a file of the connection in the session's workspace; return its name there."""
        if self.open_workspace is None:
            raise errors.BotError(data_words.NO_WORKSPACE)
        pieces: asyncio.Queue[bytes | Exception] = asyncio.Queue(_MAX_WAITING_PIECES)

        async def read() -> None:
            request = {"do": "get", "name": name}
            try:
                await self.pool.send_request(
                    rule, request, pieces.put, seconds=self._limits.seconds, is_framed=False
                )
            except Exception as error:
                # Any: the reader of the pieces raises it, and would wait for ever without it.
                await pieces.put(error)
            else:
                await pieces.put(b"")

        async def received_pieces() -> AsyncIterator[bytes]:
            while piece := await pieces.get():
                if isinstance(piece, Exception):
                    raise piece
                yield piece

        async with self._recorded(call, rule, f"get {name}") as record:
            workspace = await self.open_workspace(call.key)
            read_task = asyncio.create_task(read(), name="file for a session")
            try:
                info = await workspace.put(name.rpartition("/")[2] or name, received_pieces())
            finally:
                read_task.cancel()
                await asyncio.wait({read_task})
            record.sent_bytes, record.reason = info.size_bytes, ""
            return {"name": info.name}

    @contextlib.asynccontextmanager
    async def _recorded(
        self, call: services_door.ServiceCall, rule: configured_connections.Rule, statement: str
    ) -> AsyncIterator[code_activity.Query]:
        """Wait until a session may run a query; yield its record, and report it at the end."""
        record = code_activity.Query(
            *(call.key, call.kernel_id, self._find_people(call.key)[0], rule.name),
            statement=statement[:_MAX_RECORDED_CHARACTERS],
            reason=data_words.QUERY_STOPPED,
        )
        self.turns.add_query(record)
        started_at = time.monotonic()
        try:
            async with self._query_slot(call.key):
                yield record
        except errors.BotError as error:
            record.reason = str(error)[:_MAX_REASON_CHARACTERS]
            raise
        finally:
            record.seconds = time.monotonic() - started_at
            self._record(record)

    def _admit(self, key: str) -> None:
        """Count one more request of a session.

        Raises:
            Refusal: there were too many in the last hour.
        """
        limit = self._max_hourly_calls
        times = self._call_times.setdefault(key, collections.deque(maxlen=limit))
        now = time.monotonic()
        if len(times) == limit and now - times[0] < _HOUR_SECONDS:
            raise policies.Refusal(data_words.too_many_queries(limit), status=_TOO_MANY_REQUESTS)
        times.append(now)

    @contextlib.asynccontextmanager
    async def _query_slot(self, key: str) -> AsyncIterator[None]:
        """Wait for a slot of a session, so that no session occupies a database."""
        async with self._semaphores.setdefault(key, asyncio.Semaphore(_MAX_SESSION_QUERIES)):
            yield

    def _record(self, record: code_activity.Query) -> None:
        """Log and report a finished query."""
        recent_queries = self._recent_queries.setdefault(
            record.key, collections.deque(maxlen=_MAX_RECENT_QUERIES)
        )
        recent_queries.append(record)
        if self.on_query is not None:
            self.on_query(record)
        _log.info(
            "query of %s: %d rows, %d bytes, %.1f s, kernel %s%s",
            *(record.connection, record.rows, record.sent_bytes, record.seconds),
            *(record.kernel_id, f": {record.reason}" if record.reason else ""),
        )


def _describe_outcome(query: code_activity.Query) -> str:
    return query.reason or data_words.rows_in_time(query.rows, query.seconds)


def _cut_notice(reply: Mapping[str, Any]) -> str:
    """Return a notice that a result was cut; empty if it is complete."""
    return (
        data_words.TRUNCATION_PHRASES[reply["cut"]].format(rows=reply["rows"])
        if reply.get("cut") in data_words.TRUNCATION_PHRASES
        else ""
    )


@contextlib.asynccontextmanager
async def open_service(
    config: settings.Settings,
    environment: Mapping[str, str],
    *,
    max_hourly_calls: int = _MAX_HOURLY_CALLS,
) -> AsyncIterator[ConnectionService]:
    """Open all data connections; their processes end with the context.

    Raises:
        SettingsError: a connection cannot be used.
    """
    service = ConnectionService(config, environment, max_hourly_calls=max_hourly_calls)
    async with service.pool.maintained():
        yield service
