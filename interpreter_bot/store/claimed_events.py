"""Events of platforms that were dealt with: networks send them again, replicas all hear them."""

from __future__ import annotations

import datetime

import sqlalchemy as sa

from interpreter_bot.store import columns, schema, transactions

_T = schema.EVENTS


class ClaimedEvents:
    """The ids of those events, for a while."""

    def __init__(self, begin: transactions.Transactions) -> None:
        self._begin = begin

    async def claim(self, platform: str, event_id: str) -> bool:
        """Say whether an event is new; of all replicas that ask, exactly one hears yes."""
        insert = self._begin.insert(_T).values(
            platform=platform, event_id=event_id, seen=columns.now()
        )
        async with self._begin.writing() as transaction:
            return (await transaction.execute(insert.on_conflict_do_nothing())).rowcount == 1

    async def prune(self, age: datetime.timedelta) -> int:
        """Forget events that are older than any network repeats them, and say how many."""
        old = sa.delete(_T).where(_T.c.seen < columns.now() - age)
        async with self._begin.writing() as transaction:
            return (await transaction.execute(old)).rowcount
