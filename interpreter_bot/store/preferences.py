"""Choices: what platforms, workspaces, channels and people set for themselves."""

from __future__ import annotations

import dataclasses
from typing import Any

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import columns, schema, transactions

_T = schema.CHOICES
_WHERE = (_T.c.platform, _T.c.workspace, _T.c.channel, _T.c.person)
# Built once: each turn asks for them, and to build it takes as long as to run it.
_AROUND = (
    sa.select(_T.c.name, _T.c.value, _T.c.channel)
    .where(*(sa.or_(one == sa.bindparam(one.name), one == "") for one in _WHERE))
    .order_by(*((one != "").asc() for one in (_T.c.person, *_WHERE[2::-1])))
)


@dataclasses.dataclass(frozen=True, slots=True)
class Choices:
    """Choices in a scope and in all around it: name, value and channel, in this order of scopes.

    Everywhere, platform, workspace, channel, person, person in the channel.
    """

    _found: tuple[tuple[str, Any, str], ...] = ()

    @property
    def effective(self) -> dict[str, Any]:
        """The effective choices, by name: the narrowest of the scopes wins."""
        return {name: value for name, value, _ in self._found}

    @property
    def outside_channels(self) -> Choices:
        """Those that no channel narrows."""
        return Choices(tuple(one for one in self._found if not one[2]))

    def all_of(self, name: str) -> list[Any]:
        """Return all values of a name, the widest scope's first."""
        return [value for known, value, _ in self._found if known == name]


class Preferences:
    """Table of choices: per scope, a JSON value by name."""

    def __init__(self, begin: transactions.Transactions) -> None:
        self._begin = begin

    async def put(self, scope: values.Scope, name: str, value: object) -> None:
        """Set a choice, replacing the former one of that very scope.

        Args:
            value: any JSON value except None.
        """
        if value is None:
            raise ValueError("None is no choice: remove it instead")
        fields = {"value": value, "changed": columns.now()}
        insert = self._begin.insert(_T).values(name=name, **dataclasses.asdict(scope), **fields)
        statement = insert.on_conflict_do_update(
            index_elements=[_T.c.name, *_WHERE],
            set_={field: insert.excluded[field] for field in fields},
        )
        async with self._begin.writing() as transaction:
            await transaction.execute(statement)

    async def remove(self, scope: values.Scope, name: str) -> None:
        """Delete the choice of that very scope; that of a wider scope applies again."""
        condition = [_T.c.name == name, *_is(scope)]
        async with self._begin.writing() as transaction:
            await transaction.execute(sa.delete(_T).where(*condition))

    async def around(self, scope: values.Scope) -> Choices:
        """Return the choices in a scope and in all around it."""
        async with self._begin.reading() as transaction:
            found = await transaction.execute(_AROUND, dataclasses.asdict(scope))
            return Choices(tuple((row.name, row.value, row.channel) for row in found))


def _is(scope: values.Scope) -> list[sa.ColumnElement[bool]]:
    return [_T.c[name] == value for name, value in dataclasses.asdict(scope).items()]
