"""A live turn: the events it has shown so far."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Final

from interpreter_bot import events
from interpreter_bot.platforms.web import event_json
from interpreter_bot.wording import page_words

_MAX_LOG_BYTES: Final = 4 * 1024 * 1024
_MERGED: Final = frozenset({"text", "writing", "printed"})
# Events that a long turn can drop until it is over and comes from the store.
_DROPPED: Final = frozenset({"printed", "writing", "output"})


@dataclasses.dataclass(slots=True)
class _Entry:
    """An event; the additions to its `delta` are kept in pieces, so that adding stays cheap."""

    event: event_json.Event
    pieces: list[str]
    size: int

    def whole(self) -> event_json.Event:
        return self.event | {"delta": "".join(self.pieces)} if self.pieces else self.event


class EventLog:
    """Events in order, adjacent ones merged, within a budget."""

    def __init__(self, max_bytes: int = _MAX_LOG_BYTES) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._entries: list[_Entry] = []
        self._is_cut = False

    def append(self, event: event_json.Event) -> None:
        """Append an event."""
        kind = event["kind"]
        if kind == "code":
            # It contains all that was written before.
            self._remove(lambda entry: entry.event["kind"] == "writing")
        elif kind == "progress":
            self._remove(lambda entry: entry.event["kind"] == "progress")
            if not event["text"]:
                return
        size = len(event["delta"]) if kind in _MERGED else len(json.dumps(event))
        self._size += size
        last = self._entries[-1] if self._entries else None
        if kind in _MERGED and last is not None and _continues(last.event, event):
            last.pieces.append(event["delta"])
            last.size += size
        else:
            pieces = [event["delta"]] if kind in _MERGED else []
            self._entries.append(_Entry(event, pieces, size))
        if self._size > self._max_bytes:
            self._shorten()

    def events(self) -> list[event_json.Event]:
        """Return the events so far."""
        start = [event_json.to_json(events.NoticeShown(page_words.OUTPUT_LEFT_OUT))]
        return (start if self._is_cut else []) + [entry.whole() for entry in self._entries]

    def _shorten(self) -> None:
        """Drop the oldest output, to half of the budget, so that this is done rarely."""
        excess = self._size - self._max_bytes // 2
        for entry in self._entries:
            if excess <= 0:
                break
            if entry.event["kind"] in _DROPPED:
                excess -= entry.size
                entry.size = -1
                self._is_cut = True
        self._remove(lambda entry: entry.size < 0)

    def _remove(self, is_unwanted: Callable[[_Entry], bool]) -> None:
        self._entries = [entry for entry in self._entries if not is_unwanted(entry)]
        self._size = sum(entry.size for entry in self._entries)


def _continues(last: event_json.Event, event: event_json.Event) -> bool:
    names = ("kind", "cell", "stream")
    return all(last.get(name) == event.get(name) for name in names)


class LiveTurn:
    """One request in flight. Created when it is sent, kept for a while after it is over.

    Attributes:
        id: the page's id of it.
        end: the event that ended it; None while it waits or runs.
    """

    def __init__(
        self,
        turn_id: str,
        head: event_json.Event,
        tell: Callable[[LiveTurn, event_json.Event], None],
    ) -> None:
        self.id = turn_id
        self.end: event_json.Event | None = None
        self.has_begun = False
        self._head = head
        self._tell = tell
        self._log = EventLog()

    def say(self, event: event_json.Event) -> None:
        """Record an event, and send it to the tabs that watch."""
        kind = event["kind"]
        if kind == "begun":
            self.has_begun = True
        elif kind == "over":
            self.end = event
        if kind != "waiting":
            self._log.append(event)
        self._tell(self, event)

    def with_events(self) -> event_json.Event:
        """Return the turn and all its events so far."""
        return self._head | {"id": self.id, "events": self._log.events()}
