"""How far notebooks are whose cells run: stored, so that after a restart the rest can be run."""

from __future__ import annotations

import dataclasses
from typing import Final

from interpreter_bot import values
from interpreter_bot.sessions import session_service

_NAME: Final = "notebook"


@dataclasses.dataclass(frozen=True, slots=True)
class NotebookProgress:
    """How far the cells of a notebook are that run in a session.

    Attributes:
        thread: of the session that has the file.
        name: of the file.
        sha256: of its content.
        begun: how many cells have begun; the last of them may have been cut short.
        count: how many it has.
    """

    thread: str
    name: str
    sha256: str
    begun: int
    count: int


async def load(
    service: session_service.SessionService, key: values.SessionKey
) -> NotebookProgress | None:
    """Return how far the notebook of a session is; None if none is under way."""
    stored = (await service.queries.choices(_scope(key))).get(_NAME)
    return None if stored is None else NotebookProgress(**stored)


async def save(
    service: session_service.SessionService,
    key: values.SessionKey,
    progress: NotebookProgress | None,
) -> None:
    """Store how far it is; None when nothing is left of it."""
    await service.choose(
        _scope(key), _NAME, None if progress is None else dataclasses.asdict(progress)
    )


def _scope(key: values.SessionKey) -> values.Scope:
    """Return the scope of a session alone, which choices of the page know by no other name."""
    return values.Scope("web", channel=key.thread)
