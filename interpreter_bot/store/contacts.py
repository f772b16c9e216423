"""Contacts: what code of sessions tried to reach outside. They outlive their sessions."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import sqlalchemy as sa

from interpreter_bot import network_reach, values
from interpreter_bot.store import columns, schema, transactions

_T = schema.CONTACTS
_FIELDS = (
    *("kernel_id", "method", "host", "port", "path", "status", "reason"),
    *("sent_bytes", "received_bytes", "seconds"),
)


class Contacts:
    """Table of contacts."""

    def __init__(self, begin: transactions.Transactions) -> None:
        self._begin = begin

    async def add(self, found: Sequence[network_reach.Contact]) -> None:
        """Add contacts that are over."""
        rows = [_row(contact) for contact in found]
        async with self._begin.writing() as transaction:
            await transaction.execute(sa.insert(_T), rows)

    async def of_session(
        self, key: values.SessionKey, *, most: int = 100
    ) -> tuple[network_reach.Contact, ...]:
        """Return the latest contacts of a session, the latest first."""
        query = (
            sa.select(_T)
            .where(*(_T.c[name] == value for name, value in _columns(key).items()))
            .order_by(_T.c.began.desc(), _T.c.id.desc())
            .limit(most)
        )
        async with self._begin.reading() as transaction:
            rows = (await transaction.execute(query)).all()
        return tuple(
            network_reach.Contact(
                values.text(key),
                at=row.began.timestamp(),
                **{name: getattr(row, name) for name in _FIELDS},
            )
            for row in rows
        )

    async def prune(self, age: datetime.timedelta) -> int:
        """Delete those that began longer ago; returns how many."""
        old = sa.delete(_T).where(_T.c.began < columns.now() - age)
        async with self._begin.writing() as transaction:
            return (await transaction.execute(old)).rowcount


def _row(contact: network_reach.Contact) -> dict[str, object]:
    fields: dict[str, object] = {name: getattr(contact, name) for name in _FIELDS}
    began = datetime.datetime.fromtimestamp(contact.at, datetime.UTC)
    return fields | _columns(values.key(contact.key)) | {"began": began}


def _columns(key: values.SessionKey) -> dict[str, str]:
    return {
        "platform": key.platform,
        "workspace": key.workspace,
        "channel": key.channel,
        "thread": key.thread,
    }
