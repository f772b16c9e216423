"""Places: choices and notes of a channel, of a server, or of a person of the page.

Choices of people are stored for a scope. Choices in the operator's `place` settings replace them,
and people cannot change those; only of approvals both are kept, because the strictest one counts.
Notes belong to a scope, too. A lookup by a scope finds the choices and notes of that scope and of
the wider scopes around it, and none of a sibling.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, TypeAlias

from interpreter_bot import errors, settings, values
from interpreter_bot.agent import prompt_texts
from interpreter_bot.sessions import approval_policy, requests
from interpreter_bot.store import databases, preferences, records
from interpreter_bot.text import safe_text
from interpreter_bot.wording import place_words

Choice: TypeAlias = preferences.Choice
Note: TypeAlias = records.Note

INSTRUCTIONS: Final = "instructions"
"""Name of the choice that is part of models' prompts, together with that of all wider scopes."""
_MAX_AUTHOR_CHARACTERS: Final = 80
# Of all notes that are told to a model.
_MAX_PROMPT_CHARACTERS: Final = 4_000


class Places:
    """The choices and notes of all places."""

    def __init__(self, config: settings.Settings, database: databases.Database) -> None:
        self._memory = config.memory
        self._database = database
        self._operator_choices = [
            preferences.Choice(name, value, values.Scope(*address.split("/")), is_fixed=True)
            for place in config.place
            for address in place.places or ("",)
            for name, value in place.choices.items()
        ]

    async def choices(self, scope: values.Scope) -> preferences.Choices:
        """Return the choices in effect in a scope: people's and the operator's."""
        operator_choices = [
            choice for choice in self._operator_choices if choice.scope.includes(scope)
        ]
        people_choices = [
            choice
            for choice in (await self._database.choices.list_around(scope)).entries
            if not self._is_fixed(choice.scope, choice.name)
        ]
        return preferences.Choices.ordered([*operator_choices, *people_choices])

    async def choose(
        self, scope: values.Scope, name: str, value: object | None, *, author: str = ""
    ) -> None:
        """Store a choice for a scope; None deletes it, so that a wider one is in effect again.

        Raises:
            BotError: the operator made this choice for that scope, or a text is too long.
        """
        if value is None:
            await self._database.choices.remove(scope, name)
            return
        if self._is_fixed(scope, name):
            raise errors.BotError(place_words.FIXED_BY_OPERATOR)
        if name == INSTRUCTIONS:
            value = safe_text.sanitize(str(value)).strip()
            _check_length(value, settings.MAX_INSTRUCTION_CHARACTERS)
        await self._database.choices.put(scope, name, value, author[:_MAX_AUTHOR_CHARACTERS])

    def _is_fixed(self, scope: values.Scope, name: str) -> bool:
        """Return whether a choice of the operator replaces that of people for a scope."""
        return name != approval_policy.PREFERENCE_NAME and any(
            (choice.name, choice.scope) == (name, scope) for choice in self._operator_choices
        )

    @property
    def max_notes(self) -> int:
        """The most notes that a scope may have; 0 turns notes off."""
        return self._memory.notes

    async def notes(self, scope: values.Scope) -> tuple[records.Note, ...]:
        """Return the notes of a scope and of wider ones, the oldest first."""
        return await self._database.notes.list_around(scope) if self.max_notes else ()

    def select_for_model(self, notes: Sequence[Note]) -> Sequence[Note]:
        """Return the newest notes that fit into a model's prompt."""
        characters = 0
        for count, note in enumerate(reversed(notes)):
            characters += len(json.dumps(note.text, ensure_ascii=False)) + 1
            if characters > _MAX_PROMPT_CHARACTERS:
                return notes[len(notes) - count :]
        return notes

    async def prompt(
        self, scope: values.Scope, choices: preferences.Choices, *, can_propose: bool
    ) -> str:
        """Return the part of a model's prompt about a place; empty if there is nothing."""
        notes = await self.notes(scope)
        selected_notes = self.select_for_model(notes)
        return prompt_texts.describe_place(
            [str(choice.value) for choice in choices.of(INSTRUCTIONS)],
            [note.text for note in selected_notes],
            omitted_count=len(notes) - len(selected_notes),
            can_propose=can_propose,
        )

    async def find_note(self, scope: values.Scope, number: str) -> Note:
        """Return a note of a scope or of a wider one, by its number.

        Raises:
            BotError: there is no such note.
        """
        for note in await self.notes(scope):
            if str(note.id) == number:
                return note
        raise errors.BotError(place_words.no_note(number))

    async def remember(self, scope: values.Scope, text: str, person: requests.Person) -> None:
        """Add a note that a person confirmed, unless the place has it.

        Raises:
            BotError: the text cannot be a note, or the place has too many notes.
        """
        if not await self._database.notes.add(
            scope,
            normalize_note(text),
            person=person.id,
            author=(person.name or person.id)[:_MAX_AUTHOR_CHARACTERS],
            max_notes=self.max_notes,
        ):
            raise errors.BotError(place_words.memory_full(self.max_notes))

    async def change_note(self, note: Note, text: str) -> None:
        """Replace the text of a note.

        Raises:
            BotError: the text cannot be a note, or the note was changed meanwhile.
        """
        if not await self._database.notes.change(note, normalize_note(text)):
            raise errors.BotError(place_words.CHANGED_MEANWHILE)

    async def forget(self, note: Note) -> None:
        """Delete a note."""
        await self._database.notes.remove(note.id)

    async def forget_all(self, scope: values.Scope) -> None:
        """Delete the notes of a scope and of all narrower ones."""
        await self._database.notes.erase(scope)

    async def erase(self, scope: values.Scope) -> None:
        """Delete instructions, notes and schedules of a deleted place, but keep its permissions."""
        async with self._database.transaction(is_writing=True):
            await self._database.notes.erase(scope)
            await self._database.choices.erase(scope, INSTRUCTIONS)
            await self._database.schedules.erase(scope)


def normalize_note(text: str) -> str:
    """Return a text as a note: one line without invisible characters.

    Raises:
        BotError: the text is empty, or too long.
    """
    note = " ".join(safe_text.sanitize(text).split())
    if not note:
        raise errors.BotError(place_words.NOTE_EMPTY)
    _check_length(note, values.MAX_NOTE_CHARACTERS)
    return note


def _check_length(text: str, limit: int) -> None:
    if len(text) > limit:
        raise errors.BotError(place_words.note_too_long(len(text), limit))
