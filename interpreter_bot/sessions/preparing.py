"""What comes before a model is asked: which one, what about, and with which files."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from interpreter_bot import errors, settings, values
from interpreter_bot.agent import messages
from interpreter_bot.sessions import attaching, requests, stages, workbenches
from interpreter_bot.store import databases, records

_NO_FILES: Final = "There is nothing to work with: none of the files could be had."
_CONTEXT: Final = "[Said before in this place, as background:]\n{context}\n[End of that.]"
_WITHOUT_WORDS: Final = (
    "[The person sent this without a word. Look into it, say in a few sentences what it holds, "
    "and ask what they want to know.]"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a model is to answer.

    Attributes:
        earlier: what was said before.
        told: the person's words, with what came along.
        seen: pictures that came along.
    """

    model: settings.Model
    earlier: Sequence[messages.Message]
    told: str
    seen: Sequence[messages.Picture] = ()


async def title(
    request: requests.Request, database: databases.Database, titles: Sequence[str]
) -> str:
    """Return the title of the model that a request is for; empty where there is none at all."""
    if request.model:
        return request.model
    session = await database.sessions.find(request.key)
    return await preferred(session, request.key, database, titles, person=request.person.id)


async def preferred(
    session: records.Session | None,
    key: values.SessionKey,
    database: databases.Database,
    titles: Sequence[str],
    *,
    person: str = "",
) -> str:
    """Return the model that a conversation asks: its own, the one chosen around it, the default.

    Args:
        session: the conversation, where there is one as yet.
        key: where it takes place.
        database: where choices are.
        titles: models there are, the default first. What was chosen may be gone from the settings.
        person: who asks, and may have chosen.
    """
    own = session.model if session is not None else None
    if own is not None and own in titles:
        return own
    scope = values.Scope(key.platform, key.workspace, key.channel, person)
    chosen = (await database.choices.effective(scope)).get("model")
    if isinstance(chosen, str) and chosen in titles:
        return chosen
    return next(iter(titles), "")


async def stored(
    request: requests.Request,
    bench: workbenches.Workbench,
    stage: stages.Stage,
    limits: settings.Limits,
) -> attaching.Stored:
    """Put what came along into the workspace.

    Raises:
        BotError: there is nothing else in the request, and none of it could be had.
    """
    if not request.attachments:
        return attaching.Stored()
    came = await attaching.store(request.attachments, bench.workspace, stage, limits)
    if not (came.infos or request.files or request.text.strip()):
        raise errors.BotError(_NO_FILES)
    return came


async def files(
    request: requests.Request, came: attaching.Stored, bench: workbenches.Workbench
) -> list[values.FileInfo]:
    """List the files that a request is about."""
    infos = list(came.infos)
    if request.files:
        named = set(request.files)
        infos += [one for one in await bench.list_files() if one.name in named]
    return infos


async def told(
    request: requests.Request,
    came: attaching.Stored,
    infos: Sequence[values.FileInfo],
    bench: workbenches.Workbench,
) -> str:
    """Put into words what the person wants, and what came along."""
    parts = (
        _CONTEXT.format(context=request.context) if request.context else "",
        await attaching.described(infos, await bench.kernel()) if infos else "",
        *came.refusals,
        request.text if request.text.strip() else _WITHOUT_WORDS,
    )
    return "\n\n".join(filter(None, parts))
