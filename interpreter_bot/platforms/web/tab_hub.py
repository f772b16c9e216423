"""Registry of tabs and live turns, so that tabs may come and go.

The registry is in memory; the store has everything that must survive a restart.
"""

from __future__ import annotations

import asyncio
import collections
import json
from typing import Any, Final

import cachetools

from interpreter_bot import events
from interpreter_bot.platforms.rendering import event_json
from interpreter_bot.platforms.web import live_turns

_MAX_UNSENT_CHARACTERS: Final = 16 * 1024 * 1024
_MAX_BLOB_BYTES: Final = 32 * 1024 * 1024
_MAX_UNRECORDED_TURNS: Final = 20
_MAX_NOTICES: Final = 3
_MAX_NOTICE_SESSIONS: Final = 1000
_MAX_END_COUNTS: Final = 1000


class Tab:
    """The outgoing queue of one tab.

    A tab that reads too slowly is dropped, and reconnects.

    Attributes:
        thread: id of the session that it shows; empty if none.
        is_behind: its queue became too long, so it is dropped.
    """

    def __init__(self) -> None:
        self.thread = ""
        self.is_behind = False
        self._unsent: list[str] = []
        self._unsent_characters = 0
        self._has_messages = asyncio.Event()

    def send(self, message: str) -> None:
        """Queue a message, a JSON object."""
        if self.is_behind:
            return
        if self._unsent and self._unsent_characters > _MAX_UNSENT_CHARACTERS:
            self.is_behind = True
            self._unsent.clear()
        else:
            self._unsent.append(message)
            self._unsent_characters += len(message)
        self._has_messages.set()

    async def next_batch(self) -> str:
        """Wait for messages; return them as a JSON array. Empty if the tab is dropped."""
        await self._has_messages.wait()
        self._has_messages.clear()
        batch, self._unsent, self._unsent_characters = self._unsent, [], 0
        return f"[{','.join(batch)}]" if not self.is_behind else ""


class Hub:
    """All tabs, and all turns that wait, run, or have just ended.

    Attributes:
        sessions_changed: set when the list of sessions may have changed.
    """

    def __init__(self) -> None:
        self._tabs: set[Tab] = set()
        self._turns: dict[str, list[live_turns.LiveTurn]] = {}
        # The counts of all sessions come from one counter, so that no number is used twice.
        self._end_counts = cachetools.LRUCache[str, int](_MAX_END_COUNTS)
        self._last_end_count = 0
        self._notices = cachetools.LRUCache[str, list[str]](_MAX_NOTICE_SESSIONS)
        self.sessions_changed = asyncio.Event()
        self._blobs: collections.OrderedDict[str, bytes] = collections.OrderedDict()
        self._blob_bytes = 0

    def add_tab(self, tab: Tab) -> None:
        """Add a tab. It gets every session's start and end of turns from now on."""
        self._tabs.add(tab)

    def remove_tab(self, tab: Tab) -> None:
        """Remove a tab."""
        self._tabs.discard(tab)

    def send_message(self, kind: str, fields: dict[str, Any], *, thread: str = "") -> None:
        """Send a message to every tab, or to those that show one session."""
        message = encode_message(kind, fields, thread=thread)
        for tab in self._tabs:
            if thread in ("", tab.thread):
                tab.send(message)

    def begin_turn(
        self,
        thread: str,
        turn_id: str,
        heading: dict[str, Any],
        *,
        is_new: bool = True,
    ) -> live_turns.LiveTurn:
        """Create a turn and show it; a new request removes the session's notices."""

        def send(turn: live_turns.LiveTurn, event: events.RecordedEvent) -> None:
            fields = {"turn": turn.id, "event": event_json.to_json(event)}
            self.send_message("event", fields, thread=thread)
            if isinstance(event, events.Started | events.TurnEnded):
                self.sessions_changed.set()

        if is_new:
            self._notices.pop(thread, None)
        turn = live_turns.LiveTurn(turn_id, heading, send=send, keep_blob=self.keep_blob)
        self._turns[thread] = [*self.list_turns(thread), turn]
        self.send_message("turn", turn.describe(), thread=thread)
        return turn

    def end_turn(self, thread: str, turn: live_turns.LiveTurn) -> None:
        """Remove a turn that has ended; one that is not in the store is kept for a while."""
        self._last_end_count += 1
        self._end_counts[thread] = self._last_end_count
        # The turn may have been removed by `forget_finished_turns`.
        turns = self.list_turns(thread)
        if turn.log.end is not None and not turn.log.end.turn_id:
            finished_turns = [other for other in turns if other.log.end is not None]
            excess_turns = finished_turns[:-_MAX_UNRECORDED_TURNS]
        else:
            excess_turns = [turn]
        self._set_turns(thread, [candidate for candidate in turns if candidate not in excess_turns])
        # Only now is the session no longer busy.
        self.sessions_changed.set()

    def end_count(self, thread: str) -> int:
        """Return a number that changes when a turn of a session ends, for readers of the store."""
        return self._end_counts.get(thread, 0)

    def notify(self, thread: str, text: str) -> None:
        """Show a sentence about a session; it is shown until the next request there."""
        self._notices[thread] = [*self.list_notices(thread), text][-_MAX_NOTICES:]
        self.send_message("notice", {"text": text}, thread=thread)

    def list_notices(self, thread: str) -> list[str]:
        """Return the sentences about a session that are still shown."""
        return self._notices.get(thread, [])

    def forget_finished_turns(self, thread: str) -> None:
        """Forget the finished turns of a session."""
        self._notices.pop(thread, None)
        self._set_turns(thread, [turn for turn in self.list_turns(thread) if turn.log.end is None])

    def _set_turns(self, thread: str, turns: list[live_turns.LiveTurn]) -> None:
        if turns:
            self._turns[thread] = turns
        else:
            self._turns.pop(thread, None)

    def list_turns(self, thread: str) -> tuple[live_turns.LiveTurn, ...]:
        """Return the live turns of a session, oldest first."""
        return tuple(self._turns.get(thread, ()))

    def find_turn(self, thread: str, turn_id: str) -> live_turns.LiveTurn | None:
        """Return a turn by its id."""
        return next((turn for turn in self.list_turns(thread) if turn.id == turn_id), None)

    def keep_blob(self, sha256: str, data: bytes) -> None:
        """Keep the bytes of a picture or a page until the store has them."""
        if sha256 not in self._blobs:
            self._blob_bytes += len(data)
        self._blobs[sha256] = data
        self._blobs.move_to_end(sha256)
        while self._blob_bytes > _MAX_BLOB_BYTES and len(self._blobs) > 1:
            self._blob_bytes -= len(self._blobs.popitem(last=False)[1])

    def load_blob(self, sha256: str) -> bytes | None:
        """Return the bytes kept under a hash, if they are still here."""
        return self._blobs.get(sha256)


def encode_message(kind: str, fields: dict[str, Any], *, thread: str = "") -> str:
    """Encode a message for tabs."""
    header = {"kind": kind, "thread": thread} if thread else {"kind": kind}
    # Escapes keep lone surrogates, which have no UTF-8, out of the websocket's text.
    return json.dumps(header | fields, separators=(",", ":"))
