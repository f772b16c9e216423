"""Looking after conversations nobody is looking at: warnings, orphans, what is kept for nothing."""

from __future__ import annotations

import datetime
import time
from typing import Final

from interpreter_bot.sessions import addresses, conversations, reaping, stops, turns
from interpreter_bot.store import records
from interpreter_bot.text import formatting

_WARN_SECONDS: Final = 15.0
_LATE_SECONDS: Final = 5.0
_ORPHANS_SECONDS: Final = 60.0
_ARREARS_SECONDS: Final = 20.0
_DAY_SECONDS: Final = 24 * 3600.0
_EVENTS_AGE: Final = datetime.timedelta(days=1)

_WARNING: Final = (
    "Nobody has used the Python of this conversation for {since}. In {left} its variables are let "
    "go; files stay. Any message keeps it."
)


class Caretaker:
    """Does what nobody asks for."""

    def __init__(self, means: turns.Means, held: conversations.Conversations) -> None:
        self._means = means
        self._held = held
        self._warned: dict[str, float] = {}

    def jobs(self) -> tuple[reaping.Job, ...]:
        """Return everything that is to be done by the clock."""
        return (
            reaping.reaping(self._means.pool),
            reaping.Job("warn of reaping", _WARN_SECONDS, self.warn),
            reaping.Job("tell what could not be told", _LATE_SECONDS, self._held.notify_late),
            reaping.Job("find orphans", _ORPHANS_SECONDS, self.find_orphans),
            reaping.Job("record what is due", _ARREARS_SECONDS, self._means.arrears.write),
            reaping.Job("tidy the store", _DAY_SECONDS, self.tidy),
        )

    async def warn(self) -> int:
        """Tell people whose kernel is about to be let go, once each time; returns how many."""
        kernels, warning = self._means.bot.kernels, self._means.bot.sessions.warning_seconds
        if not warning:
            return 0
        live = dict(self._means.pool.live)
        self._warned = {key: at for key, at in self._warned.items() if key in live}
        told = 0
        for pool_key, launched in live.items():
            used = launched.kernel.last_used
            idle = time.monotonic() - used
            key = addresses.key(pool_key)
            is_due = kernels.idle_seconds - warning <= idle < kernels.idle_seconds
            if not is_due or self._warned.get(pool_key) == used:
                continue
            if launched.kernel.is_alive and not self._held.is_busy(key):
                self._warned[pool_key] = used
                left = _said(kernels.idle_seconds - idle)
                await self._held.notify(key, _WARNING.format(since=_said(idle), left=left))
                told += 1
        return told

    async def find_orphans(self) -> None:
        """Tell people whose turns another bot left behind when it died."""
        await self.tell(await self._means.database.turns.interrupt_orphans())

    async def tell(self, orphans: tuple[records.Turn, ...]) -> None:
        """Tell the people of turns that were cut off."""
        for session_id in dict.fromkeys(turn.session_id for turn in orphans):
            session = await self._means.database.sessions.get(session_id)
            if session is not None:
                await self._held.notify(session.key, stops.INTERRUPTED)

    async def tidy(self) -> None:
        """Forget what nothing refers to any more."""
        await self._means.database.events.prune(_EVENTS_AGE)
        await self._means.database.parts.discard_unused_files()


def _said(seconds: float) -> str:
    return formatting.duration(round(seconds) if seconds < 90 else 60 * round(seconds / 60))
