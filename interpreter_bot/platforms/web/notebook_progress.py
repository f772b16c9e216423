"""The progress of notebooks whose cells run, stored so that a restarted bot can run the rest."""

from __future__ import annotations

import dataclasses
from typing import Final

from interpreter_bot import values
from interpreter_bot.sessions import session_service

_CHOICE_NAME: Final = "notebook"


@dataclasses.dataclass(frozen=True, slots=True)
class NotebookProgress:
    """How many cells of a notebook have run in a session.

    Attributes:
        thread: id of the session that has the file.
        name: of the file.
        sha256: of its content.
        begun_count: cells that have begun; the last of them may have been cut short.
        cell_count: all cells.
    """

    thread: str
    name: str
    sha256: str
    begun_count: int
    cell_count: int


async def load(
    service: session_service.SessionService, key: values.SessionKey
) -> NotebookProgress | None:
    """Return the progress of a session's notebook; None if none is under way."""
    stored_values = (await service.queries.choices(_scope(key))).get(_CHOICE_NAME)
    if stored_values is None:
        return None
    return NotebookProgress(
        stored_values["thread"],
        stored_values["name"],
        stored_values["sha256"],
        stored_values["begun"],
        stored_values["count"],
    )


async def save(
    service: session_service.SessionService,
    key: values.SessionKey,
    progress: NotebookProgress | None,
) -> None:
    """Store the progress of a session's notebook; None when no cells are left."""
    stored_values = progress and {
        "thread": progress.thread,
        "name": progress.name,
        "sha256": progress.sha256,
        "begun": progress.begun_count,
        "count": progress.cell_count,
    }
    await service.choose(_scope(key), _CHOICE_NAME, stored_values)


def _scope(key: values.SessionKey) -> values.Scope:
    """Return the scope of one session; its id stands for a channel, which the page has none of."""
    return values.Scope("web", channel=key.thread)
