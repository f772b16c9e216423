"""Messages of answers, recorded before they are posted, and deleted after a while."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from interpreter_bot import values
from interpreter_bot.store import records, transactions

_DELIVERIES = records.Delivery
_TURNS = records.Turn


class Deliveries(transactions.Aggregate):
    """Table of deliveries."""

    async def put(
        self,
        platform: str,
        request_id: str,
        position: int,
        *,
        nonce: str,
        digest: str,
        first_tried_at: float,
        message: str,
    ) -> None:
        """Record a message, replacing another one at its position; see `records.Delivery`."""
        fields = {
            "nonce": nonce,
            "digest": digest,
            "first_tried_at": first_tried_at,
            "message": message,
        }
        insert = self._transactions.insert(_DELIVERIES).values(
            platform=platform, request_id=request_id, position=position, **fields
        )
        key_columns = ["platform", "request_id", "position"]
        await self._transactions.change(
            insert.on_conflict_do_update(index_elements=key_columns, set_=fields)
        )

    async def delete(self, platform: str, request_id: str, position: int) -> None:
        """Delete the record of a message that no longer exists."""
        condition = (*_is_of_request(platform, request_id), _DELIVERIES.position == position)
        await self._transactions.change(sa.delete(_DELIVERIES).where(*condition))

    async def list_for_request(self, platform: str, request_id: str) -> Sequence[records.Delivery]:
        """Return the messages of an answer, in order."""
        query = (
            sa.select(_DELIVERIES)
            .where(*_is_of_request(platform, request_id))
            .order_by(_DELIVERIES.position)
        )
        return await self._transactions.all(query)

    async def prune(self, before: float) -> None:
        """Delete messages that were tried before a moment, unless their turn runs.

        Args:
            before: the moment, in wall-clock time.
        """
        # Without the messages of a running turn, the next bot would post them again.
        running_request_ids = sa.select(_TURNS.request_id).where(
            _TURNS.status == values.TurnStatus.RUNNING
        )
        delete = sa.delete(_DELIVERIES).where(
            _DELIVERIES.first_tried_at < before, _DELIVERIES.request_id.not_in(running_request_ids)
        )
        await self._transactions.change(delete)


def _is_of_request(platform: str, request_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return _DELIVERIES.platform == platform, _DELIVERIES.request_id == request_id
