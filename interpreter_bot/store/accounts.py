"""Accounts at MCP servers that people let the bot use, and their logins that have begun.

What is `sealed` was encrypted by who gives it, and means nothing here.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable

import sqlalchemy as sa

from interpreter_bot.store import columns, records, schema, transactions

_A = schema.ACCOUNTS
_L = schema.LOGINS
_NAMES = [field.name for field in dataclasses.fields(records.Account)]


class Accounts:
    """Tables of accounts and of logins."""

    def __init__(self, begin: transactions.Transactions) -> None:
        self._begin = begin

    async def find(self, account: records.Account) -> str | None:
        """Return what is kept of an account; None if there is none."""
        query = sa.select(_A.c.sealed).where(*_is(_A, account))
        async with self._begin.reading() as transaction:
            return (await transaction.execute(query)).scalar_one_or_none()

    async def put(self, account: records.Account, sealed: str) -> None:
        """Keep an account, instead of what was kept of it."""
        fields = {"sealed": sealed, "changed": columns.now()}
        insert = self._begin.insert(_A).values(**dataclasses.asdict(account), **fields)
        statement = insert.on_conflict_do_update(
            index_elements=[_A.c[name] for name in _NAMES],
            set_={field: insert.excluded[field] for field in fields},
        )
        async with self._begin.writing() as transaction:
            await transaction.execute(statement)

    async def replace(self, account: records.Account, sealed: str, *, instead_of: str) -> bool:
        """Keep an account anew, unless it is gone or has changed; says whether it was done."""
        condition = (*_is(_A, account), _A.c.sealed == instead_of)
        update = sa.update(_A).where(*condition).values(sealed=sealed, changed=columns.now())
        async with self._begin.writing() as transaction:
            return bool((await transaction.execute(update)).rowcount)

    async def remove(self, account: records.Account) -> str | None:
        """Forget an account, and a login of it that has begun; return what was kept."""
        async with self._begin.writing() as transaction:
            await transaction.execute(sa.delete(_L).where(*_is(_L, account)))
            removed = sa.delete(_A).where(*_is(_A, account)).returning(_A.c.sealed)
            return (await transaction.execute(removed)).scalar_one_or_none()

    async def begin_login(self, account: records.Account, digest: str, sealed: str) -> None:
        """Keep a login that begins; an earlier one of that account ends.

        Args:
            account: that it would give.
            digest: of what finds it.
            sealed: what is kept of it.
        """
        fields = {"digest": digest, "sealed": sealed, "began": columns.now()}
        insert = self._begin.insert(_L).values(**dataclasses.asdict(account), **fields)
        statement = insert.on_conflict_do_update(
            index_elements=[_L.c[name] for name in _NAMES],
            set_={field: insert.excluded[field] for field in fields},
        )
        async with self._begin.writing() as transaction:
            await transaction.execute(statement)

    async def find_login(
        self, digest: str, age: datetime.timedelta
    ) -> tuple[records.Account, str] | None:
        """Return the account of a login, and what is kept of it; None if there is none so young."""
        query = sa.select(*_kept()).where(*_is_young(digest, age))
        async with self._begin.reading() as transaction:
            return _read((await transaction.execute(query)).mappings().first())

    async def take_login(
        self, digest: str, age: datetime.timedelta
    ) -> tuple[records.Account, str] | None:
        """Return the same, and end the login: of two who take it, one gets it. Old ones go."""
        taken = sa.delete(_L).where(*_is_young(digest, age)).returning(*_kept())
        async with self._begin.writing() as transaction:
            found = _read((await transaction.execute(taken)).mappings().first())
            await transaction.execute(sa.delete(_L).where(_L.c.began < columns.now() - age))
        return found

    async def reseal(self, change: Callable[[str], str]) -> int:
        """Encrypt what is kept of all accounts anew; return of how many it changed."""
        count = 0
        async with self._begin.writing() as transaction:
            # Locked: a token that is renewed meanwhile must not be replaced by the older one.
            query = sa.select(_A.c.id, _A.c.sealed).with_for_update()
            for row in (await transaction.execute(query)).all():
                if (sealed := change(row.sealed)) != row.sealed:
                    update = sa.update(_A).where(_A.c.id == row.id).values(sealed=sealed)
                    await transaction.execute(update)
                    count += 1
        return count


def _is(table: sa.Table, account: records.Account) -> list[sa.ColumnElement[bool]]:
    return [table.c[name] == getattr(account, name) for name in _NAMES]


def _is_young(digest: str, age: datetime.timedelta) -> list[sa.ColumnElement[bool]]:
    return [_L.c.digest == digest, _L.c.began >= columns.now() - age]


def _kept() -> list[sa.Column[str]]:
    return [*(_L.c[name] for name in _NAMES), _L.c.sealed]


def _read(row: sa.RowMapping | None) -> tuple[records.Account, str] | None:
    if row is None:
        return None
    return records.Account(*(row[name] for name in _NAMES)), row["sealed"]
