"""What the loopback Slack knows: teams, people, channels, messages, files, and clocks."""

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
    """A conversation. `kind` is channel, group, im or mpim; `left` has who is not in it."""

    id: str
    kind: str = "channel"
    team: str = "T1"
    has_bot: bool = True
    can_stream: bool = True
    left: set[str] = dataclasses.field(default_factory=set)


class RefusalError(Exception):
    """Slack says no: `error` is its word for why."""

    def __init__(self, error: str, **more: Any) -> None:
        super().__init__(error)
        self.error = error
        self.more = more


class Bucket:
    """So many calls a minute, all of which may come at once."""

    def __init__(self, per_minute: float, burst: float, speed: float) -> None:
        self._rate = per_minute / 60 * speed
        self._most = burst
        self._left = burst
        self._seen = time.monotonic()

    def take(self) -> float:
        """Take one; returns seconds to wait where there is none left."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._seen) * self._rate)
        self._seen = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) / self._rate


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

    def add_user(self, user: str, **facts: Any) -> None:
        name = facts.pop("name", f"Person {user}")
        profile = {"display_name": name, "real_name": name}
        plain = {"team_id": "T1", "is_bot": False, "is_restricted": False, "deleted": False}
        self.users[user] = {"id": user, "name": name, "profile": profile, **plain, **facts}

    def number(self) -> int:
        return next(self._numbers)

    def ts(self) -> str:
        """Make a timestamp that no other message has."""
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
        """List a thread, its root first."""
        found = [
            message
            for (where, ts), message in self.messages.items()
            if where == channel and root in (ts, message.get("thread_ts"))
        ]
        return sorted(found, key=lambda message: message["ts"])
