"""The state of the loopback Slack: teams, people, channels, messages, files, and rate limits."""

from __future__ import annotations

import dataclasses
import itertools
import time
from typing import Any


@dataclasses.dataclass
class Team:
    """A workspace the app is installed in."""

    id: str = "T1"
    token: str = "xoxb-loopback-token-1"
    bot_user: str = "UBOT"
    bot_id: str = "BBOT"
    is_revoked: bool = False
    is_organisation: bool = False
    scopes: str = ""


@dataclasses.dataclass
class Channel:
    """A conversation. `kind` is channel, group, im or mpim; everybody else is a member."""

    id: str
    kind: str = "channel"
    team: str = "T1"
    has_bot: bool = True
    can_stream: bool = True
    absent_users: set[str] = dataclasses.field(default_factory=set)


class RefusalError(Exception):
    """Slack refuses a call; `error` is its code."""

    def __init__(self, error: str, **fields: Any) -> None:
        super().__init__(error)
        self.error = error
        self.fields = fields


class Bucket:
    """A rate limit: calls a minute, and how many may come at once."""

    def __init__(self, per_minute: float, max_calls: float, speed: float) -> None:
        self._rate = per_minute / 60 * speed
        self._max_calls = max_calls
        self._available = max_calls
        self._updated = time.monotonic()

    def take(self) -> float:
        """Count a call; returns the seconds to wait if it is one too many."""
        now = time.monotonic()
        self._available = min(self._max_calls, self._available + (now - self._updated) * self._rate)
        self._updated = now
        if self._available >= 1:
            self._available -= 1
            return 0.0
        return (1 - self._available) / self._rate


class World:
    """The state."""

    def __init__(self) -> None:
        self.teams = {"T1": Team()}
        self.users: dict[str, dict[str, Any]] = {}
        self.channels: dict[str, Channel] = {}
        self.messages: dict[tuple[str, str], dict[str, Any]] = {}
        self.files: dict[str, dict[str, Any]] = {}
        self.contents: dict[str, bytes] = {}
        self.groups: dict[str, list[str]] = {}
        self.homes: dict[str, dict[str, Any]] = {}
        self.modals: list[dict[str, Any]] = []
        self.ephemerals: list[dict[str, Any]] = []
        self.responses: list[dict[str, Any]] = []
        self.statuses: list[dict[str, Any]] = []
        self.prompts: list[dict[str, Any]] = []
        self.batches: list[dict[str, Any]] = []
        self._numbers = itertools.count(1)
        self._last_ts = 0
        for user in ("U1", "U2", "U3"):
            self.add_user(user)
        self.add_user("UADMIN", is_admin=True)
        self.add_user("UGUEST", is_restricted=True)
        self.add_user("USTRANGER", is_stranger=True, team_id="T9")
        self.channels["C1"] = Channel("C1")
        self.channels["C2"] = Channel("C2")
        self.channels["CALIEN"] = Channel("CALIEN", has_bot=False)
        for user in ("U1", "U2", "UADMIN", "UGUEST"):
            self.channels["D" + user] = Channel("D" + user, kind="im")

    def add_user(self, user: str, **fields: Any) -> None:
        name = fields.pop("name", f"Person {user}")
        profile = {"display_name": name, "real_name": name}
        defaults = {"team_id": "T1", "is_bot": False, "is_restricted": False, "deleted": False}
        self.users[user] = {"id": user, "name": name, "profile": profile, **defaults, **fields}

    def next_number(self) -> int:
        return next(self._numbers)

    def next_ts(self) -> str:
        """Return a timestamp that no other message has."""
        self._last_ts = max(self._last_ts + 1, int(time.time() * 1_000_000))
        return f"{self._last_ts // 1_000_000}.{self._last_ts % 1_000_000:06d}"

    def team_of(self, token: str) -> Team:
        for team in self.teams.values():
            if team.token == token:
                if team.is_revoked:
                    raise RefusalError("token_revoked")
                return team
        raise RefusalError("invalid_auth")

    def thread(self, channel: str, root: str) -> list[dict[str, Any]]:
        """Return the messages of a thread, its root first."""
        messages = [
            message
            for (channel_id, ts), message in self.messages.items()
            if channel_id == channel and root in (ts, message.get("thread_ts"))
        ]
        return sorted(messages, key=lambda message: message["ts"])
