"""Notes that a model proposes in a turn; each is stored only if a person confirms it.

The model gives only a text; the note belongs to the place of the request.
"""

from __future__ import annotations

import json
from typing import Final

from interpreter_bot import errors, events, settings
from interpreter_bot.sessions import places, requests, turn_environments, turn_streams
from interpreter_bot.wording import place_words

# The platforms on which people can list and delete notes.
_PLATFORMS: Final = frozenset({"slack", "discord", "web"})
_MAX_PROPOSALS: Final = 3
_TOO_MANY_RESULT: Final = "[Not proposed: there were enough notes in this answer.]"
_KNOWN_RESULT: Final = "[Not proposed: this is remembered already.]"
_REFUSED_RESULT: Final = "[Not proposed: {reason}]"
_DECLINED_RESULT: Final = "[The person declined this note. Do not propose it again.]"
_UNANSWERED_RESULT: Final = "[Nobody answered, so it is not remembered. Go on without it.]"
_REMEMBERED_RESULT: Final = "[The person confirmed it. It is remembered here as {note}.]"
_NOT_REMEMBERED_RESULT: Final = "[The person confirmed it, but it could not be kept: {reason}]"


def may_propose_notes(
    places: places.Places, request: requests.Request, model: settings.Model
) -> bool:
    """Return whether a model may propose notes: a person can answer, and delete them later."""
    has_people = request.is_attended and request.key.platform in _PLATFORMS
    return has_people and bool(places.max_notes) and model.can_call_tools


class NoteProposals:
    """Proposes the notes of one turn."""

    def __init__(
        self,
        places: places.Places,
        request: requests.Request,
        environment: turn_environments.SessionEnvironment,
        stream: turn_streams.TurnStream,
    ) -> None:
        self._places = places
        self._request = request
        self._environment = environment
        self._stream = stream
        self._count = 0

    async def propose(self, text: str) -> str:
        """Ask a person whether to remember a text; return the result for the model."""
        scope = self._request.scope.place
        try:
            note = places.normalize_note(text)
        except errors.BotError as error:
            return _REFUSED_RESULT.format(reason=error)
        notes = await self._places.notes(scope)
        if any(other_note.text == note for other_note in notes):
            return _KNOWN_RESULT
        if (
            len([other_note for other_note in notes if other_note.scope == scope])
            >= self._places.max_notes
        ):
            return _REFUSED_RESULT.format(reason=place_words.memory_full(self._places.max_notes))
        self._count += 1
        if self._count > _MAX_PROPOSALS:
            return _TOO_MANY_RESULT
        try:
            answer = await self._environment.ask_about_note(note)
        except errors.UnansweredError:
            return _UNANSWERED_RESULT
        if answer is None:
            return _DECLINED_RESULT
        note = note if answer.edited is None else answer.edited
        person = self._request.person
        if answer.admin:
            by_admin = place_words.confirmed_by_admin(person.name or person.id)
            person = requests.Person(answer.admin, by_admin)
        try:
            await self._places.remember(scope, note, person)
        except errors.StoreError:
            raise
        except errors.BotError as error:
            self._stream.emit(events.NoticeShown(str(error)))
            return _NOT_REMEMBERED_RESULT.format(reason=error)
        return _REMEMBERED_RESULT.format(note=json.dumps(note, ensure_ascii=False))
