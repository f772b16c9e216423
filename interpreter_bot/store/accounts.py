"""Accounts at MCP servers that people let the bot use, and logins that are under way.

Callers encrypt and decrypt the data of both; this module stores only ciphertext.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable

import sqlalchemy as sa

from interpreter_bot.store import columns, records, transactions

_ACCOUNTS = records.EncryptedAccount
_LOGINS = records.Login
_KEY_COLUMNS = [field.name for field in dataclasses.fields(records.Account)]


class Accounts(transactions.Aggregate):
    """Tables of accounts and of logins."""

    async def find(self, account: records.Account) -> str | None:
        """Return the ciphertext of an account; None if there is no account."""
        return await self._transactions.first(
            sa.select(_ACCOUNTS.ciphertext).where(*_matches(_ACCOUNTS, account))
        )

    async def put(self, account: records.Account, ciphertext: str) -> None:
        """Store an account, replacing an earlier one."""
        await self._replace(
            _ACCOUNTS, account, {"ciphertext": ciphertext, "changed": columns.now()}
        )

    async def replace(self, account: records.Account, ciphertext: str, *, expected: str) -> bool:
        """Replace the ciphertext of an account; return False if it is not `expected` any more."""
        update = sa.update(_ACCOUNTS).where(
            *_matches(_ACCOUNTS, account), _ACCOUNTS.ciphertext == expected
        )
        changed_count = await self._transactions.change(
            update.values(ciphertext=ciphertext, changed=columns.now())
        )
        return changed_count == 1

    async def remove(self, account: records.Account) -> str | None:
        """Delete an account and its login; return the ciphertext of the account."""
        async with self._transactions.transaction(is_writing=True):
            await self._transactions.change(sa.delete(_LOGINS).where(*_matches(_LOGINS, account)))
            delete = (
                sa.delete(_ACCOUNTS)
                .where(*_matches(_ACCOUNTS, account))
                .returning(_ACCOUNTS.ciphertext)
            )
            return await self._transactions.first(delete)

    async def begin_login(self, account: records.Account, digest: str, ciphertext: str) -> None:
        """Store a login that begins; it replaces an earlier one of that account.

        Args:
            digest: of the text by which it is found.
        """
        fields = {"digest": digest, "ciphertext": ciphertext, "began": columns.now()}
        await self._replace(_LOGINS, account, fields)

    async def find_login(
        self, digest: str, max_age: datetime.timedelta
    ) -> tuple[records.Account, str] | None:
        """Return the account and the ciphertext of a login; None if it is missing or too old."""
        login = await self._transactions.first(
            sa.select(_LOGINS).where(*_is_valid_login(digest, max_age))
        )
        return None if login is None else (_account(login), login.ciphertext)

    async def take_login(
        self, digest: str, max_age: datetime.timedelta
    ) -> tuple[records.Account, str] | None:
        """Find a login and delete it, so that one caller gets it; delete all that are too old."""
        delete = sa.delete(_LOGINS).where(*_is_valid_login(digest, max_age)).returning(_LOGINS)
        async with self._transactions.transaction(is_writing=True):
            login = await self._transactions.first(delete)
            await self._transactions.change(
                sa.delete(_LOGINS).where(_LOGINS.began < columns.now() - max_age)
            )
        return None if login is None else (_account(login), login.ciphertext)

    async def reencrypt(self, encrypt_again: Callable[[str], str]) -> int:
        """Encrypt all accounts anew; return how many changed."""
        count = 0
        async with self._transactions.transaction(is_writing=True):
            # Locked, because a token that is renewed now must not be replaced by the older one.
            for account in await self._transactions.all(sa.select(_ACCOUNTS).with_for_update()):
                if (ciphertext := encrypt_again(account.ciphertext)) != account.ciphertext:
                    update = sa.update(_ACCOUNTS).where(_ACCOUNTS.id == account.id)
                    count += await self._transactions.change(update.values(ciphertext=ciphertext))
        return count

    async def _replace(
        self,
        table: type[records.EncryptedAccount | records.Login],
        account: records.Account,
        fields: dict[str, object],
    ) -> None:
        insert = self._transactions.insert(table).values(**dataclasses.asdict(account), **fields)
        await self._transactions.change(
            insert.on_conflict_do_update(index_elements=_KEY_COLUMNS, set_=fields)
        )


def _matches(
    table: type[records.EncryptedAccount | records.Login], account: records.Account
) -> list[sa.ColumnElement[bool]]:
    return [getattr(table, name) == getattr(account, name) for name in _KEY_COLUMNS]


def _is_valid_login(digest: str, max_age: datetime.timedelta) -> list[sa.ColumnElement[bool]]:
    return [_LOGINS.digest == digest, _LOGINS.began >= columns.now() - max_age]


def _account(login: records.Login) -> records.Account:
    return records.Account(login.platform, login.workspace, login.person, login.server)
