"""Deletion of a session's files, recorded in its row so that it is done once, and to its end."""

from __future__ import annotations

from collections.abc import Container

from interpreter_bot import values
from interpreter_bot.sessions import session_dependencies
from interpreter_bot.store import columns, records


async def delete_unused(
    services: session_dependencies.SessionDependencies,
    session: records.Session,
    sentence: str,
    uploads: Container[values.SessionKey],
) -> bool:
    """Delete the files of a session whose lane the caller holds; say whether it was done here.

    Args:
        services: hosts and database.
        session: as it was when this was decided; what was used since keeps its files.
        sentence: what its row says from then on.
        uploads: sessions that files are on their way to, as it changes.

    Raises:
        BotError: some of it may be there still, and the row says what was to be done.
    """
    sessions = services.database.sessions
    # Taken before it is looked at: any use from here on is later than the row, and refutes it.
    row = {"gone": sentence, "at": columns.now().isoformat()}
    if not await _is_unused(services, session, uploads):
        return False
    # First: should the bot die now, the next pass finishes what the row says.
    if not await sessions.note_files(session.id, row, instead_of=session.files):
        return False
    if not await _is_unused(services, session, uploads):
        await sessions.note_files(session.id, session.files, instead_of=row)
        return False
    # Nothing is awaited in between: an upload that begins now waits until this is done.
    await services.hosts.forget(values.text(session.key))
    await services.database.parts.let_go_files(session.id)
    return True


async def _is_unused(
    services: session_dependencies.SessionDependencies,
    session: records.Session,
    uploads: Container[values.SessionKey],
) -> bool:
    if await services.hosts.statuses({values.text(session.key)}):
        return False
    present = await services.database.sessions.get(session.id)
    # Last, as an upload may begin whenever something is awaited.
    return present is not None and present.used == session.used and session.key not in uploads
