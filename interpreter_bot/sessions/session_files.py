"""Files of a session as a person handles them: renamed, deleted, looked into, and their history."""

from __future__ import annotations

import collections
import dataclasses
import datetime
from typing import Final

from interpreter_bot import values
from interpreter_bot.sessions import live_tables, requests, turn_services

_MOST_TURNS: Final = 500
_MOST_VERSIONS: Final = 20


@dataclasses.dataclass(frozen=True, slots=True)
class FileVersion:
    """What a file became in a turn. Only the last of its versions is kept.

    Attributes:
        request: what was asked in that turn.
        at: when the turn began.
        size_bytes: None of a file that the person sent along.
    """

    request: str
    at: datetime.datetime
    size_bytes: int | None


class SessionFiles:
    """The files of all sessions, outside of turns."""

    def __init__(self, services: turn_services.TurnServices) -> None:
        self._services = services

    async def rename(self, key: values.SessionKey, name: str, new_name: str) -> str:
        """Give a file another name, in its folder; return the name it got.

        Raises:
            WorkspaceError: there is no such file, or already one of that name.
        """
        await self._services.database.sessions.touch(key)
        workspace = await self._services.hosts.workspace(values.text(key))
        return await workspace.rename(name, new_name)

    async def delete(self, key: values.SessionKey, name: str) -> None:
        """Delete a file.

        Raises:
            WorkspaceError: there is no such file.
        """
        await self._services.database.sessions.touch(key)
        await (await self._services.hosts.workspace(values.text(key))).delete(name)

    async def open_table(
        self, key: values.SessionKey, name: str, person: requests.Person, *, sheet: str = ""
    ) -> live_tables.TableFile:
        """Let a session's kernel read a file as a table; one is started if there is none.

        Args:
            key: the session.
            name: of the file, as listed.
            person: whose kernel it is then.
            sheet: of a workbook; empty for its first.

        Raises:
            BotError: it cannot be read; `PythonBusyError` while code runs.
        """
        hosts, address = self._services.hosts, values.text(key)
        status = (await hosts.statuses({address})).get(address)
        if status is not None and status.is_busy:
            raise live_tables.PythonBusyError
        await self._services.database.sessions.touch(key)
        starter = str((key.platform, key.workspace, person.id))
        async with hosts.lease(address, person=starter) as lease:
            return await live_tables.open_file(hosts, await lease.kernel(), name, sheet)

    async def versions(self, key: values.SessionKey) -> dict[str, list[FileVersion]]:
        """Return by name in which turns files were sent or made, the latest first."""
        database = self._services.database
        session = await database.sessions.find(key)
        if session is None:
            return {}
        async with database.together(is_writing=False):
            turns = await database.turns.of_session(session.id, most=_MOST_TURNS)
            made = await database.artifacts.of_turns([turn.id for turn in turns])
        by_turn: dict[int, dict[str, int | None]] = collections.defaultdict(dict)
        for one in made:
            by_turn[one.turn_id][one.name] = one.size_bytes
        found: dict[str, list[FileVersion]] = {}
        for turn in reversed(turns):
            sent: dict[str, int | None] = dict.fromkeys(turn.attachments)
            for name, size_bytes in (sent | by_turn[turn.id]).items():
                version = FileVersion(turn.request, turn.started, size_bytes)
                found.setdefault(name, []).append(version)
        return {name: versions[:_MOST_VERSIONS] for name, versions in found.items()}
