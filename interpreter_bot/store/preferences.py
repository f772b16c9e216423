"""Choices: what platforms, workspaces, channels and people set for themselves."""

from __future__ import annotations

import dataclasses
from typing import Any

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, records, transactions

_T = records.Choice
_SCOPE = ("platform", "workspace", "channel", "person")


@dataclasses.dataclass(frozen=True, slots=True)
class Choices:
    """Choices in a scope and in all around it: name, value and channel, in this order of scopes.

    Everywhere, platform, workspace, channel, person, person in the channel.
    """

    _entries: tuple[tuple[str, Any, str], ...] = ()

    @property
    def effective(self) -> dict[str, Any]:
        """The effective choices, by name: the narrowest of the scopes wins."""
        return {name: value for name, value, _ in self._entries}

    @property
    def outside_channels(self) -> Choices:
        """The choices that are not of a channel."""
        return Choices(tuple(entry for entry in self._entries if not entry[2]))

    def all_of(self, name: str) -> list[Any]:
        """Return all values of a name, the widest scope's first."""
        return [value for entry_name, value, _ in self._entries if entry_name == name]


class Preferences(transactions.Aggregate):
    """Table of choices: per scope, a JSON value by name."""

    async def put(self, scope: values.Scope, name: str, value: object) -> None:
        """Set a choice, replacing an earlier one of that scope.

        Args:
            value: any JSON value except None.
        """
        if value is None:
            raise ValueError("None is no choice: remove it instead")
        fields = {"value": value, "changed": columns.now()}
        insert = self._transactions.insert(_T).values(
            name=name, **dataclasses.asdict(scope), **fields
        )
        statement = insert.on_conflict_do_update(index_elements=["name", *_SCOPE], set_=fields)
        await self._transactions.change(statement)

    async def remove(self, scope: values.Scope, name: str) -> None:
        """Delete the choice of that scope, so that the one of a wider scope applies again."""
        condition = (getattr(_T, part) == getattr(scope, part) for part in _SCOPE)
        await self._transactions.change(sa.delete(_T).where(_T.name == name, *condition))

    async def around(self, scope: values.Scope) -> Choices:
        """Return the choices in a scope and in all around it."""
        is_around = (getattr(_T, part).in_({getattr(scope, part), ""}) for part in _SCOPE)
        narrower = (_T.person != "", _T.channel != "", _T.workspace != "", _T.platform != "")
        query = sa.select(_T.name, _T.value, _T.channel).where(*is_around).order_by(*narrower)
        return Choices(tuple(map(tuple, await self._transactions.rows(query))))
