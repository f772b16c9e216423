"""Places: what holds in a channel, a server or for a person of the page, and what is remembered.

What people choose is stored for a scope. What the operator's `place` settings choose for a scope
takes the place of that, and cannot be changed. Notes belong to a scope, too: whoever gives a scope
gets what is of it and of those around it, and never of one beside it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, TypeAlias

from interpreter_bot import errors, settings, values
from interpreter_bot.agent import prompt_texts
from interpreter_bot.sessions import requests
from interpreter_bot.store import databases, preferences, records
from interpreter_bot.text import safe_text
from interpreter_bot.wording import place_words

Choice: TypeAlias = preferences.Choice
Note: TypeAlias = records.Note

INSTRUCTIONS: Final = "instructions"
"""Name of the choice that models are told; those of all scopes around hold together."""
_MAX_AUTHOR_CHARACTERS: Final = 80
# Of all notes that are told to a model.
_MAX_PROMPT_CHARACTERS: Final = 4_000


class Places:
    """What holds where."""

    def __init__(self, config: settings.Settings, database: databases.Database) -> None:
        self._memory = config.memory
        self._database = database
        self._fixed = [
            preferences.Choice(name, value, values.Scope(*address.split("/")), is_fixed=True)
            for place in config.place
            for address in place.places or ("",)
            for name, value in place.choices.items()
        ]

    async def choices(self, scope: values.Scope) -> preferences.Choices:
        """Return the choices in effect in a scope: people's and the operator's."""
        fixed = [choice for choice in self._fixed if choice.scope.includes(scope)]
        replaced = {(choice.name, choice.scope) for choice in fixed}
        stored = [
            choice
            for choice in (await self._database.choices.list_around(scope)).entries
            if (choice.name, choice.scope) not in replaced
        ]
        return preferences.Choices.ordered([*stored, *fixed])

    async def choose(
        self, scope: values.Scope, name: str, value: object | None, *, author: str = ""
    ) -> None:
        """Store a choice for a scope; None deletes it, so that a wider one is in effect again.

        Raises:
            BotError: the operator's settings have it for that scope, or a text is too long.
        """
        if value is None:
            await self._database.choices.remove(scope, name)
            return
        if any((choice.name, choice.scope) == (name, scope) for choice in self._fixed):
            raise errors.BotError(place_words.FIXED_BY_OPERATOR)
        if name == INSTRUCTIONS:
            value = safe_text.sanitize(str(value)).strip()
            _check_length(value, settings.MAX_INSTRUCTION_CHARACTERS)
        await self._database.choices.put(scope, name, value, author[:_MAX_AUTHOR_CHARACTERS])

    @property
    def max_notes(self) -> int:
        """The most notes of a scope; 0 if nothing is remembered."""
        return self._memory.notes

    async def notes(self, scope: values.Scope) -> tuple[records.Note, ...]:
        """Return the notes of a scope and of those around it, the oldest first."""
        return await self._database.notes.list_around(scope) if self.max_notes else ()

    def told(self, notes: Sequence[Note]) -> Sequence[Note]:
        """Return the newest of some notes: those that models are told."""
        characters = 0
        for count, note in enumerate(reversed(notes)):
            characters += len(json.dumps(note.text, ensure_ascii=False)) + 1
            if characters > _MAX_PROMPT_CHARACTERS:
                return notes[len(notes) - count :]
        return notes

    async def prompt(
        self, scope: values.Scope, choices: preferences.Choices, *, can_propose: bool
    ) -> str:
        """Return what models are told of a place; empty if there is nothing."""
        notes = await self.notes(scope)
        told = self.told(notes)
        return prompt_texts.describe_place(
            [str(choice.value) for choice in choices.of(INSTRUCTIONS)],
            [note.text for note in told],
            omitted_count=len(notes) - len(told),
            can_propose=can_propose,
        )

    async def find_note(self, scope: values.Scope, number: str) -> Note:
        """Return a note of a scope or of one around it, by its number.

        Raises:
            BotError: there is none.
        """
        for note in await self.notes(scope):
            if str(note.id) == number:
                return note
        raise errors.BotError(place_words.no_note(number))

    async def remember(self, scope: values.Scope, text: str, person: requests.Person) -> None:
        """Add a note that a person confirmed, unless the place has it.

        Raises:
            BotError: it cannot be one, or the place has too many.
        """
        if not await self._database.notes.add(
            scope,
            checked_note(text),
            person=person.id,
            author=(person.name or person.id)[:_MAX_AUTHOR_CHARACTERS],
            max_notes=self.max_notes,
        ):
            raise errors.BotError(place_words.memory_full(self.max_notes))

    async def change_note(self, note: Note, text: str) -> None:
        """Replace the text of a note.

        Raises:
            BotError: it cannot be one, or the note was changed meanwhile.
        """
        if not await self._database.notes.change(note, checked_note(text)):
            raise errors.BotError(place_words.CHANGED_MEANWHILE)

    async def forget(self, note: Note) -> None:
        """Delete a note."""
        await self._database.notes.remove(note.id)

    async def forget_all(self, scope: values.Scope) -> None:
        """Delete the notes of a scope and of all within it."""
        await self._database.notes.erase(scope)

    async def erase(self, scope: values.Scope) -> None:
        """Delete instructions, notes and schedules of a place that is gone, not who may do what in
        it.
        """
        async with self._database.transaction(is_writing=True):
            await self._database.notes.erase(scope)
            await self._database.choices.erase(scope, INSTRUCTIONS)
            await self._database.schedules.erase(scope)


def checked_note(text: str) -> str:
    """Return a text as a note: one line that shows all of itself.

    Raises:
        BotError: it is empty, or too long.
    """
    note = " ".join(safe_text.sanitize(text).split())
    if not note:
        raise errors.BotError(place_words.NOTE_EMPTY)
    _check_length(note, values.MAX_NOTE_CHARACTERS)
    return note


def _check_length(text: str, limit: int) -> None:
    if len(text) > limit:
        raise errors.BotError(place_words.note_too_long(len(text), limit))
