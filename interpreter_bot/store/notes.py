"""Notes: what people let the bot remember in a place."""

from __future__ import annotations

import dataclasses

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, preferences, records, transactions

_NOTES = records.Note


class Notes(transactions.Aggregate):
    """Table of notes, each of one scope."""

    async def add(
        self, scope: values.Scope, text: str, *, person: str, author: str, max_notes: int
    ) -> bool:
        """Add a note unless the scope has it or is full; return whether the scope has it now.

        Args:
            person: id of the person who confirmed it.
            max_notes: how many notes a scope may have.
        """
        async with self._transactions.transaction(is_writing=True):
            await self._transactions.lock("notes")
            query = sa.select(_NOTES).where(*preferences.equals_scope(_NOTES, scope))
            notes = await self._transactions.all(query)
            if any(note.text == text for note in notes):
                return True
            if len(notes) >= max_notes:
                return False
            insert = sa.insert(_NOTES).values(
                **dataclasses.asdict(scope),
                text=text,
                confirmed_by=person,
                author=author,
                created=columns.now(),
            )
            await self._transactions.change(insert)
            return True

    async def list_around(self, scope: values.Scope) -> tuple[records.Note, ...]:
        """Return the notes of a scope and of all around it, the oldest first."""
        query = (
            sa.select(_NOTES).where(*preferences.encloses_scope(_NOTES, scope)).order_by(_NOTES.id)
        )
        return await self._transactions.all(query)

    async def change(self, note: records.Note, text: str) -> bool:
        """Replace the text of a note; return False if it was changed or removed meanwhile."""
        update = sa.update(_NOTES).where(_NOTES.id == note.id, _NOTES.text == note.text)
        return await self._transactions.change(update.values(text=text)) == 1

    async def remove(self, note_id: int) -> None:
        """Delete a note."""
        await self._transactions.change(sa.delete(_NOTES).where(_NOTES.id == note_id))

    async def erase(self, scope: values.Scope) -> None:
        """Delete the notes of a scope and of all within it."""
        await self._transactions.change(
            sa.delete(_NOTES).where(*preferences.is_within_scope(_NOTES, scope))
        )
