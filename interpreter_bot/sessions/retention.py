"""Deletion of sessions' files that are old, or too many, least recently used first.

People are warned days before theirs get too old; of a budget that is used up they hear when it took
theirs. Several bots on one database can do this: who changes the session's row tells of it. A bot
that dies in between leaves a row that says what is gone, and the next pass finishes that.

The files are the workspace and the pictures and pages that were shown. What was said stays, and
says that they are gone. Workspaces of no known session stay too: the database may be the wrong one.
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

# The first pass comes so long after the start, which must come before a restart does.
_PASS_SECONDS: Final = 1800.0
_DISK_SECONDS: Final = 60.0
# So that a bot that learns of retention does not wake up years of threads at once.
_MAX_WARNED: Final = 50
_SHOWN: Final = 5


@dataclasses.dataclass(frozen=True, slots=True)
class _Holding:
    """What one session holds.

    Attributes:
        person: platform, workspace and id of who began it.
    """

    session: records.Session
    person: tuple[str, str, str]
    bytes: int


class Retention:
    """Periodic jobs that bound what files of sessions hold."""

    def __init__(
        self,
        services: session_dependencies.SessionDependencies,
        service: session_service.SessionService,
    ) -> None:
        self._services = services
        self._service = service
        self._limits = services.config.retention
        self._was_full = False
        # Sessions whose people could not be told: these wait behind all others.
        self._unheard: set[int] = set()

    def jobs(self) -> tuple[schedules.PeriodicJob, ...]:
        """Return all periodic jobs."""
        return (
            schedules.PeriodicJob("delete old files", _PASS_SECONDS, self.apply),
            schedules.PeriodicJob("look at the disk", _DISK_SECONDS, self.report),
        )

    async def apply(self) -> int:
        """Warn of what gets old, delete what is old or too much; return how many sessions lost
        their files.
        """
        holdings, stored = await self._holdings()
        now = columns.now()
        remaining = [
            holding for holding in holdings if not await self._finish_or_delete_old(holding, now)
        ]
        deleted_ids = await self._fit_limits(remaining, stored.disk_bytes)
        await self._warn_some(
            [holding for holding in remaining if holding.session.id not in deleted_ids], now
        )
        count = len(holdings) - len(remaining) + len(deleted_ids)
        if count:
            await self._services.database.parts.discard_unused_files()
        return count

    async def report(self) -> None:
        """Log what holds the disk, once it is nearly full."""
        config = self._services.config
        free = shutil.disk_usage(config.paths.data).free
        is_full = free < config.limits.disk_reserve_bytes
        if is_full and not self._was_full:
            holdings, stored = await self._holdings()
            largest = sorted(holdings, key=lambda holding: holding.bytes, reverse=True)[:_SHOWN]
            _log.error(
                "the disk of %s is nearly full, %s free: %s in files of %d conversations (%s), %s "
                "in those of none",
                config.paths.data,
                quantities.size(free),
                quantities.size(sum(holding.bytes for holding in holdings)),
                len(holdings),
                ", ".join(
                    f"{holding.session.key}: {quantities.size(holding.bytes)}"
                    for holding in largest
                ),
                quantities.size(stored.other_bytes),
            )
        self._was_full = is_full

    @property
    def _warning_time(self) -> datetime.timedelta:
        return datetime.timedelta(days=settings.WARNING_DAYS)

    async def _holdings(self) -> tuple[list[_Holding], ports.StoredBytes]:
        """Return what sessions hold, the least recently used first, and what hosts say of it."""
        database = self._services.database
        owned = await database.sessions.owned()
        keys = {values.text(session.key) for session, _ in owned}
        stored = await self._services.hosts.stored_bytes(keys)
        blob_bytes = await database.parts.blob_bytes()
        holdings = []
        for session, person in owned:
            count = stored.by_key.get(values.text(session.key), 0) + blob_bytes.get(session.id, 0)
            if count:
                whose = (session.key.platform, session.key.workspace, person)
                holdings.append(_Holding(session, whose, count))
        return holdings, stored

    def _was_warned(self, session: records.Session, now: datetime.datetime) -> bool | None:
        """Return whether people were told long enough ago; None if they were not, or came since."""
        if "at" not in session.files or session.used_after_file_notice:
            return None
        return now - datetime.datetime.fromisoformat(session.files["at"]) >= self._warning_time

    def _time_left(self, holding: _Holding, now: datetime.datetime) -> datetime.timedelta:
        return holding.session.used + datetime.timedelta(days=self._limits.days) - now

    async def _finish_or_delete_old(self, holding: _Holding, now: datetime.datetime) -> bool:
        """Delete what is old, or what is said to be gone; say whether it was done."""
        was_warned = self._was_warned(holding.session, now)
        if was_warned is not None and (sentence := holding.session.files.get("gone")):
            return await self._delete(holding, sentence)
        if (
            self._limits.days
            and was_warned
            and self._time_left(holding, now) <= datetime.timedelta(0)
        ):
            reason = session_words.unused(_days(now - holding.session.used))
            return await self._delete(holding, self._deletion_sentence(holding, reason))
        return False

    async def _warn_some(self, holdings: Sequence[_Holding], now: datetime.datetime) -> None:
        """Warn the people of some sessions that are about to get too old."""
        if not self._limits.days:
            return
        expiring = [
            holding
            for holding in holdings
            if self._time_left(holding, now).days < settings.WARNING_DAYS
            and self._was_warned(holding.session, now) is None
            and self._service.can_notify(holding.session.key)
        ]
        expiring.sort(key=lambda holding: holding.session.id in self._unheard)
        for holding in expiring[:_MAX_WARNED]:
            await self._warn(holding, now)

    async def _warn(self, holding: _Holding, now: datetime.datetime) -> None:
        session, sessions = holding.session, self._services.database.sessions
        sentence = session_words.retention_warning(
            _days(now - session.used),
            _days(max(self._time_left(holding, now), self._warning_time)),
            holding.bytes,
        )
        row = {"warned": sentence, "at": columns.now().isoformat()}
        # Before people are told, as another bot may be about to tell them.
        if not await sessions.note_files(session.id, row, instead_of=session.files):
            return
        is_told = False
        try:
            is_told = await self._service.notify(session.key, sentence)
        finally:
            if is_told:
                self._unheard.discard(session.id)
            else:
                self._unheard.add(session.id)
                await sessions.note_files(session.id, session.files, instead_of=row)

    async def _fit_limits(self, holdings: Sequence[_Holding], disk_bytes: int) -> set[int]:
        """Delete files until each person, then all of them together, are within the limits; return
        whose, by session id.
        """
        total = self._limits.total_bytes
        if not total:
            total = disk_bytes // 2
        limit = self._limits.person_bytes
        deleted_ids: set[int] = set()
        if limit:
            reason = session_words.person_over_limit(limit)
            # Who is unknown shares with nobody.
            by_person = collections.defaultdict(list)
            for holding in holdings:
                by_person[holding.person].append(holding)
            for whose, theirs in by_person.items():
                if whose[-1]:
                    deleted_ids |= await self._shrink(theirs, limit, reason)
        remaining = [holding for holding in holdings if holding.session.id not in deleted_ids]
        reason = session_words.all_over_limit(total)
        return deleted_ids | await self._shrink(remaining, total, reason)

    async def _shrink(self, holdings: Sequence[_Holding], max_bytes: int, reason: str) -> set[int]:
        """Delete files, the least recently used first, until `holdings` is not above a limit."""
        deleted_ids: set[int] = set()
        excess = sum(holding.bytes for holding in holdings) - max_bytes
        for holding in holdings:
            if excess <= 0:
                break
            if await self._delete(holding, self._deletion_sentence(holding, reason)):
                deleted_ids.add(holding.session.id)
                excess -= holding.bytes
        return deleted_ids

    def _deletion_sentence(self, holding: _Holding, reason: str) -> str:
        return session_words.deleted(holding.bytes, reason)

    async def _delete(self, holding: _Holding, sentence: str) -> bool:
        """Delete the files of a session that is not in use; say whether it was done."""
        try:
            return await self._service.delete_files(holding.session, sentence)
        except lanes.LaneError:
            # The bot is being shut down.
            return False
        except errors.BotError:
            _log.exception("the files of a session could not be deleted")
            return False


def _days(span: datetime.timedelta) -> str:
    return quantities.count(max(round(span.total_seconds() / 86_400), 1), "day")
