"""Choices: what platforms, workspaces, channels and people set for themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Final

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, records, transactions

_CHOICES = records.Choice
_SCOPE_COLUMNS: Final = ("platform", "workspace", "channel", "person", "thread")


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """A choice that was made for a scope.

    Attributes:
        author: name of the person who made it, which that person chose: never trust it. Empty if
            unknown.
        is_fixed: the operator's settings made it, so people cannot change it.
    """

    name: str
    value: Any
    scope: values.Scope
    author: str = ""
    is_fixed: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Choices:
    """Choices in a scope and in all around it, in this order of scopes.

    Everywhere, platform, workspace, channel, private thread, person, person in the channel, person
    in the thread.
    """

    entries: tuple[Choice, ...] = ()

    @classmethod
    def ordered(cls, entries: Iterable[Choice]) -> Choices:
        """Put choices in the order of their scopes."""
        return cls(tuple(sorted(entries, key=lambda entry: _narrowness(entry.scope))))

    @property
    def effective(self) -> dict[str, Any]:
        """The effective choices, by name: the narrowest of the scopes wins."""
        return {entry.name: entry.value for entry in self.entries}

    @property
    def outside_channels(self) -> Choices:
        """The choices that are not of a channel."""
        return Choices(tuple(entry for entry in self.entries if not entry.scope.channel))

    def of(self, name: str) -> tuple[Choice, ...]:
        """Return all choices of a name, the widest scope's first."""
        return tuple(entry for entry in self.entries if entry.name == name)


def _narrowness(scope: values.Scope) -> tuple[bool, ...]:
    parts = (scope.person, scope.thread, scope.channel, scope.workspace, scope.platform)
    return tuple(map(bool, parts))


class Preferences(transactions.Aggregate):
    """Table of choices: per scope, a JSON value by name."""

    async def put(self, scope: values.Scope, name: str, value: object, author: str = "") -> None:
        """Set a choice, replacing an earlier one of that scope.

        Args:
            value: any JSON value except None.
        """
        if value is None:
            raise ValueError("None cannot be chosen: remove the choice instead")
        fields = {"value": value, "author": author, "changed": columns.now()}
        insert = self._transactions.insert(_CHOICES).values(
            name=name, **dataclasses.asdict(scope), **fields
        )
        statement = insert.on_conflict_do_update(
            index_elements=["name", *_SCOPE_COLUMNS], set_=fields
        )
        await self._transactions.change(statement)

    async def remove(self, scope: values.Scope, name: str) -> None:
        """Delete the choice of that scope, so that the one of a wider scope applies again."""
        await self._transactions.change(
            sa.delete(_CHOICES).where(_CHOICES.name == name, *equals_scope(_CHOICES, scope))
        )

    async def list_around(self, scope: values.Scope) -> Choices:
        """Return the choices in a scope and in all around it."""
        rows = await self._transactions.all(
            sa.select(_CHOICES).where(*encloses_scope(_CHOICES, scope))
        )
        return Choices.ordered(Choice(row.name, row.value, row.scope, row.author) for row in rows)

    async def erase(self, scope: values.Scope, name: str) -> None:
        """Delete a choice of a scope and of all within it."""
        conditions = (_CHOICES.name == name, *is_within_scope(_CHOICES, scope))
        await self._transactions.change(sa.delete(_CHOICES).where(*conditions))


def equals_scope(table: type[records.Scoped], scope: values.Scope) -> list[sa.ColumnElement[bool]]:
    """Return the conditions for rows of exactly this scope."""
    return [getattr(table, part) == getattr(scope, part) for part in _SCOPE_COLUMNS]


def encloses_scope(
    table: type[records.Scoped], scope: values.Scope
) -> list[sa.ColumnElement[bool]]:
    """Return the conditions for rows of a scope or of one around it."""
    return [getattr(table, part).in_({getattr(scope, part), ""}) for part in _SCOPE_COLUMNS]


def is_within_scope(
    table: type[records.Scoped | records.Schedule], scope: values.Scope
) -> list[sa.ColumnElement[bool]]:
    """Return the conditions for rows of a scope or of one within it."""
    if not (scope.workspace or scope.channel or scope.person):
        raise ValueError("a whole platform is never erased")
    columns_of_scope = [part for part in _SCOPE_COLUMNS if getattr(scope, part)]
    return [getattr(table, part) == getattr(scope, part) for part in columns_of_scope]
