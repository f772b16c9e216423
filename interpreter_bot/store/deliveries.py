"""Messages of answers, recorded before they are posted, and deleted after a while."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import schema, transactions

_D = schema.DELIVERIES
_T = schema.TURNS


@dataclasses.dataclass(frozen=True, slots=True)
class Delivery:
    """A message of an answer.

    Attributes:
        position: within the answer.
        nonce: under which it is posted.
        digest: by which it is recognized.
        tried: when it was posted first, in wall-clock time.
        message: its id on the network; empty while it is unknown whether it was posted.
    """

    position: int
    nonce: str
    digest: str
    tried: float
    message: str = ""


class Deliveries:
    """Table of deliveries."""

    def __init__(self, begin: transactions.Transactions) -> None:
        self._begin = begin

    async def put(
        self,
        platform: str,
        request_id: str,
        position: int,
        *,
        nonce: str,
        digest: str,
        tried: float,
        message: str,
    ) -> None:
        """Note a message, in place of another at its position; see `Delivery`."""
        fields = {"nonce": nonce, "digest": digest, "tried": tried, "message": message}
        insert = self._begin.insert(_D).values(
            platform=platform, request_id=request_id, position=position, **fields
        )
        upsert = insert.on_conflict_do_update(
            index_elements=[_D.c.platform, _D.c.request_id, _D.c.position], set_=fields
        )
        async with self._begin.writing() as transaction:
            await transaction.execute(upsert)

    async def delete(self, platform: str, request_id: str, position: int) -> None:
        """Delete the record of a message that no longer exists."""
        async with self._begin.writing() as transaction:
            await transaction.execute(
                sa.delete(_D).where(*_of(platform, request_id), _D.c.position == position)
            )

    async def of_request(self, platform: str, request_id: str) -> Sequence[Delivery]:
        """Return the messages of an answer, in order."""
        names = [field.name for field in dataclasses.fields(Delivery)]
        select = sa.select(*(_D.c[name] for name in names)).where(*_of(platform, request_id))
        async with self._begin.reading() as transaction:
            rows = await transaction.execute(select.order_by(_D.c.position))
            return [Delivery(**row._asdict()) for row in rows]

    async def prune(self, before: float) -> None:
        """Delete those that were tried before a moment, unless their turn runs.

        Args:
            before: in wall-clock time.
        """
        # Without them, the next bot would post the answer of a long turn once more.
        running = sa.select(_T.c.request_id).where(_T.c.status == values.TurnStatus.RUNNING.value)
        old = sa.delete(_D).where(_D.c.tried < before, _D.c.request_id.not_in(running))
        async with self._begin.writing() as transaction:
            await transaction.execute(old)


def _of(platform: str, request_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return _D.c.platform == platform, _D.c.request_id == request_id
