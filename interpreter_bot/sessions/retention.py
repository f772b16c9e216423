"""Deletion of sessions' files that are too old, or exceed a limit, least recently used first.

People are warned days before their files get too old, and notified after files were deleted because
of a limit. Several bots on one database can do this: the bot that changes the session's row sends
the notification. If it dies before, the row records the deletion, and the next pass finishes it.

A deletion removes the workspace, and the pictures and pages that were shown. The conversation
stays, with a notice. Workspaces without a known session stay too, as the database may be the wrong
one.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import logging
import shutil
from collections.abc import Sequence
from typing import Final

from interpreter_bot import errors, schedules, settings, values
from interpreter_bot.hosts import ports
from interpreter_bot.sessions import lanes, session_dependencies, session_service
from interpreter_bot.store import columns, records
from interpreter_bot.text import quantities
from interpreter_bot.wording import session_words

_log = logging.getLogger(__name__)

# Also the delay of the first pass, so a bot that restarts more often than this makes none.
_PASS_INTERVAL_SECONDS: Final = 1800.0
_DISK_CHECK_INTERVAL_SECONDS: Final = 60.0
# Bounds the warnings of a pass, as years of threads are due at once when retention is enabled.
_MAX_WARNINGS: Final = 50
_MAX_LOGGED: Final = 5
_WARNING_TIME: Final = datetime.timedelta(days=settings.WARNING_DAYS)


@dataclasses.dataclass(frozen=True, slots=True)
class _Holding:
    """The stored files of one session.

    Attributes:
        owner: platform, workspace and id of the person who began it.
    """

    session: records.Session
    owner: tuple[str, str, str]
    bytes: int


class Retention:
    """Periodic jobs that bound the disk space of sessions' files."""

    def __init__(
        self,
        services: session_dependencies.SessionDependencies,
        service: session_service.SessionService,
        *,
        max_warnings: int = _MAX_WARNINGS,
    ) -> None:
        self._max_warnings = max_warnings
        self._services = services
        self._service = service
        self._limits = services.config.retention
        self._was_disk_full = False
        # Sessions whose people could not be notified are tried again after all others.
        self._unreachable_ids: set[int] = set()

    def periodic_jobs(self) -> tuple[schedules.PeriodicJob, ...]:
        """Return all periodic jobs."""
        return (
            schedules.PeriodicJob("delete old files", _PASS_INTERVAL_SECONDS, self.apply),
            schedules.PeriodicJob("check the disk", _DISK_CHECK_INTERVAL_SECONDS, self.report),
        )

    async def apply(self) -> int:
        """Warn of old files, and delete files; return from how many sessions."""
        holdings, stored_bytes = await self._load_holdings()
        now = columns.now()
        remaining_holdings = [
            holding for holding in holdings if not await self._finish_or_delete_old(holding, now)
        ]
        deleted_ids = await self._fit_limits(remaining_holdings, stored_bytes.disk_bytes)
        await self._warn_expiring(
            [holding for holding in remaining_holdings if holding.session.id not in deleted_ids],
            now,
        )
        deleted_count = len(holdings) - len(remaining_holdings) + len(deleted_ids)
        if deleted_count:
            await self._services.database.parts.discard_unused_blobs()
        return deleted_count

    async def report(self) -> None:
        """Log the largest holdings once the disk is nearly full."""
        config = self._services.config
        free_bytes = shutil.disk_usage(config.paths.data).free
        is_full = free_bytes < config.limits.disk_reserve_bytes
        if is_full and not self._was_disk_full:
            holdings, stored_bytes = await self._load_holdings()
            largest = sorted(holdings, key=lambda holding: holding.bytes, reverse=True)[
                :_MAX_LOGGED
            ]
            _log.error(
                "the disk of %s is nearly full, %s free: %s in files of %d conversations (%s), %s "
                "in those of none",
                config.paths.data,
                quantities.size(free_bytes),
                quantities.size(sum(holding.bytes for holding in holdings)),
                len(holdings),
                ", ".join(
                    f"{holding.session.key}: {quantities.size(holding.bytes)}"
                    for holding in largest
                ),
                quantities.size(stored_bytes.other_bytes),
            )
        self._was_disk_full = is_full

    async def _load_holdings(self) -> tuple[list[_Holding], ports.StoredBytes]:
        """Return all holdings, the least recently used first, and the hosts' totals."""
        database = self._services.database
        sessions_with_owners = await database.sessions.list_with_owners()
        keys = {values.format_key(session.key) for session, _ in sessions_with_owners}
        stored_bytes = await self._services.hosts.stored_bytes(keys)
        blob_bytes = await database.parts.sum_blob_bytes()
        holdings = []
        for session, person in sessions_with_owners:
            byte_count = stored_bytes.by_key.get(
                values.format_key(session.key), 0
            ) + blob_bytes.get(session.id, 0)
            if byte_count:
                owner = (session.key.platform, session.key.workspace, person)
                holdings.append(_Holding(session, owner, byte_count))
        return holdings, stored_bytes

    def _is_warning_old(self, session: records.Session, now: datetime.datetime) -> bool | None:
        """Return whether the warning is old enough; None without one since the last use."""
        if "at" not in session.files or session.used_after_file_notice:
            return None
        return now - datetime.datetime.fromisoformat(session.files["at"]) >= _WARNING_TIME

    def _time_left(self, holding: _Holding, now: datetime.datetime) -> datetime.timedelta:
        return holding.session.used + datetime.timedelta(days=self._limits.days) - now

    async def _finish_or_delete_old(self, holding: _Holding, now: datetime.datetime) -> bool:
        """Delete too old files, or finish a deletion; return whether files were deleted."""
        was_warned = self._is_warning_old(holding.session, now)
        if was_warned is not None and (sentence := holding.session.files.get("gone")):
            return await self._delete(holding, sentence)
        if (
            self._limits.days
            and was_warned
            and self._time_left(holding, now) <= datetime.timedelta(0)
        ):
            reason = session_words.unused_for(_format_days(now - holding.session.used))
            sentence = session_words.retention_deleted(holding.bytes, reason)
            return await self._delete(holding, sentence)
        return False

    async def _warn_expiring(self, holdings: Sequence[_Holding], now: datetime.datetime) -> None:
        """Warn the people of some sessions that are about to get too old."""
        if not self._limits.days:
            return
        expiring = [
            holding
            for holding in holdings
            if self._time_left(holding, now).days < settings.WARNING_DAYS
            and self._is_warning_old(holding.session, now) is None
            and self._service.can_notify(holding.session.key)
        ]
        expiring.sort(key=lambda holding: holding.session.id in self._unreachable_ids)
        for holding in expiring[: self._max_warnings]:
            await self._warn(holding, now)

    async def _warn(self, holding: _Holding, now: datetime.datetime) -> None:
        session, sessions = holding.session, self._services.database.sessions
        sentence = session_words.retention_warning(
            _format_days(now - session.used),
            _format_days(max(self._time_left(holding, now), _WARNING_TIME)),
            holding.bytes,
        )
        row = {"warned": sentence, "at": columns.now().isoformat()}
        # Stored before the warning is sent, as another bot may be about to send one.
        if not await sessions.note_files(session.id, row, expected=session.files):
            return
        is_sent = False
        try:
            is_sent = await self._service.notify(session.key, sentence)
        finally:
            if is_sent:
                self._unreachable_ids.discard(session.id)
            else:
                self._unreachable_ids.add(session.id)
                await sessions.note_files(session.id, session.files, expected=row)

    async def _fit_limits(self, holdings: Sequence[_Holding], disk_bytes: int) -> set[int]:
        """Delete files until each person, then all together, are within their limits.

        Returns:
            The ids of the sessions whose files were deleted.
        """
        max_total_bytes = self._limits.total_bytes or disk_bytes // 2
        max_person_bytes = self._limits.person_bytes
        deleted_ids: set[int] = set()
        if max_person_bytes:
            reason = session_words.person_over_limit(max_person_bytes)
            # Those of unknown people may belong to several people, who share no limit.
            holdings_by_person = collections.defaultdict(list)
            for holding in holdings:
                holdings_by_person[holding.owner].append(holding)
            for owner, owned_holdings in holdings_by_person.items():
                if owner[-1]:
                    deleted_ids |= await self._shrink(owned_holdings, max_person_bytes, reason)
        remaining_holdings = [
            holding for holding in holdings if holding.session.id not in deleted_ids
        ]
        reason = session_words.all_over_limit(max_total_bytes)
        return deleted_ids | await self._shrink(remaining_holdings, max_total_bytes, reason)

    async def _shrink(self, holdings: Sequence[_Holding], max_bytes: int, reason: str) -> set[int]:
        """Delete files, the least recently used first, until they are within a limit."""
        deleted_ids: set[int] = set()
        excess = sum(holding.bytes for holding in holdings) - max_bytes
        for holding in holdings:
            if excess <= 0:
                break
            if await self._delete(holding, session_words.retention_deleted(holding.bytes, reason)):
                deleted_ids.add(holding.session.id)
                excess -= holding.bytes
        return deleted_ids

    async def _delete(self, holding: _Holding, sentence: str) -> bool:
        """Delete a session's files unless it is in use; return whether they were deleted."""
        try:
            return await self._service.delete_files(holding.session, sentence)
        except lanes.LaneError:
            # The bot is shutting down.
            return False
        except errors.BotError:
            _log.exception("the files of a session could not be deleted")
            return False


def _format_days(span: datetime.timedelta) -> str:
    return quantities.count(max(round(span.total_seconds() / 86_400), 1), "day")
