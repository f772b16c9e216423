"""The REST API, as far as the bot uses it; an unknown route is a fault."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from tests.fakes.discord_server import gateways, interactions, rules, worlds

Handler = Callable[..., Awaitable[Any]]
_ROUTES: list[tuple[str, re.Pattern[str], str, str]] = []


def _route(method: str, pattern: str, kind: str = "") -> Callable[[Handler], Handler]:
    compiled = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern) + r"\Z")

    def add(handler: Handler) -> Handler:
        _ROUTES.append((method, compiled, handler.__name__, kind))
        return handler

    return add


class Rest:
    """Answers requests from the state of `world`, the server."""

    def __init__(self, world: Any, gateway: gateways.Gateway, register: interactions.Register):
        self.world = world
        self.gateway = gateway
        self.register = register
        self.buckets = rules.Buckets()
        self.planned_faults: list[rules.Fault] = []
        self.refusals: list[str] = []
        self.faults: list[str] = []
        self.member_lookups: list[int] = []
        self.request_log: list[tuple[float, str, str]] = []
        self.commands: list[dict[str, Any]] = []
        self.typing: list[int] = []
        self.shards = 1
        self.delay_seconds = 0.0
        self.nonce_seconds = 180.0
        self.invalid_count = 0
        self.application_flags = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/api/v10")
        self.request_log.append((time.monotonic(), request.method, path))
        for method, pattern, name, kind in _ROUTES:
            match = pattern.match(path)
            if match and method == request.method:
                return await self._answer(request, path, name, kind, match.groupdict())
        self.faults.append(f"no route {request.method} {path}")
        return _json(404, {"code": 0, "message": "404: Not Found"})

    async def _answer(
        self, request: web.Request, path: str, name: str, kind: str, parts: dict[str, str]
    ) -> web.StreamResponse:
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        has_token_in_path = path.startswith(("/webhooks/", "/interactions/"))
        if (
            not has_token_in_path
            and request.headers.get("Authorization") != f"Bot {self.world.token}"
        ):
            self.invalid_count += 1
            return _json(401, {"code": 0, "message": "401: Unauthorized"})
        fault = next((f for f in self.planned_faults if f.matches(request.method, path)), None)
        body, files = await _read(request)
        headers: Any = {"Via": "1.1 loopback"}
        if kind:
            major = parts.get("channel") or parts.get("token") or ""
            headers, wait = self.buckets.take(request.method, kind, major)
            if wait is not None:
                self.invalid_count += kind != "threads"
                return _limited(headers, wait, scope="shared" if kind == "threads" else "user")
        if fault is not None:
            fault.times -= 1
            if fault.kind == "limit":
                self.invalid_count += not fault.is_shared
                scope = "global" if fault.is_global else "shared" if fault.is_shared else "user"
                return _limited(headers, fault.retry_after, scope=scope)
            if fault.kind == "ban":
                return web.Response(status=429, text="error 1015", content_type="text/html")
            if fault.kind == "status":
                return _json(fault.status, {"code": fault.code, "message": "planned"}, headers)
        try:
            result = await getattr(self, name)(body=body, files=files, query=request.query, **parts)
        except rules.RefusedError as error:
            self.refusals.append(f"{error.code} {request.method} {path}: {error}")
            self.invalid_count += error.status in (401, 403)
            return _json(error.status, error.payload, headers)
        if fault is not None and fault.kind == "late":
            await asyncio.sleep(fault.retry_after)
        if fault is not None and fault.kind == "cut" and request.transport is not None:
            request.transport.abort()
        return (
            web.Response(status=204, headers=headers)
            if result is None
            else _json(200, result, headers)
        )

    # The application.

    @_route("GET", "/users/@me")
    async def me(self, **_: Any) -> Any:
        return self.world.bot.payload

    @_route("GET", "/oauth2/applications/@me")
    async def application(self, **_: Any) -> Any:
        bot = self.world.bot
        owner = self.world.owner.payload
        return {
            "id": str(bot.id),
            "name": bot.name,
            "icon": None,
            "description": "",
            "bot_public": True,
            "bot_require_code_grant": False,
            "verify_key": "",
            "flags": self.application_flags,
            "owner": owner,
            "summary": "",
            "team": None,
        }

    @_route("GET", "/gateway/bot")
    async def gateway_bot(self, **_: Any) -> Any:
        limit = {"total": 1000, "remaining": 999, "reset_after": 1, "max_concurrency": 1}
        return {"url": self.gateway.url, "shards": self.shards, "session_start_limit": limit}

    # Commands.

    @_route("GET", "/applications/{application}/commands", "commands")
    async def get_commands(self, **_: Any) -> Any:
        return self.commands

    @_route("PUT", "/applications/{application}/commands", "commands")
    async def put_commands(self, *, body: Any, application: str, **_: Any) -> Any:
        rules.check_commands(body)
        self.commands = [
            _stored_command(command)
            | {
                "id": str(worlds.snowflake()),
                "application_id": application,
                "version": str(worlds.snowflake()),
            }
            for command in body
        ]
        return self.commands

    # Channels and threads.

    def _channel(self, number: str) -> worlds.Channel:
        channel = self.world.channels.get(int(number))
        if channel is None or channel.is_deleted:
            raise rules.RefusedError(404, 10003, "Unknown Channel")
        if channel.guild is not None and not channel.guild.has_bot:
            raise rules.RefusedError(403, 50001, "Missing Access")
        if channel.guild is None and self.world.bot not in channel.recipients:
            raise rules.RefusedError(403, 50001, "Missing Access")
        self._require(channel, "view_channel", code=50001)
        return channel

    def _may(self, channel: worlds.Channel, name: str) -> bool:
        guild = channel.guild
        permissions = (
            guild.permissions(self.world.bot, channel) if guild else worlds.ALL_PERMISSIONS
        )
        return bool(permissions & worlds.PERMISSIONS[name])

    def _require(
        self, channel: worlds.Channel, name: str, *, code: int = 50013, status: int = 403
    ) -> None:
        if not self._may(channel, name):
            raise rules.RefusedError(status, code, f"Missing Permissions: {name}")

    @_route("GET", "/channels/{channel}", "channel")
    async def get_channel(self, *, channel: str, **_: Any) -> Any:
        return self._channel(channel).payload()

    @_route("POST", "/users/@me/channels")
    async def open_direct(self, *, body: Any, **_: Any) -> Any:
        return self.world.direct(self.world.users[int(body["recipient_id"])]).payload()

    @_route("POST", "/channels/{channel}/typing", "typing")
    async def type_in(self, *, channel: str, **_: Any) -> None:
        self.typing.append(self._channel(channel).id)

    @_route("POST", "/channels/{channel}/messages/{message}/threads", "threads")
    async def thread_on(self, *, channel: str, message: str, body: Any, **_: Any) -> Any:
        parent = self._channel(channel)
        if parent.type not in (worlds.TEXT, worlds.ANNOUNCEMENT):
            raise rules.RefusedError(400, 50024, "Cannot execute action on this channel type")
        self._require(parent, "create_public_threads")
        starter = parent.messages.get(int(message))
        if starter is None:
            raise rules.RefusedError(404, 10008, "Unknown Message")
        if not 1 <= len(body["name"]) <= 100:
            raise rules.RefusedError(400, 50035, "name")
        if body.get("auto_archive_duration", 1440) not in (60, 1440, 4320, 10080):
            raise rules.RefusedError(400, 50035, "auto_archive_duration")
        if starter.thread is not None:
            raise rules.RefusedError(400, 160004, "A thread has already been created")
        return self.world.thread(starter, body["name"], self.world.bot).payload()

    @_route("GET", "/guilds/{guild}/members/{user}", "members")
    async def get_member(self, *, guild: str, user: str, **_: Any) -> Any:
        matching_guild = next(g for g in self.world.guilds if g.id == int(guild) and g.has_bot)
        self.member_lookups.append(int(user))
        for member in matching_guild.members:
            if member.id == int(user):
                return matching_guild.member_payload(member)
        raise rules.RefusedError(404, 10007, "Unknown Member")

    @_route("GET", "/channels/{channel}/thread-members/{user}", "thread members")
    async def get_thread_member(self, *, channel: str, user: str, **_: Any) -> Any:
        if int(user) not in {person.id for person in self._channel(channel).invited}:
            raise rules.RefusedError(404, 10007, "Unknown Member")
        fields = {"join_timestamp": worlds.format_time(), "flags": 0}
        return {"id": channel, "user_id": user, **fields}

    # Messages.

    @_route("GET", "/channels/{channel}/messages", "history")
    async def history(self, *, channel: str, query: Any, **_: Any) -> Any:
        place = self._channel(channel)
        self._require(place, "read_message_history")
        after, before = int(query.get("after", 0)), int(query.get("before", 1 << 63))
        messages = [m for n, m in sorted(place.messages.items()) if after < n < before]
        limit = int(query.get("limit", 50))
        if not 1 <= limit <= 100:
            raise rules.RefusedError(400, 50035, "limit")
        page = messages[:limit] if "after" in query else messages[-limit:]
        payloads = [message.payload() for message in reversed(page) if not message.seen_by]
        for payload in payloads:
            # Only the gateway sends the member of an author.
            payload.pop("member", None)
        return payloads

    @_route("GET", "/channels/{channel}/messages/{message}", "message")
    async def get_message(self, *, channel: str, message: str, **_: Any) -> Any:
        self._require(self._channel(channel), "read_message_history")
        return self._message(channel, message).payload()

    def _message(self, channel: str, message: str) -> worlds.Message:
        stored = self._channel(channel).messages.get(int(message))
        if stored is None or stored.seen_by is not None:
            raise rules.RefusedError(404, 10008, "Unknown Message")
        return stored

    @_route("POST", "/channels/{channel}/messages", "messages")
    async def send(self, *, channel: str, body: Any, files: Any, **_: Any) -> Any:
        place = self._channel(channel)
        if place.type == worlds.FORUM:
            raise rules.RefusedError(400, 50008, "Cannot send messages in a non-text channel")
        self._require(place, "send_messages_in_threads" if place.is_thread else "send_messages")
        if place.is_locked and not self._may(place, "manage_threads"):
            raise rules.RefusedError(403, 50083, "Thread is archived")
        if place.is_closed:
            raise rules.RefusedError(403, 50007, "Cannot send messages to this user")
        if files:
            self._require(place, "attach_files")
        if body.get("enforce_nonce"):
            for earlier in place.messages.values():
                is_new = time.monotonic() - earlier.created < self.nonce_seconds
                if earlier.nonce == body["nonce"] and earlier.author is self.world.bot and is_new:
                    return earlier.payload()
        place.is_archived = False
        message = worlds.Message(place, self.world.bot, nonce=body.get("nonce"))
        if body.get("message_reference"):
            self._require(place, "read_message_history", code=160002, status=400)
            number = int(body["message_reference"]["message_id"])
            message.reference = place.messages.get(number)
            if message.reference is None and body["message_reference"].get(
                "fail_if_not_exists", True
            ):
                raise rules.RefusedError(400, 50035, "Unknown message")
        self._write(message, body, files)
        self.world.post(message)
        # Discord does not return the nonce when a message is looked up later.
        return message.payload() | {"nonce": message.nonce}

    @_route("PATCH", "/channels/{channel}/messages/{message}", "message")
    async def edit(self, *, channel: str, message: str, body: Any, files: Any, **_: Any) -> Any:
        stored = self._message(channel, message)
        if stored.author is not self.world.bot:
            raise rules.RefusedError(403, 50005, "Cannot edit a message of another user")
        if stored.type == 21:
            raise rules.RefusedError(403, 50021, "Cannot execute action on a system message")
        if stored.channel.is_archived:
            raise rules.RefusedError(400, 50083, "Thread is archived")
        if files:
            self._require(stored.channel, "attach_files")
        return self._edit(stored, body, files)

    @_route("DELETE", "/channels/{channel}/messages/{message}", "message")
    async def delete(self, *, channel: str, message: str, **_: Any) -> None:
        stored = self._message(channel, message)
        if stored.author is not self.world.bot:
            self._require(stored.channel, "manage_messages")
        self.world.delete(stored)

    def _write(self, message: worlds.Message, body: Any, files: Any, limit: int = 0) -> None:
        """Fill a new message from the request."""
        rules.check_message(body, len(files))
        self._require_allowed_mentions(body)
        message.content = (body.get("content") or "").strip()
        message.flags |= int(body.get("flags") or 0)
        message.components = body.get("components") or []
        message.attachments = self._attach(message, body, files, limit)
        message.pings = rules.find_pings(message, body.get("allowed_mentions"))
        self._record_form(message)

    def _edit(self, message: worlds.Message, body: Any, files: Any, limit: int = 0) -> Any:
        rules.check_message(body, len(files), is_edit=True)
        self._require_allowed_mentions(body)
        if "content" in body:
            message.content = (body["content"] or "").strip()
        if "components" in body:
            message.components = body["components"] or []
        if "attachments" in body:
            message.attachments = self._attach(message, body, files, limit)
        if "flags" in body:
            message.flags = int(body["flags"] or 0) | message.flags & rules.EPHEMERAL
        if not message.content and not message.attachments and not message.components:
            raise rules.RefusedError(400, 50006, "Cannot send an empty message")
        message.edited = worlds.format_time()
        self._record_form(message)
        if message.seen_by is None:
            self.gateway.push_message("MESSAGE_UPDATE", message)
        return message.payload()

    def _require_allowed_mentions(self, body: Any) -> None:
        """Require `allowed_mentions` with every text, which is stricter than Discord."""
        if body.get("content") and body.get("allowed_mentions") is None:
            self.faults.append(f"no allowed_mentions with {body['content']!r}")

    def _record_form(self, message: worlds.Message) -> None:
        message.forms.append((time.monotonic(), message.content))

    def _attach(
        self, message: worlds.Message, body: Any, files: Any, limit: int
    ) -> list[worlds.Attachment]:
        guild = message.channel.guild
        limit = limit or (guild.file_limit if guild else 10 * worlds.MIB)
        sizes = [len(data) for _, data in files.values()]
        if max(sizes, default=0) >= limit or sum(sizes) > rules.MAX_FORM_BYTES:
            raise rules.RefusedError(413, 40005, "Request entity too large")
        previous = {attachment.id: attachment for attachment in message.attachments}
        attachments = []
        descriptions = body.get("attachments")
        if descriptions is None:
            descriptions = [{"id": number} for number in files]
        for description in descriptions:
            number = int(description["id"])
            if number in previous:
                attachments.append(previous[number])
            elif number in files:
                name, data = files[number]
                attachments.append(
                    self.world.attachment(name, data, description.get("description"))
                )
            else:
                raise rules.RefusedError(400, 50035, f"no file {number}")
        if len(attachments) > 10:
            raise rules.RefusedError(400, 50035, "more than 10 files")
        return attachments

    # Interactions.

    @_route("POST", "/interactions/{number}/{token}/callback")
    async def callback(self, *, number: str, token: str, body: Any, files: Any, **_: Any) -> Any:
        kind, data = body["type"], body.get("data") or {}
        if kind == 9:
            rules.check_modal(data)
        if kind == 8:
            _check_choices(data["choices"])
        interaction = self.register.take_first_answer(int(number), token, kind)
        if kind == 9:
            interaction.modal = data
        elif kind == 8:
            interaction.choices = data["choices"]
        elif kind in (4, 5):
            interaction.original = self._reply(interaction, data, files, is_loading=kind == 5)
        else:
            interaction.original = interaction.message
            if kind == 7 and interaction.message is not None:
                self._edit(interaction.message, data, files)
        result: dict[str, Any] = {"interaction": {"id": number, "type": interaction.kind}}
        if interaction.original is not None:
            original = interaction.original
            result["interaction"] |= {
                "response_message_id": str(original.id),
                "response_message_loading": original.is_loading,
                "response_message_ephemeral": original.seen_by is not None,
            }
            result["resource"] = {"type": kind, "message": original.payload()}
        return result

    def _reply(
        self, interaction: interactions.Interaction, body: Any, files: Any, *, is_loading: bool
    ) -> worlds.Message:
        is_ephemeral = int(body.get("flags") or 0) & rules.EPHEMERAL
        message = worlds.Message(interaction.channel, self.world.bot, is_loading=is_loading)
        message.seen_by = interaction.user if is_ephemeral else None
        if is_loading:
            message.flags = int(body.get("flags") or 0) | 1 << 7
        else:
            self._write(message, body, files, interaction.file_limit)
        self.world.post(message)
        return message

    @_route("POST", "/webhooks/{application}/{token}", "webhook")
    async def post_followup(self, *, token: str, body: Any, files: Any, **_: Any) -> Any:
        interaction = self.register.take_followup(token)
        if interaction.original is not None and interaction.original.is_loading:
            self.faults.append("a follow-up takes the place of what was promised")
        message = self._reply(interaction, body, files, is_loading=False)
        interaction.followups.append(message)
        return message.payload()

    def _find_followup(self, token: str, number: str) -> worlds.Message:
        interaction = self.register.take_followup(token)
        if number == "@original" and interaction.original is not None:
            return interaction.original
        for message in interaction.messages:
            if number == str(message.id):
                return message
        raise rules.RefusedError(404, 10008, "Unknown Message")

    @_route("GET", "/webhooks/{application}/{token}/messages/{message}", "webhook")
    async def get_followup(self, *, token: str, message: str, **_: Any) -> Any:
        return self._find_followup(token, message).payload()

    @_route("PATCH", "/webhooks/{application}/{token}/messages/{message}", "webhook")
    async def edit_followup(
        self, *, token: str, message: str, body: Any, files: Any, **_: Any
    ) -> Any:
        stored = self._find_followup(token, message)
        if stored.id not in stored.channel.messages:
            raise rules.RefusedError(404, 10008, "Unknown Message")
        if stored.is_loading:
            stored.is_loading = False
            stored.flags &= ~(1 << 7)
        result = self._edit(stored, body, files, self.register.take_followup(token).file_limit)
        stored.pings |= rules.find_pings(stored, body.get("allowed_mentions"))
        return result

    @_route("DELETE", "/webhooks/{application}/{token}/messages/{message}", "webhook")
    async def delete_followup(self, *, token: str, message: str, **_: Any) -> None:
        self.world.delete(self._find_followup(token, message))


def _check_choices(choices: Any) -> None:
    if len(choices) > 25:
        raise rules.RefusedError(400, 50035, "more than 25 choices")
    for choice in choices:
        if not 1 <= len(choice["name"]) <= 100 or not 1 <= len(str(choice["value"])) <= 100:
            raise rules.RefusedError(400, 50035, "length of a choice")


def _stored_command(command: dict[str, Any]) -> dict[str, Any]:
    """Return a command as Discord stores it: some defaults are left out, others filled in."""
    stored = {key: value for key, value in command.items() if value not in (None, [], False)}
    stored["nsfw"] = command.get("nsfw", False)
    stored["description"] = command.get("description", "")
    stored["default_member_permissions"] = command.get("default_member_permissions")
    stored["dm_permission"] = command.get("dm_permission", True)
    if "options" in stored:
        stored["options"] = [_stored_option(option) for option in stored["options"]]
    return stored


def _stored_option(option: dict[str, Any]) -> dict[str, Any]:
    stored = {key: value for key, value in option.items() if value not in (None, [], False)}
    if "options" in stored:
        stored["options"] = [_stored_option(inner) for inner in stored["options"]]
    return stored


async def _read(request: web.Request) -> tuple[Any, dict[int, tuple[str, bytes]]]:
    """Return the JSON body, and the files by index."""
    if request.content_type != "multipart/form-data":
        text = await request.text()
        return (json.loads(text) if text else {}), {}
    form = await request.post()
    files = {}
    for name, value in form.items():
        match = re.fullmatch(r"files\[(\d+)\]", name)
        if match:
            assert isinstance(value, web.FileField)
            # Closed here: a request that is cancelled later would not close the file.
            with value.file:
                files[int(match[1])] = (value.filename, await asyncio.to_thread(value.file.read))
    payload = form["payload_json"]
    assert isinstance(payload, str)
    body = json.loads(payload)
    return body, files


def _limited(headers: Any, wait: float, *, scope: str) -> web.Response:
    is_global = scope == "global"
    body = {"message": "You are being rate limited.", "retry_after": wait, "global": is_global}
    limit_headers = {"X-RateLimit-Scope": scope, "Retry-After": str(math.ceil(wait))}
    return _json(429, body, {**headers, **limit_headers})


def _json(status: int, payload: Any, headers: Any = None) -> web.Response:
    # The client parses the body only if the type has no charset.
    return web.Response(
        status=status,
        body=json.dumps(payload).encode(),
        headers={**(headers or {}), "Content-Type": "application/json"},
    )
