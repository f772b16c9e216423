"""Read-only queries of sessions: history, files, tables, models, choices, usage."""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any, Final

from interpreter_bot import code_activity, encryption, events, session_variables, settings, values
from interpreter_bot.hosts import ports as host_ports
from interpreter_bot.sessions import (
    approval_policy,
    exports,
    html_exports,
    live_completions,
    live_data_views,
    markdown_rendering,
    past_turns,
    quotas,
    requests,
    session_dependencies,
    session_search,
    tool_listings,
    turn_inputs,
    variable_uses,
)
from interpreter_bot.store import third_party_tables

_MAX_EXPORTED_TURNS: Final = 500
_MAX_CONCURRENT_EXPORTS: Final = 2
_MAX_CONTENT_BYTES: Final = 200 * settings.MIB
_MAX_SEARCHED_CELLS: Final = 300
_SECONDS_BETWEEN_WAKES: Final = 10.0


class SessionReads:
    """Queries on all stored sessions."""

    def __init__(self, services: session_dependencies.SessionDependencies) -> None:
        self._services = services
        self._next_wake_time = 0.0
        self._export_semaphore = asyncio.Semaphore(_MAX_CONCURRENT_EXPORTS)
        self._export_locks: weakref.WeakValueDictionary[values.SessionKey, asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )

    @property
    def limits(self) -> settings.Limits:
        """The limits of one session's code."""
        return self._services.config.limits

    @property
    def kernels(self) -> settings.Kernels:
        """How many kernels there are, and how long they live."""
        return self._services.config.kernels

    @property
    def sandbox_level(self) -> values.SandboxLevel:
        """How code is kept from the machine and from other sessions."""
        return self._services.hosts.sandbox_level

    @property
    def library_tables(self) -> third_party_tables.LibraryTables:
        """Access to the database for a library of a platform that has tables of its own there."""
        keys = encryption.KeyRing.from_settings(self._services.config)
        return third_party_tables.LibraryTables(self._services.database.engine, keys)

    @property
    def models(self) -> tuple[str, ...]:
        """Titles of all models, the default first."""
        return self._services.catalogue.titles

    async def exists(self, key: values.SessionKey) -> bool:
        """Return whether there is a session with this key."""
        return await self._services.database.sessions.find(key) is not None

    async def count(self, platform: str, channel: str) -> int:
        """Return how many sessions a channel has."""
        return await self._services.database.sessions.count(platform, channel)

    async def history(
        self, key: values.SessionKey, *, limit: int = 50
    ) -> tuple[past_turns.PastTurn, ...]:
        """Return the latest turns, in the order in which they began."""
        session = await self._services.database.sessions.find(key)
        if session is None:
            return ()
        return await past_turns.load(self._services.database, session.id, limit=limit)

    async def latest_requests(self, key: values.SessionKey) -> tuple[tuple[int, str], ...]:
        """Return the ids of a session's last two turns, and of their requests, the latest last."""
        session = await self._services.database.sessions.find(key)
        if session is None:
            return ()
        turns = await self._services.database.turns.list_for_session(session.id, limit=2)
        return tuple((turn.id, turn.request_id) for turn in turns)

    async def find_answers(
        self, platform: str, channel: str, request_id: str
    ) -> tuple[tuple[values.SessionKey, str], ...]:
        """Return the sessions of a channel that answered a request, with their answers."""
        rows = await self._services.database.turns.list_done_for_request(
            platform, channel, request_id
        )
        return tuple((session.key, turn.answer) for session, turn in rows)

    async def load_events(self, turn_id: int) -> tuple[events.RecordedEvent, ...]:
        """Return the recorded events of a turn; none if there is no such turn."""
        return await past_turns.load_events(self._services.database, turn_id)

    async def search(
        self, platform: str, workspace: str, text: str, *, limit: int = 50
    ) -> tuple[session_search.Match, ...]:
        """Find sessions by the text of their turns; see `session_search`."""
        return await session_search.search(
            self._services.database, platform, workspace, text, limit=limit
        )

    async def load_file_notice(self, key: values.SessionKey) -> str:
        """Return a notice that files were or will be deleted; empty if there is none."""
        session = await self._services.database.sessions.find(key)
        return "" if session is None else session.file_notice

    async def load_blob(self, sha256: str) -> bytes | None:
        """Return the content of a past picture or page; None if it was deleted."""
        return await self._services.database.blobs.load(sha256)

    async def export_script(self, key: values.SessionKey) -> bytes:
        """Export a session as a Python script."""
        async with self._export_slot(key):
            turns = await self.history(key, limit=_MAX_EXPORTED_TURNS)
            return await asyncio.to_thread(exports.write_script, turns)

    async def export_notebook(self, key: values.SessionKey) -> bytes:
        """Export a session as a Jupyter notebook (nbformat 4, UTF-8)."""
        async with self._export_slot(key):
            return await asyncio.to_thread(
                exports.write_notebook, *await self._load_turns_and_contents(key)
            )

    async def export_page(self, key: values.SessionKey, title: str) -> bytes:
        """Export a session as an HTML page that needs no JavaScript."""
        async with self._export_slot(key):
            turns, contents = await self._load_turns_and_contents(key)
            texts = await asyncio.to_thread(list, html_exports.markdown_texts(turns))
            pages = await markdown_rendering.render(texts)
            return await asyncio.to_thread(html_exports.write_page, title, turns, contents, pages)

    @contextlib.asynccontextmanager
    async def _export_slot(self, key: values.SessionKey) -> AsyncIterator[None]:
        """Allow one export of a session at a time, and `_MAX_CONCURRENT_EXPORTS` in all."""
        lock = self._export_locks.setdefault(key, asyncio.Lock())
        async with lock, self._export_semaphore:
            yield

    async def _load_turns_and_contents(
        self, key: values.SessionKey
    ) -> tuple[tuple[past_turns.PastTurn, ...], dict[str, bytes]]:
        """Return a session's turns, and the pictures and pages that are still stored."""
        turns = await self.history(key, limit=_MAX_EXPORTED_TURNS)
        digests = dict.fromkeys(
            event.output.sha256
            for turn in turns
            for event in turn.events
            if isinstance(event, events.StoredDisplayShown)
        )
        contents: dict[str, bytes] = {}
        remaining_bytes = _MAX_CONTENT_BYTES
        for digest in digests:
            data = await self.load_blob(digest)
            if data is not None and len(data) <= remaining_bytes:
                contents[digest] = data
                remaining_bytes -= len(data)
        return turns, contents

    async def files(self, key: values.SessionKey) -> tuple[values.FileInfo, ...]:
        """Return the files of a session, by name."""
        workspace = await self._services.hosts.workspace(values.format_key(key))
        return await workspace.list()

    async def variables(self, key: values.SessionKey) -> session_variables.SessionVariables:
        """Return the present and the saved variables of a session."""
        return await self._services.hosts.variables(values.format_key(key))

    async def read_table(
        self,
        key: values.SessionKey,
        handle: str,
        request: live_data_views.PageRequest | live_data_views.SummaryRequest,
        person: requests.Person,
    ) -> live_data_views.Page | live_data_views.Summaries:
        """Return a page, or summaries, of a table that was shown.

        Raises:
            BotError: the table is gone, or cannot be read; `PythonBusyError` while code runs.
        """
        async with self._lease_idle_kernel(key, starter=person) as kernel:
            return await live_data_views.read_table(self._services.hosts, kernel, handle, request)

    async def describe_variables(
        self, key: values.SessionKey
    ) -> tuple[live_data_views.Variable, ...]:
        """Describe the variables of a session; none if it has no kernel.

        Raises:
            BotError: they cannot be described; `PythonBusyError` while code runs.
        """
        try:
            async with self._lease_idle_kernel(key) as kernel:
                return await live_data_views.describe_variables(self._services.hosts, kernel)
        except live_data_views.TableGoneError:
            return ()

    async def variable_uses(
        self, key: values.SessionKey, names: Collection[str]
    ) -> Mapping[str, list[variable_uses.VariableUse]]:
        """Return the cells of a session that assign or read variables, by variable."""
        session = await self._services.database.sessions.find(key)
        if session is None:
            return {}
        executions = self._services.database.executions
        cells = await executions.list_for_session(session.id, limit=_MAX_SEARCHED_CELLS)
        return await asyncio.to_thread(variable_uses.find_uses, cells, names)

    async def complete_code(
        self, key: values.SessionKey, before: str
    ) -> live_completions.Completions:
        """Return completions of the code before the cursor.

        No kernel is started for them. A frozen kernel is woken, but not at each keystroke.

        Raises:
            BotError: there is no kernel; `PythonBusyError` while code runs.
        """
        async with self._lease_idle_kernel(key, is_keystroke=True) as kernel:
            return await live_completions.complete(self._services.hosts, kernel, before)

    @contextlib.asynccontextmanager
    async def _lease_idle_kernel(
        self,
        key: values.SessionKey,
        *,
        is_keystroke: bool = False,
        starter: requests.Person | None = None,
    ) -> AsyncIterator[host_ports.Kernel]:
        """Lease a session's kernel unless code runs in it.

        Args:
            is_keystroke: the request is one of many, so it seldom wakes a frozen kernel.
            starter: the person for whom a kernel with saved variables is started if there is none;
                None starts none.
        """
        key_text, hosts = values.format_key(key), self._services.hosts
        status = (await hosts.statuses({key_text})).get(key_text)
        if status is None or status.loss_reason:
            if starter is None or not (await hosts.variables(key_text)).saved:
                # A new kernel would not have the table.
                raise live_data_views.TableGoneError
        elif status.is_busy:
            raise live_data_views.PythonBusyError
        elif status.is_frozen and is_keystroke:
            now = time.monotonic()
            if now < self._next_wake_time:
                raise live_data_views.PythonBusyError
            self._next_wake_time = now + _SECONDS_BETWEEN_WAKES
        async with live_data_views.lease_kernel(hosts, key, starter) as kernel:
            yield kernel

    def reach(self, key: values.SessionKey) -> code_activity.Reach:
        """Return the hosts and data connections that a session's code may use."""
        return self._services.hosts.reach(values.format_key(key))

    def list_packages(self, key: values.SessionKey) -> tuple[str, ...]:
        """Return the packages that the operator adds to a session's place."""
        return turn_inputs.list_place_packages(self._services.config, key)

    async def list_skills(self) -> tuple[str, ...]:
        """Return the names of the operator's skills in use."""
        return await asyncio.to_thread(self._services.skills.names)

    async def list_tools(
        self, key: values.SessionKey, person: requests.Person
    ) -> tuple[tool_listings.ServerTools, ...]:
        """Return the tools of servers that a session's code may call, as a person sees them."""
        return await tool_listings.list_tools(self._services, key, person.id)

    @contextlib.asynccontextmanager
    async def open_file(
        self,
        key: values.SessionKey,
        name: str,
        *,
        start: int = 0,
        may_be_sparse: bool = True,
    ) -> AsyncIterator[tuple[values.FileInfo, AsyncIterator[bytes]]]:
        """Open a file of a session; its content can be read inside the context.

        Args:
            name: of the file, as listed.
            start: offset of the first byte.
            may_be_sparse: allow a sparse file, whose content is far larger than its disk space.

        Raises:
            WorkspaceError: there is no such file, or it cannot be read.
        """
        workspace = await self._services.hosts.workspace(values.format_key(key))
        async with workspace.read(name, start=start, may_be_sparse=may_be_sparse) as content:
            yield content.info, aiter(content)

    async def find_model_title(self, key: values.SessionKey, *, person: str = "") -> str:
        """Return the title of a session's model; empty if there is none.

        Args:
            person: id of a person whose choice counts if the session has none.
        """
        database = self._services.database
        session = await database.sessions.find(key)
        choices = await self._services.places.choices(key.scope(person))
        return turn_inputs.choose_session_model(session, choices, self.models)

    def check_model(self, title: str) -> None:
        """Check that there is a model of that title.

        Raises:
            BotError: there is none; the sentence names all models.
        """
        self._services.catalogue.find_model(title)

    async def usage(
        self, key: values.SessionKey, person: requests.Person
    ) -> past_turns.UsageSummary:
        """Return the usage of a session, and of a person today."""
        usage = self._services.database.usage
        session = await self._services.database.sessions.find(key)
        session_usage = await usage.sum_for_session(session.id) if session else values.Usage()
        usage_today = await usage.sum_for_person(
            person.id, platform=key.platform, workspace=key.workspace
        )
        scope = values.Scope(key.platform, key.workspace, person=person.id)
        allowance = quotas.limits_for_person(
            self._services.config.allowance_on(key.platform),
            await self._services.places.choices(scope),
        )
        return past_turns.UsageSummary(
            session=session_usage,
            today=usage_today,
            allowed_money=allowance.money,
            allowed_tokens=allowance.tokens,
        )

    async def choices(self, scope: values.Scope) -> dict[str, Any]:
        """Return the choices in effect in a scope, by name; the narrowest scope wins."""
        return (await self._services.places.choices(scope)).effective

    async def approval(
        self, scope: values.Scope, at_least: requests.Approval = "never"
    ) -> requests.Approval:
        """Return the approval in effect in a scope, for display.

        Args:
            at_least: the mildest approval that the command in the terminal allows.
        """
        choices = await self._services.places.choices(scope)
        return approval_policy.effective_approval(choices, at_least)
