"""Accounts at MCP servers that people let the bot use, and logins that are under way.

Callers encrypt the `sealed` text of both, which is opaque here.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable

import sqlalchemy as sa

from interpreter_bot.store import columns, records, transactions

_A = records.SealedAccount
_L = records.Login
_NAMES = [field.name for field in dataclasses.fields(records.Account)]


class Accounts(transactions.Aggregate):
    """Tables of accounts and of logins."""

    async def find(self, account: records.Account) -> str | None:
        """Return the sealed text of an account; None if there is no account."""
        return await self._transactions.first(sa.select(_A.sealed).where(*_matches(_A, account)))

    async def put(self, account: records.Account, sealed: str) -> None:
        """Store an account, replacing an earlier one."""
        await self._replace(_A, account, {"sealed": sealed, "changed": columns.now()})

    async def replace(self, account: records.Account, sealed: str, *, instead_of: str) -> bool:
        """Replace the sealed text `instead_of` of an account; return False if it has changed."""
        update = sa.update(_A).where(*_matches(_A, account), _A.sealed == instead_of)
        changed = await self._transactions.change(
            update.values(sealed=sealed, changed=columns.now())
        )
        return changed == 1

    async def remove(self, account: records.Account) -> str | None:
        """Delete an account and its login; return the sealed text of the account."""
        async with self._transactions.together(is_writing=True):
            await self._transactions.change(sa.delete(_L).where(*_matches(_L, account)))
            removed = sa.delete(_A).where(*_matches(_A, account)).returning(_A.sealed)
            return await self._transactions.first(removed)

    async def begin_login(self, account: records.Account, digest: str, sealed: str) -> None:
        """Store a login that begins; it replaces an earlier one of that account.

        Args:
            account: the account that it leads to.
            digest: of the text by which it is found.
            sealed: its encrypted data.
        """
        fields = {"digest": digest, "sealed": sealed, "began": columns.now()}
        await self._replace(_L, account, fields)

    async def find_login(
        self, digest: str, age: datetime.timedelta
    ) -> tuple[records.Account, str] | None:
        """Return the account and the sealed text of a login; None if there is none that young."""
        login = await self._transactions.first(sa.select(_L).where(*_is_young(digest, age)))
        return None if login is None else (_account(login), login.sealed)

    async def take_login(
        self, digest: str, age: datetime.timedelta
    ) -> tuple[records.Account, str] | None:
        """Return the same as `find_login` to one caller and delete the login, and all old ones."""
        delete = sa.delete(_L).where(*_is_young(digest, age)).returning(_L)
        async with self._transactions.together(is_writing=True):
            login = await self._transactions.first(delete)
            await self._transactions.change(sa.delete(_L).where(_L.began < columns.now() - age))
        return None if login is None else (_account(login), login.sealed)

    async def reseal(self, change: Callable[[str], str]) -> int:
        """Encrypt all accounts anew; return how many changed."""
        count = 0
        async with self._transactions.together(is_writing=True):
            # Locked, because a token that is renewed now must not be replaced by the older one.
            for account in await self._transactions.all(sa.select(_A).with_for_update()):
                if (sealed := change(account.sealed)) != account.sealed:
                    update = sa.update(_A).where(_A.id == account.id)
                    count += await self._transactions.change(update.values(sealed=sealed))
        return count

    async def _replace(
        self,
        table: type[records.SealedAccount | records.Login],
        account: records.Account,
        fields: dict[str, object],
    ) -> None:
        insert = self._transactions.insert(table).values(**dataclasses.asdict(account), **fields)
        await self._transactions.change(
            insert.on_conflict_do_update(index_elements=_NAMES, set_=fields)
        )


def _matches(
    table: type[records.SealedAccount | records.Login], account: records.Account
) -> list[sa.ColumnElement[bool]]:
    return [getattr(table, name) == getattr(account, name) for name in _NAMES]


def _is_young(digest: str, age: datetime.timedelta) -> list[sa.ColumnElement[bool]]:
    return [_L.digest == digest, _L.began >= columns.now() - age]


def _account(login: records.Login) -> records.Account:
    return records.Account(login.platform, login.workspace, login.person, login.server)
