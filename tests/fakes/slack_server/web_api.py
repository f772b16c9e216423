"""The Web API of the loopback Slack: every method the app may call, with its refusals."""

# ruff: noqa: N802 - methods are named as Slack names them.

from __future__ import annotations

import asyncio
import json
import mimetypes
import re
import time
from typing import Any

from tests.fakes.slack_server import validation, worlds
from tests.fakes.slack_server.worlds import RefusalError

# Calls a minute and calls at once, per team; posting is counted per channel besides.
TIERS = {
    1: (1, 3),
    2: (20, 20),
    3: (50, 50),
    4: (100, 100),
}
_POST_ARGUMENTS = {
    *("channel", "text", "blocks", "markdown_text", "thread_ts", "unfurl_links", "unfurl_media"),
    *("metadata", "mrkdwn", "reply_broadcast"),
}
# Method: tier, arguments it knows.
METHODS: dict[str, tuple[int, set[str]]] = {
    "auth.test": (4, set()),
    "apps.connections.open": (1, set()),
    "users.info": (4, {"user"}),
    "usergroups.users.list": (2, {"usergroup"}),
    "conversations.replies": (
        3,
        {"channel", "ts", "limit", "oldest", "latest", "inclusive", "cursor"}
        | {"include_all_metadata"},
    ),
    "conversations.history": (
        3,
        {"channel", "limit", "oldest", "latest", "inclusive", "cursor", "include_all_metadata"},
    ),
    "conversations.members": (4, {"channel", "limit", "cursor"}),
    "conversations.open": (3, {"users"}),
    "chat.postMessage": (0, _POST_ARGUMENTS),
    "chat.postEphemeral": (4, {"channel", "user", "text", "blocks", "thread_ts"}),
    "chat.update": (3, {"channel", "ts", "text", "blocks", "markdown_text", "metadata"}),
    "chat.delete": (3, {"channel", "ts"}),
    "chat.startStream": (
        2,
        {"channel", "thread_ts", "markdown_text", "chunks", "recipient_team_id"}
        | {"recipient_user_id", "task_display_mode"},
    ),
    "chat.appendStream": (4, {"channel", "ts", "markdown_text", "chunks"}),
    "chat.stopStream": (
        2,
        {"channel", "ts", "markdown_text", "chunks", "blocks", "metadata", "session_status"},
    ),
    "agents.sessions.setStatus": (
        3,
        {"channel_id", "thread_ts", "status", "title", "initiator_user_id"},
    ),
    "assistant.threads.setSuggestedPrompts": (4, {"channel_id", "prompts", "title", "thread_ts"}),
    "files.info": (4, {"file"}),
    "files.getUploadURLExternal": (4, {"filename", "length", "alt_txt", "snippet_type"}),
    "files.completeUploadExternal": (
        4,
        {"files", "channel_id", "thread_ts", "initial_comment"},
    ),
    "views.open": (4, {"trigger_id", "view"}),
    "views.publish": (4, {"user_id", "view"}),
}
# The values of booleans that Slack accepts; Python's "True" is not one of them.
_BOOLEAN_ARGUMENTS = {"inclusive", "include_all_metadata"}
_BOOLEAN_VALUES = (True, False, 1, 0, "1", "0", "true", "false")
# Apps that are sold outside of the Marketplace get one page of 15 messages a minute.
_READING_METHODS = ("conversations.replies", "conversations.history")
_MAX_DISTRIBUTED_PAGE = 15
_CODE = re.compile(r"^(`{3,})[^`]*?(?:^\1|\Z)|(`+)[^`\n]+\2", re.MULTILINE | re.DOTALL)
_PICTURE_TYPES = ("image/png", "image/jpeg", "image/gif")
NAME_REFERENCE = re.compile(r"<[@#][A-Z0-9]+>")
# Methods called with the app's token, which belongs to no team.
_METHODS_WITHOUT_TEAM = {"apps.connections.open"}


class WebApi:
    """Answers calls; `slack` is the server that it is a part of."""

    def __init__(self, slack: Any) -> None:
        self.slack = slack
        self.world: worlds.World = slack.world
        self._buckets: dict[tuple[str, ...], worlds.Bucket] = {}

    def throttle(self, method: str, team: str, arguments: dict[str, Any]) -> float:
        """Count a call; returns the seconds to wait if it is one too many."""
        speed = self.slack.speed
        if method == "chat.postMessage":
            key = (method, str(arguments.get("channel")))
            bucket = self._buckets.setdefault(key, worlds.Bucket(60, 4, speed))
        else:
            tier = TIERS[METHODS[method][0]]
            if self.slack.is_distributed and method in _READING_METHODS:
                tier, speed = (1, 1), 1.0
            bucket = self._buckets.setdefault((method, team), worlds.Bucket(*tier, speed))
        return bucket.take()

    async def call(self, method: str, arguments: dict[str, Any], token: str) -> dict[str, Any]:
        known_arguments = METHODS[method][1]
        if unknown := arguments.keys() - known_arguments:
            raise RefusalError("invalid_arguments", response_metadata={"messages": sorted(unknown)})
        if any(
            arguments[name] not in _BOOLEAN_VALUES for name in _BOOLEAN_ARGUMENTS & arguments.keys()
        ):
            raise RefusalError("invalid_arguments", response_metadata={"messages": ["a boolean"]})
        if method in self.slack.refused_methods:
            raise RefusalError(self.slack.refused_methods[method])
        team = self.world.team_of(token) if method not in _METHODS_WITHOUT_TEAM else worlds.Team()
        handler = getattr(self, "_" + method.replace(".", "_"))
        if asyncio.iscoroutinefunction(handler):
            return await handler(team, **arguments)
        return handler(team, **arguments)

    # Who and where ------------------------------------------------------------------------

    def _auth_test(self, team: worlds.Team) -> dict[str, Any]:
        url = "https://loopback.slack.com/"
        if team.is_organisation:
            organisation = {
                "is_enterprise_install": True,
                "enterprise_id": "E1",
                "bot_id": team.bot_id,
            }
            return {"url": url, "user": "interpreter", "user_id": team.bot_user, **organisation}
        ids = {"team_id": team.id, "user_id": team.bot_user, "bot_id": team.bot_id}
        return {"url": url, "team": "Loopback", "user": "interpreter", **ids}

    def _apps_connections_open(self, team: worlds.Team) -> dict[str, Any]:
        return {"url": self.slack.issue_socket_url()}

    def _users_info(self, team: worlds.Team, user: str) -> dict[str, Any]:
        if user not in self.world.users:
            raise RefusalError("user_not_found")
        return {"user": self.world.users[user]}

    def _usergroups_users_list(self, team: worlds.Team, usergroup: str) -> dict[str, Any]:
        if usergroup not in self.world.groups:
            raise RefusalError("no_such_subteam")
        return {"users": self.world.groups[usergroup]}

    def _channel(self, team: worlds.Team, channel: str) -> worlds.Channel:
        place = self.world.channels.get(channel)
        if place is None or place.team != team.id:
            raise RefusalError("channel_not_found")
        if not place.has_bot:
            raise RefusalError("not_in_channel")
        return place

    def _conversations_members(
        self, team: worlds.Team, channel: str, limit: str = "100", cursor: str = "0"
    ) -> dict[str, Any]:
        members = [team.bot_user, *self.world.users]
        members = [
            user for user in members if user not in self._channel(team, channel).absent_users
        ]
        start, end = int(cursor), int(cursor) + int(limit)
        next_cursor = str(end) if end < len(members) else ""
        return {
            "members": members[start:end],
            "response_metadata": {"next_cursor": next_cursor},
        }

    def _conversations_open(self, team: worlds.Team, users: str) -> dict[str, Any]:
        self._users_info(team, users)
        self._channel(team, f"D{users}")
        return {"channel": {"id": f"D{users}"}}

    def _conversations_replies(
        self, team: worlds.Team, channel: str, ts: str, **options: Any
    ) -> dict[str, Any]:
        self._channel(team, channel)
        messages = self.world.thread(channel, ts)
        if not messages:
            raise RefusalError("thread_not_found")
        return self._page(messages, options)

    def _conversations_history(
        self, team: worlds.Team, channel: str, **options: Any
    ) -> dict[str, Any]:
        self._channel(team, channel)
        messages = [
            message
            for (channel_id, _), message in sorted(self.world.messages.items())
            if channel_id == channel and message.get("thread_ts") in (None, message["ts"])
        ]
        return self._page(messages[::-1], options)

    def _page(self, messages: list[dict[str, Any]], options: dict[str, Any]) -> dict[str, Any]:
        oldest = str(options.get("oldest", ""))
        latest = str(options.get("latest", ""))
        is_inclusive = options.get("inclusive", "0") in (True, 1, "1", "true")
        if oldest:
            messages = [
                m for m in messages if m["ts"] > oldest or (is_inclusive and m["ts"] == oldest)
            ]
        if latest:
            messages = [
                m for m in messages if m["ts"] < latest or (is_inclusive and m["ts"] == latest)
            ]
        limit = int(options.get("limit", 100))
        if self.slack.is_distributed:
            limit = min(limit, _MAX_DISTRIBUTED_PAGE)
        has_metadata = options.get("include_all_metadata", "0") in (True, 1, "1", "true")
        hidden_fields = set() if has_metadata else {"metadata"}
        hidden_fields |= {"stream", "seen"}
        if not self.slack.sends_bot_id:
            hidden_fields |= {"bot_id"}
        start = int(options.get("cursor") or 0)
        page_messages = messages[start : start + limit]
        page = [{k: v for k, v in m.items() if k not in hidden_fields} for m in page_messages]
        metadata = {"response_metadata": {"next_cursor": str(start + limit)}}
        has_more = len(messages) > start + limit
        return {"messages": page, "has_more": has_more, **(metadata if has_more else {})}

    # Messages -----------------------------------------------------------------------------

    def _content(self, arguments: dict[str, Any]) -> dict[str, Any]:
        text = arguments.get("text", "")
        content: dict[str, Any] = {"text": text}
        if markdown := arguments.get("markdown_text"):
            if text or arguments.get("blocks"):
                raise RefusalError("markdown_text_conflict")
            if len(markdown) > 12_000:
                raise RefusalError("msg_too_long")
            content = {"text": markdown, "markdown": markdown}
        elif arguments.get("blocks"):
            blocks = validation.parse_blocks(arguments["blocks"])
            validation.check_message_blocks(blocks)
            content["blocks"] = blocks
            if not text:
                self.slack.problem("blocks without a text for notifications")
        elif not text:
            raise RefusalError("no_text")
        if len(text) > 4000:
            raise RefusalError("msg_too_long")
        if arguments.get("metadata"):
            content["metadata"] = parse_metadata(arguments["metadata"])
        self.slack.pings += validation.find_pings(
            text, content.get("blocks"), content.get("markdown")
        )
        return content

    def _chat_postMessage(self, team: worlds.Team, channel: str, **arguments: Any) -> Any:
        self._channel(team, channel)
        root = arguments.get("thread_ts")
        if root is not None and (channel, root) not in self.world.messages:
            raise RefusalError("thread_not_found")
        if arguments.get("unfurl_links") is not False or arguments.get("unfurl_media") is not False:
            self.slack.problem("a message whose links unfurl")
        message = self._new_message(team, root) | self._content(arguments)
        pictures = self._pictures(message.get("blocks", []))
        self.world.messages[channel, message["ts"]] = message
        for file in pictures:
            self._share(file, channel, message)
        return {"channel": channel, "ts": message["ts"], "message": message}

    def _new_message(self, team: worlds.Team, root: str | None) -> dict[str, Any]:
        message = {"type": "message", "user": team.bot_user, "bot_id": team.bot_id, "ts": ""}
        message |= {"ts": self.world.next_ts(), "edits": 0}
        return message | ({"thread_ts": root} if root else {})

    def _chat_postEphemeral(
        self, team: worlds.Team, channel: str, user: str, **arguments: Any
    ) -> dict[str, Any]:
        self._channel(team, channel)
        content = self._content(arguments)
        self.world.ephemerals.append({"channel": channel, "user": user, **arguments, **content})
        return {"message_ts": self.world.next_ts()}

    def _own_message(self, team: worlds.Team, channel: str, ts: str, error: str) -> dict[str, Any]:
        self._channel(team, channel)
        message = self.world.messages.get((channel, ts))
        if message is None:
            raise RefusalError("message_not_found")
        if message.get("bot_id") != team.bot_id:
            raise RefusalError(error)
        return message

    def _chat_update(self, team: worlds.Team, channel: str, ts: str, **arguments: Any) -> Any:
        message = self._own_message(team, channel, ts, "cant_update_message")
        if message.get("stream") == "open":
            raise RefusalError("streaming_state_conflict")
        content = self._content(arguments)
        shown_pictures = self._pictures(message.get("blocks", []))
        if added := set(self._pictures(content.get("blocks", []))) - set(shown_pictures):
            # In such a message only the bot may see the file; people get an empty frame.
            self.slack.problem(f"pictures that an edit added are not shown: {added}")
        for name in ("blocks", "markdown"):
            message.pop(name, None)
        message.update(content)
        message["edits"] += 1
        return {"channel": channel, "ts": ts, "text": message["text"]}

    def _chat_delete(self, team: worlds.Team, channel: str, ts: str) -> dict[str, Any]:
        self._own_message(team, channel, ts, "cant_delete_message")
        del self.world.messages[channel, ts]
        return {"channel": channel, "ts": ts}

    # Streams ------------------------------------------------------------------------------

    def _chat_startStream(
        self, team: worlds.Team, channel: str, thread_ts: str = "", **arguments: Any
    ) -> dict[str, Any]:
        place = self._channel(team, channel)
        if not self.slack.can_stream:
            raise RefusalError("unknown_method")
        if not place.can_stream:
            raise RefusalError("channel_type_not_supported")
        if (channel, thread_ts) not in self.world.messages:
            raise RefusalError("thread_not_found")
        if place.kind != "im":
            for name in ("recipient_team_id", "recipient_user_id"):
                if not arguments.get(name):
                    raise RefusalError(f"missing_{name}")
        message = self._new_message(team, thread_ts)
        message |= {"text": "", "markdown": "", "stream": "open", "started": time.monotonic()}
        message["tasks"] = {}
        self._append_to_stream(message, arguments)
        if place.kind != "im":
            # Until the end, other people than the recipient see only the first piece.
            message["seen"] = {"by": arguments["recipient_user_id"], "text": message["text"]}
        self.world.messages[channel, message["ts"]] = message
        return {"channel": channel, "ts": message["ts"]}

    def _append_to_stream(self, message: dict[str, Any], arguments: dict[str, Any]) -> None:
        if arguments.get("markdown_text") and arguments.get("chunks"):
            raise RefusalError("invalid_arguments")
        chunks = arguments.get("chunks") or []
        chunks = json.loads(chunks) if isinstance(chunks, str) else chunks
        text = arguments.get("markdown_text") or validation.check_chunks(chunks)
        if len(message["markdown"]) + len(text) > 12_000:
            raise RefusalError("msg_too_long")
        message["markdown"] += text
        message["text"] = message["markdown"]
        for chunk in chunks:
            if chunk["type"] == "blocks" and self._pictures(chunk["blocks"]):
                self.slack.problem("pictures in a stream are not shown")
            if chunk["type"] == "task_update":
                task = message["tasks"].setdefault(chunk["id"], {"details": ""})
                fields_of_task = {
                    k: v for k, v in chunk.items() if v is not None and k != "details"
                }
                task.update(fields_of_task)
                task["details"] += chunk.get("details") or ""
                self.slack.pings += validation.find_pings(chunk)
        self.slack.pings += validation.find_pings(message["markdown"])
        fields = [text for task in message["tasks"].values() for text in task.values()]
        if any("://" in str(field) for field in (_CODE.sub("", message["markdown"]), *fields)):
            self.slack.problem("a link in a stream, which Slack may fetch")

    def _open_stream(self, team: worlds.Team, channel: str, ts: str) -> dict[str, Any]:
        message = self._own_message(team, channel, ts, "message_not_owned_by_app")
        if message.get("stream") == "stopped by user":
            raise RefusalError("stopped_by_user")
        if message.get("stream") != "open":
            raise RefusalError("message_not_in_streaming_state")
        if time.monotonic() - message["started"] > 300 / self.slack.speed:
            message["stream"] = "expired"
            raise RefusalError("message_not_in_streaming_state")
        return message

    def _chat_appendStream(
        self, team: worlds.Team, channel: str, ts: str, **arguments: Any
    ) -> dict[str, Any]:
        message = self._open_stream(team, channel, ts)
        if not arguments.get("markdown_text") and not arguments.get("chunks"):
            raise RefusalError("no_text")
        self._append_to_stream(message, arguments)
        return {"channel": channel, "ts": ts}

    def _chat_stopStream(
        self, team: worlds.Team, channel: str, ts: str, session_status: str = "", **arguments: Any
    ) -> dict[str, Any]:
        message = self._open_stream(team, channel, ts)
        blocks = validation.parse_blocks(arguments.get("blocks") or [])
        validation.check_message_blocks(blocks)
        if self._pictures(blocks):
            self.slack.problem("pictures in a stream are not shown")
        self.slack.pings += validation.find_pings(blocks)
        self._append_to_stream(message, arguments)
        message["stream"] = "closed"
        message.pop("seen", None)
        message["blocks"] = blocks
        if arguments.get("metadata"):
            message["metadata"] = parse_metadata(arguments["metadata"])
        if session_status:
            root = message.get("thread_ts", "")
            self._agents_sessions_setStatus(team, channel, session_status, thread_ts=root)
        return {"channel": channel, "ts": ts, "message": message}

    # Sessions -----------------------------------------------------------------------------

    def _agents_sessions_setStatus(
        self, team: worlds.Team, channel_id: str, status: str, thread_ts: str = "", **fields: Any
    ) -> dict[str, Any]:
        if not self.slack.has_agents:
            raise RefusalError("unknown_method")
        self._channel(team, channel_id)
        if status not in ("active", "processing", "suspended", "closed"):
            raise RefusalError("invalid_arguments")
        if not thread_ts:
            raise RefusalError("missing_thread_ts")
        if len(fields.get("title") or "") > 200:
            raise RefusalError("invalid_arguments")
        entry = {"channel": channel_id, "thread_ts": thread_ts, "status": status, **fields}
        self.world.statuses.append(entry | {"at": time.monotonic()})
        return {}

    def _assistant_threads_setSuggestedPrompts(
        self, team: worlds.Team, channel_id: str, prompts: Any, title: str = ""
    ) -> dict[str, Any]:
        self._channel(team, channel_id)
        prompts = json.loads(prompts) if isinstance(prompts, str) else prompts
        if not 0 < len(prompts) <= 4 or any(p.keys() != {"title", "message"} for p in prompts):
            raise RefusalError("invalid_arguments")
        self.world.prompts.append({"channel": channel_id, "prompts": prompts, "title": title})
        return {}

    # Files --------------------------------------------------------------------------------

    def _files_info(self, team: worlds.Team, file: str) -> dict[str, Any]:
        if file not in self.world.files:
            raise RefusalError("file_not_found")
        return {"file": self.world.files[file]}

    def _files_getUploadURLExternal(
        self, team: worlds.Team, filename: str, length: Any, **fields: Any
    ) -> dict[str, Any]:
        if not int(length):
            raise RefusalError("missing_argument")
        if len(fields.get("alt_txt") or "") > 1000:
            raise RefusalError("alt_txt_too_large")
        if self.slack.max_upload_bytes and int(length) > self.slack.max_upload_bytes:
            raise RefusalError("file_upload_size_restricted")
        file = f"F{self.world.next_number()}"
        info = {"id": file, "name": filename, "size": int(length), "is_uploaded": False, **fields}
        info |= {"mimetype": "", "shares": {}}
        self.world.files[file] = info
        return {"file_id": file, "upload_url": f"{self.slack.root}/upload/{file}"}

    async def _files_completeUploadExternal(
        self, team: worlds.Team, files: Any, channel_id: str = "", **fields: Any
    ) -> dict[str, Any]:
        if channel_id:
            self._channel(team, channel_id)
        files = json.loads(files) if isinstance(files, str) else files
        infos = []
        for entry in files:
            info = self.world.files.get(entry.get("id"))
            if info is None or not info["is_uploaded"] or info.get("is_complete"):
                raise RefusalError("file_not_found")
            infos.append(info | {"title": entry.get("title") or info["name"]})
            info["is_complete"] = True
        comment = fields.get("initial_comment", "")
        self.slack.pings += validation.find_pings(comment, [info["title"] for info in infos])
        self.slack.spawn(self._finish_processing(team, channel_id, infos, fields))
        return {"files": [{"id": info["id"], "title": info["title"]} for info in infos]}

    async def _finish_processing(
        self, team: worlds.Team, channel: str, infos: list[dict[str, Any]], fields: dict[str, Any]
    ) -> None:
        """Process and share files, some time after the upload was confirmed, as Slack does."""
        await asyncio.sleep(self.slack.sharing_seconds)
        for info in infos:
            kind = mimetypes.guess_type(info["name"])[0] or "application/octet-stream"
            self.world.files[info["id"]]["mimetype"] = kind
        if not channel or self.slack.unshared_batches > 0:
            self.slack.unshared_batches -= bool(channel)
            return
        comment = fields.get("initial_comment", "")
        message = self._new_message(team, fields.get("thread_ts")) | {
            "text": comment,
            "files": infos,
        }
        self.world.messages[channel, message["ts"]] = message
        for info in infos:
            self._share(info["id"], channel, message)
        self.world.batches.append({"channel": channel, "files": infos, **fields})

    def _share(self, file: str, channel: str, message: dict[str, Any]) -> None:
        kind = "public" if self.world.channels[channel].kind == "channel" else "private"
        share = {"ts": message["ts"], "thread_ts": message.get("thread_ts")}
        shares = self.world.files[file].setdefault("shares", {})
        shares.setdefault(kind, {}).setdefault(channel, []).append(share)

    def _pictures(self, blocks: list[dict[str, Any]]) -> list[str]:
        """Return the ids of files that blocks show; files that are not processed are refused."""
        references = [b["slack_file"] for b in blocks if b["type"] == "image" and "slack_file" in b]
        if references and not self.slack.has_picture_blocks:
            raise RefusalError("invalid_blocks", errors=["invalid slack file"])
        for reference in references:
            info = self.world.files.get(reference.get("id"), {})
            if reference.keys() != {"id"} or info.get("mimetype") not in _PICTURE_TYPES:
                raise RefusalError("invalid_blocks", errors=["invalid slack file"])
        return [reference["id"] for reference in references]

    # Views --------------------------------------------------------------------------------

    def _views_open(self, team: worlds.Team, trigger_id: str, view: Any) -> dict[str, Any]:
        self.slack.use_trigger(trigger_id)
        stored = {**validation.check_view(view), "id": f"V{self.world.next_number()}"}
        if stored["type"] != "modal":
            raise RefusalError("invalid_arguments")
        self.slack.pings += validation.find_pings(stored)
        self.world.modals.append(stored)
        return {"view": stored}

    def _views_publish(self, team: worlds.Team, user_id: str, view: Any) -> dict[str, Any]:
        stored = validation.check_view(view)
        if stored["type"] != "home":
            raise RefusalError("invalid_arguments")
        # In a home, names of people and channels notify nobody.
        self.slack.pings += validation.find_pings(
            json.loads(NAME_REFERENCE.sub("", json.dumps(stored)))
        )
        self.world.homes[user_id] = {**stored, "id": f"V{self.world.next_number()}"}
        return {"view": stored}


def parse_metadata(metadata: Any) -> dict[str, Any]:
    """Return a message's metadata, parsed; refuses invalid metadata."""
    metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
    if not isinstance(metadata, dict) or metadata.keys() != {"event_type", "event_payload"}:
        raise RefusalError("invalid_metadata_format")
    return metadata
