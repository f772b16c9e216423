"""Activities of code outside of the sandbox: contacts, queries, installations and calls of tools.

One table has all kinds; activities outlive their sessions.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from interpreter_bot import code_activity, values
from interpreter_bot.store import columns, records, transactions

_Activity = TypeVar("_Activity", bound=code_activity.Activity)

_ACTIVITIES = records.Activity
_KINDS: Final[dict[type[object], str]] = {
    code_activity.Contact: "contact",
    code_activity.Query: "query",
    code_activity.Installation: "installation",
    code_activity.ToolCall: "tool call",
}


class Activities(transactions.Aggregate):
    """Table of activities."""

    async def add(self, activities: Iterable[code_activity.Activity]) -> None:
        """Record activities that have ended; a repeated report of an installation is ignored."""
        insert = self._transactions.insert(_ACTIVITIES).on_conflict_do_nothing()
        async with self._transactions.transaction(is_writing=True):
            await self._transactions.add(insert, [_row(activity) for activity in activities])

    async def begin(self, call: code_activity.ToolCall) -> bool:
        """Record a call before it is made; return False if its id is recorded already."""
        insert = self._transactions.insert(_ACTIVITIES).values(_row(call)).on_conflict_do_nothing()
        return await self._transactions.change(insert) == 1

    async def end(self, call: code_activity.ToolCall) -> None:
        """Record how a call ended."""
        row = _row(call)
        condition = (_ACTIVITIES.kind == row["kind"], _ACTIVITIES.reference == row["reference"])
        await self._transactions.change(
            sa.update(_ACTIVITIES).where(*condition).values(content=row["content"])
        )

    async def list_latest(self, kind: type[_Activity], *, limit: int) -> tuple[_Activity, ...]:
        """Return the latest activities of a kind in all sessions, the latest first."""
        query = sa.select(_ACTIVITIES.content).where(_ACTIVITIES.kind == _KINDS[kind])
        query = query.order_by(_ACTIVITIES.began.desc(), _ACTIVITIES.id.desc()).limit(limit)
        return tuple(kind(**content) for content in await self._transactions.all(query))

    async def prune(self, max_age: datetime.timedelta) -> None:
        """Delete activities that began longer ago than `max_age`."""
        # The index begins with the kind.
        is_old = (
            _ACTIVITIES.kind.in_(_KINDS.values()),
            _ACTIVITIES.began < columns.now() - max_age,
        )
        await self._transactions.change(sa.delete(_ACTIVITIES).where(*is_old))


def _row(activity: code_activity.Activity) -> dict[str, Any]:
    content = dataclasses.asdict(activity)
    reference = None
    if isinstance(activity, code_activity.Installation):
        reference = f"{activity.kernel_id} {activity.layer}"
    elif isinstance(activity, code_activity.ToolCall):
        reference = activity.call_id
    return {
        **dataclasses.asdict(values.parse_key(activity.key)),
        "kind": _KINDS[type(activity)],
        "person": content.get("person", ""),
        "reference": reference,
        "content": {
            name: columns.shorten(value) if isinstance(value, str) else value
            for name, value in content.items()
        },
        "began": datetime.datetime.fromtimestamp(activity.happened_at, datetime.UTC),
    }
