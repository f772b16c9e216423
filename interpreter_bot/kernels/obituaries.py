"""Why sessions lost their kernels, until they have been told."""

from __future__ import annotations

import collections

_MOST_SESSIONS = 10_000


class Obituaries:
    """The latest sentence for each of the sessions that lost a kernel last.

    Nobody knows which sessions come back, so only so many are remembered. What is lost beyond
    that is the word about it: a session that returns after 10,000 others lost theirs meets a
    new Python without being told that it is one. A restart of the bot forgets all.
    """

    def __init__(self, most_sessions: int = _MOST_SESSIONS) -> None:
        self._most_sessions = most_sessions
        self._reasons: collections.OrderedDict[str, str] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._reasons)

    def write(self, key: str, reason: str) -> None:
        """Remember why a session's kernel is gone; an empty reason is none."""
        self.forget(key)
        if reason:
            self._reasons[key] = reason
        if len(self._reasons) > self._most_sessions:
            self._reasons.popitem(last=False)

    def of(self, key: str) -> str:
        """Return why a session's kernel is gone; empty where nothing is to be told."""
        return self._reasons.get(key, "")

    def forget(self, key: str) -> None:
        """Forget what was told, or is nobody's business any more."""
        self._reasons.pop(key, None)
