"""Discord's rules: limits of lengths, sizes and rates, and faults that tests plan."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Mapping
from typing import Any

from tests.fakes.discord_server import worlds

EPHEMERAL = 1 << 6
SUPPRESS_EMBEDS = 1 << 2
MAX_REQUEST_BYTES = 200 * worlds.MIB
MAX_FORM_BYTES = 25 * worlds.MIB
"""The limit of all files of one message, also in guilds with larger files."""
MAX_INVALID_REQUESTS = 300
"""The number of answers 401, 403 and 429 (except of shared limits) that a test may cause.

After 10,000 in ten minutes, Discord bans a bot for an hour.
"""
_FILE_NAME = re.compile(r"[A-Za-z0-9._-]+\Z")


class RefusedError(Exception):
    """An error answer."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    @property
    def payload(self) -> dict[str, Any]:
        return {"code": self.code, "message": str(self), "errors": {}}


@dataclasses.dataclass
class Fault:
    """A fault of the next `times` requests that match.

    Attributes:
        kind: "status" answers with `status` and `code`; "cut" carries the request out and cuts
            the connection before the answer; "late" keeps the answer back for `retry_after`;
            "limit" answers 429; "ban" is a 429 of Cloudflare's.
    """

    method: str
    path: str
    times: int = 1
    kind: str = "status"
    status: int = 500
    code: int = 0
    retry_after: float = 0.05
    is_global: bool = False
    is_shared: bool = False

    def matches(self, method: str, path: str) -> bool:
        return self.times > 0 and method == self.method and bool(re.search(self.path, path))


class Buckets:
    """Rate limits, with their headers. `window_seconds` is Discord's five, or shorter.

    The limit of opening threads lasts minutes, as bots report it, and is shared by all bots in a
    channel. With `long_window_seconds`, all routes have such a long window.
    """

    def __init__(self, window_seconds: float = 5.0) -> None:
        self.window_seconds = window_seconds
        self.max_threads = 50
        self.thread_seconds = 300.0
        self.long_window_seconds = 0.0
        self.breaches: list[str] = []
        self._used: dict[str, list[float]] = {}

    def take(self, method: str, kind: str, major: str) -> tuple[Mapping[str, str], float | None]:
        """Return the headers of the answer, and the seconds to wait if the limit is reached."""
        limit = {"commands": 2, "threads": self.max_threads}.get(kind, 5)
        window = self.thread_seconds if kind == "threads" else self.window_seconds
        if self.long_window_seconds:
            limit, window = 1000, self.long_window_seconds
        bucket = f"{method}-{kind}"
        now = time.monotonic()
        used = self._used.setdefault(f"{bucket}:{major}", [])
        if used and now - used[0] >= window:
            used.clear()
        wait = None
        if len(used) >= limit:
            wait = window - (now - used[0])
            self.breaches.append(f"{bucket}:{major}")
        else:
            used.append(now)
        remaining = window - (now - used[0])
        return {
            "X-RateLimit-Limit": str(limit),
            "X-RateLimit-Remaining": str(limit - len(used)),
            "X-RateLimit-Reset": f"{time.time() + remaining:.3f}",
            "X-RateLimit-Reset-After": f"{remaining:.3f}",
            "X-RateLimit-Bucket": bucket,
            "Via": "1.1 loopback",
        }, wait


def check_message(body: Mapping[str, Any], files: int, *, is_edit: bool = False) -> None:
    """Refuse an invalid message."""
    content = body.get("content") or ""
    if len(content) > 2000:
        raise RefusedError(400, 50035, f"content has {len(content)} characters")
    if body.get("embeds"):
        raise RefusedError(400, 50035, "this loopback knows no embeds")
    if len(body.get("attachments") or ()) > 10 or files > 10:
        raise RefusedError(400, 50035, "more than 10 files")
    if not is_edit and not content.strip() and not files and not body.get("components"):
        raise RefusedError(400, 50006, "Cannot send an empty message")
    for file in body.get("attachments") or ():
        if len(file.get("description") or "") > 1024:
            raise RefusedError(400, 50035, "a description is too long")
        if "filename" in file and not _FILE_NAME.match(file["filename"]):
            raise RefusedError(400, 50035, f"Discord would rename {file['filename']!r}")
    if body.get("nonce") is not None and len(str(body["nonce"])) > 25:
        raise RefusedError(400, 50035, "nonce is longer than 25 characters")
    check_components(body.get("components") or ())


def check_components(rows: Any) -> None:
    """Refuse invalid buttons."""
    if len(rows) > 5:
        raise RefusedError(400, 50035, "more than 5 rows")
    custom_ids: set[str] = set()
    for row in rows:
        items = row["components"]
        if row["type"] != 1 or not 1 <= len(items) <= 5:
            raise RefusedError(400, 50035, "a row has 1 to 5 buttons")
        for item in items:
            custom_id = item.get("custom_id", "")
            if not 1 <= len(custom_id) <= 100 or custom_id in custom_ids:
                raise RefusedError(400, 50035, f"custom_id {custom_id!r}")
            custom_ids.add(custom_id)
            if len(item.get("label") or "") > 80:
                raise RefusedError(400, 50035, "a label is too long")


def check_modal(modal: Mapping[str, Any]) -> None:
    """Refuse an invalid modal."""
    if not 1 <= len(modal["title"]) <= 45 or not 1 <= len(modal["custom_id"]) <= 100:
        raise RefusedError(400, 50035, "title or custom_id of the modal")
    if not 1 <= len(modal["components"]) <= 5:
        raise RefusedError(400, 50035, "a modal has 1 to 5 components")
    for item in modal["components"]:
        if item["type"] == 18:
            if len(item["label"]) > 45 or len(item.get("description") or "") > 100:
                raise RefusedError(400, 50035, "label or description")
            inner = item["component"]
            if inner["type"] == 4 and (
                (inner.get("max_length") or 4000) > 4000 or len(inner.get("value") or "") > 4000
            ):
                raise RefusedError(400, 50035, "text of more than 4000 characters")
            if inner["type"] == 19 and inner.get("max_values", 1) > 10:
                raise RefusedError(400, 50035, "more than 10 files")


_COMMAND_NAME = re.compile(r"[-_'\w]{1,32}\Z")


def check_commands(commands: Any) -> None:
    """Refuse invalid commands."""
    for command in commands:
        kind = command.get("type", 1)
        if kind in (2, 3):
            if not 1 <= len(command["name"]) <= 32 or command.get("description"):
                raise RefusedError(400, 50035, "context menu")
            continue
        _check_options([command], depth=0)


def _check_options(options: Any, *, depth: int) -> None:
    if len(options) > 25:
        raise RefusedError(400, 50035, "more than 25 options")
    for option in options:
        name, description = option["name"], option.get("description") or ""
        if not _COMMAND_NAME.match(name) or name != name.lower():
            raise RefusedError(400, 50035, f"name {name!r}")
        if not 1 <= len(description) <= 100:
            raise RefusedError(400, 50035, f"description of {name!r}")
        if len(option.get("choices") or ()) > 25:
            raise RefusedError(400, 50035, "more than 25 choices")
        if depth and option.get("required") is False and option.get("autocomplete"):
            _check_autocomplete(option)
        _check_options(option.get("options") or (), depth=depth + 1)


def _check_autocomplete(option: Mapping[str, Any]) -> None:
    if option.get("choices"):
        raise RefusedError(400, 50035, "autocomplete and choices exclude each other")


_MENTION = re.compile(r"<@!?(\d+)>|<@&(\d+)>|@(everyone|here)")
_CODE = re.compile(r"(`{3,}).*?\1|(`+)[^`]+\2", re.DOTALL)


def find_pings(message: worlds.Message, allowed: Mapping[str, Any] | None) -> set[Any]:
    """Return whom a message notifies, which code and other mentions than `allowed` do not."""
    notified: set[Any] = set()
    allowed = {"parse": ["users", "roles", "everyone"]} if allowed is None else allowed
    parse = allowed.get("parse", [])
    for user, role, _ in _MENTION.findall(_CODE.sub("", message.content)):
        if user:
            if "users" in parse or user in [str(number) for number in allowed.get("users", ())]:
                notified.add(int(user))
        elif role:
            if "roles" in parse or role in [str(number) for number in allowed.get("roles", ())]:
                notified.add("role")
        elif "everyone" in parse:
            notified.add("everyone")
    if message.reference is not None and allowed.get("replied_user", "parse" not in allowed):
        notified.add(message.reference.author.id)
    return notified
