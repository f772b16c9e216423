"""Notes: what people let the bot remember in a place."""

from __future__ import annotations

import dataclasses

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, preferences, records, transactions

_T = records.Note


class Notes(transactions.Aggregate):
    """Table of notes, each of one scope."""

    async def add(
        self, scope: values.Scope, text: str, *, person: str, author: str, limit: int
    ) -> bool:
        """Add a note to a scope, unless it has it; return whether the scope has it now.

        Args:
            person: id of who confirmed it.
            author: their name.
            limit: the most notes of a scope.
        """
        async with self._transactions.together(is_writing=True):
            await self._transactions.lock("notes")
            query = sa.select(_T).where(*preferences.is_of(_T, scope))
            notes = await self._transactions.all(query)
            if any(note.text == text for note in notes):
                return True
            if len(notes) >= limit:
                return False
            insert = sa.insert(_T).values(
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
        query = sa.select(_T).where(*preferences.is_around(_T, scope)).order_by(_T.id)
        return await self._transactions.all(query)

    async def change(self, note: records.Note, text: str) -> bool:
        """Replace the text of a note; return whether it was still there, and the same."""
        update = sa.update(_T).where(_T.id == note.id, _T.text == note.text)
        return await self._transactions.change(update.values(text=text)) == 1

    async def remove(self, note_id: int) -> None:
        """Delete a note."""
        await self._transactions.change(sa.delete(_T).where(_T.id == note_id))

    async def erase(self, scope: values.Scope) -> None:
        """Delete the notes of a scope and of all within it."""
        await self._transactions.change(sa.delete(_T).where(*preferences.is_within(_T, scope)))
