"""Files of a session, outside of turns: rename, delete, and deletion of all of them.

A deletion of all files is recorded in the session's row, so that it happens once and completely.
"""

from __future__ import annotations

from collections.abc import Container

from interpreter_bot import values
from interpreter_bot.sessions import live_data_views, requests, session_dependencies
from interpreter_bot.store import columns, records


class SessionFiles:
    """The files of all sessions, outside of turns."""

    def __init__(self, services: session_dependencies.SessionDependencies) -> None:
        self._services = services

    async def rename(self, key: values.SessionKey, name: str, new_name: str) -> str:
        """Rename a file in its folder; return its new name.

        Raises:
            WorkspaceError: there is no such file, or another has that name.
        """
        await self._services.database.sessions.touch(key)
        workspace = await self._services.hosts.workspace(values.format_key(key))
        return await workspace.rename(name, new_name)

    async def delete(self, key: values.SessionKey, name: str) -> None:
        """Delete a file.

        Raises:
            WorkspaceError: there is no such file.
        """
        await self._services.database.sessions.touch(key)
        await (await self._services.hosts.workspace(values.format_key(key))).delete(name)

    async def open_table(
        self, key: values.SessionKey, name: str, person: requests.Person, *, sheet: str = ""
    ) -> live_data_views.TableFile:
        """Let a session's kernel read a file as a table; one is started if there is none.

        Args:
            name: of the file, as listed.
            person: owner of the kernel if it is started.
            sheet: of a workbook; empty for its first.

        Raises:
            BotError: the file cannot be read; `PythonBusyError` while code runs.
        """
        hosts, key_text = self._services.hosts, values.format_key(key)
        status = (await hosts.statuses({key_text})).get(key_text)
        if status is not None and status.is_busy:
            raise live_data_views.PythonBusyError
        await self._services.database.sessions.touch(key)
        async with live_data_views.lease_kernel(hosts, key, person) as kernel:
            return await live_data_views.open_table_file(hosts, kernel, name, sheet)


async def delete_unused(
    services: session_dependencies.SessionDependencies,
    session: records.Session,
    sentence: str,
    uploads: Container[values.SessionKey],
) -> bool:
    """Delete the files of an unused session whose lane the caller holds; return whether it did.

    Args:
        session: as it was when its deletion was decided; if it was used since, its files stay.
        sentence: the notice of the deletion, for its row.
        uploads: a live view of the sessions to which files are being uploaded.

    Raises:
        BotError: the deletion is incomplete; the row records it for the next pass.
    """
    sessions = services.database.sessions
    # The time is taken before the check, so that any later use invalidates the row.
    row = {"gone": sentence, "at": columns.now().isoformat()}
    if not await _is_unused(services, session, uploads):
        return False
    # Recorded first, so that the next pass finishes the deletion if the bot dies now.
    if not await sessions.note_files(session.id, row, expected=session.files):
        return False
    if not await _is_unused(services, session, uploads):
        await sessions.note_files(session.id, session.files, expected=row)
        return False
    # Nothing is awaited since the check, and an upload that begins now waits for `forget`.
    await services.hosts.forget(values.format_key(session.key))
    await services.database.parts.release_blobs(session.id)
    return True


async def _is_unused(
    services: session_dependencies.SessionDependencies,
    session: records.Session,
    uploads: Container[values.SessionKey],
) -> bool:
    if await services.hosts.statuses({values.format_key(session.key)}):
        return False
    current_session = await services.database.sessions.get(session.id)
    # Uploads are checked last, as one may begin during any `await`.
    return (
        current_session is not None
        and current_session.used == session.used
        and session.key not in uploads
    )
