"""The REST API, as far as a bot like ours uses it: an unknown route is a fault."""

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
    """Answers requests out of a world."""

    def __init__(self, world: Any, gateway: gateways.Gateway, register: interactions.Register):
        self.world = world
        self.gateway = gateway
        self.register = register
        self.buckets = rules.Buckets()
        self.planned: list[rules.Fault] = []
        self.refusals: list[str] = []
        self.unexpected: list[str] = []
        self.members_asked: list[int] = []
        self.seen: list[tuple[float, str, str]] = []
        self.commands: list[dict[str, Any]] = []
        self.typing: list[int] = []
        self.shards = 1
        self.delay_seconds = 0.0
        self.nonce_seconds = 180.0
        self.invalid = 0
        self.application_flags = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/api/v10")
        self.seen.append((time.monotonic(), request.method, path))
        for method, pattern, name, kind in _ROUTES:
            match = pattern.match(path)
            if match and method == request.method:
                return await self._answer(request, path, name, kind, match.groupdict())
        self.unexpected.append(f"no route {request.method} {path}")
        return _json(404, {"code": 0, "message": "404: Not Found"})

    async def _answer(
        self, request: web.Request, path: str, name: str, kind: str, parts: dict[str, str]
    ) -> web.StreamResponse:
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        is_tokened = path.startswith(("/webhooks/", "/interactions/"))
        if not is_tokened and request.headers.get("Authorization") != f"Bot {self.world.token}":
            self.invalid += 1
            return _json(401, {"code": 0, "message": "401: Unauthorized"})
        fault = next((f for f in self.planned if f.matches(request.method, path)), None)
        body, files = await _read(request)
        headers: Any = {"Via": "1.1 loopback"}
        if kind:
            major = parts.get("channel") or parts.get("token") or ""
            headers, wait = self.buckets.take(request.method, kind, major)
            if wait is not None:
                self.invalid += kind != "threads"
                return _limited(headers, wait, scope="shared" if kind == "threads" else "user")
        if fault is not None:
            fault.times -= 1
            if fault.kind == "limit":
                self.invalid += not fault.is_shared
                scope = "global" if fault.is_global else "shared" if fault.is_shared else "user"
                return _limited(headers, fault.retry_after, scope=scope)
            if fault.kind == "ban":
                return web.Response(status=429, text="error 1015", content_type="text/html")
            if fault.kind == "status":
                return _json(fault.status, {"code": fault.code, "message": "planned"}, headers)
        try:
            told = await getattr(self, name)(body=body, files=files, query=request.query, **parts)
        except rules.RefusedError as error:
            self.refusals.append(f"{error.code} {request.method} {path}: {error}")
            self.invalid += error.status in (401, 403)
            return _json(error.status, error.payload, headers)
        if fault is not None and fault.kind == "late":
            await asyncio.sleep(fault.retry_after)
        if fault is not None and fault.kind == "cut" and request.transport is not None:
            request.transport.abort()
        return (
            web.Response(status=204, headers=headers) if told is None else _json(200, told, headers)
        )

    # Who we are.

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
            _as_stored(command)
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
        self._need(channel, "view_channel", code=50001)
        return channel

    def _may(self, channel: worlds.Channel, name: str) -> bool:
        guild = channel.guild
        held = guild.permissions(self.world.bot, channel) if guild else worlds.EVERYTHING
        return bool(held & worlds.PERMISSIONS[name])

    def _need(
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
        self._need(parent, "create_public_threads")
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
        found = next(g for g in self.world.guilds if g.id == int(guild) and g.has_bot)
        self.members_asked.append(int(user))
        for member in found.members:
            if member.id == int(user):
                return found.member_payload(member)
        raise rules.RefusedError(404, 10007, "Unknown Member")

    @_route("GET", "/channels/{channel}/thread-members/{user}", "thread members")
    async def get_thread_member(self, *, channel: str, user: str, **_: Any) -> Any:
        if int(user) not in {person.id for person in self._channel(channel).invited}:
            raise rules.RefusedError(404, 10007, "Unknown Member")
        told = {"join_timestamp": worlds.moment(), "flags": 0}
        return {"id": channel, "user_id": user, **told}

    # Messages.

    @_route("GET", "/channels/{channel}/messages", "history")
    async def history(self, *, channel: str, query: Any, **_: Any) -> Any:
        place = self._channel(channel)
        self._need(place, "read_message_history")
        after, before = int(query.get("after", 0)), int(query.get("before", 1 << 63))
        found = [m for n, m in sorted(place.messages.items()) if after < n < before]
        limit = int(query.get("limit", 50))
        if not 1 <= limit <= 100:
            raise rules.RefusedError(400, 50035, "limit")
        cut = found[:limit] if "after" in query else found[-limit:]
        told = [message.payload() for message in reversed(cut) if not message.seen_by]
        for payload in told:
            # Only the gateway says as which member somebody writes.
            payload.pop("member", None)
        return told

    @_route("GET", "/channels/{channel}/messages/{message}", "message")
    async def get_message(self, *, channel: str, message: str, **_: Any) -> Any:
        self._need(self._channel(channel), "read_message_history")
        return self._message(channel, message).payload()

    def _message(self, channel: str, message: str) -> worlds.Message:
        found = self._channel(channel).messages.get(int(message))
        if found is None or found.seen_by is not None:
            raise rules.RefusedError(404, 10008, "Unknown Message")
        return found

    @_route("POST", "/channels/{channel}/messages", "messages")
    async def send(self, *, channel: str, body: Any, files: Any, **_: Any) -> Any:
        place = self._channel(channel)
        if place.type == worlds.FORUM:
            raise rules.RefusedError(400, 50008, "Cannot send messages in a non-text channel")
        self._need(place, "send_messages_in_threads" if place.is_thread else "send_messages")
        if place.is_locked and not self._may(place, "manage_threads"):
            raise rules.RefusedError(403, 50083, "Thread is archived")
        if place.is_closed:
            raise rules.RefusedError(403, 50007, "Cannot send messages to this user")
        if files:
            self._need(place, "attach_files")
        if body.get("enforce_nonce"):
            for known in place.messages.values():
                is_new = time.monotonic() - known.created < self.nonce_seconds
                if known.nonce == body["nonce"] and known.author is self.world.bot and is_new:
                    return known.payload()
        place.is_archived = False
        message = worlds.Message(place, self.world.bot, nonce=body.get("nonce"))
        if body.get("message_reference"):
            self._need(place, "read_message_history", code=160002, status=400)
            number = int(body["message_reference"]["message_id"])
            message.reference = place.messages.get(number)
            if message.reference is None and body["message_reference"].get(
                "fail_if_not_exists", True
            ):
                raise rules.RefusedError(400, 50035, "Unknown message")
        self._write(message, body, files)
        self.world.post(message)
        # A message that is looked up later does not say it any more.
        return message.payload() | {"nonce": message.nonce}

    @_route("PATCH", "/channels/{channel}/messages/{message}", "message")
    async def edit(self, *, channel: str, message: str, body: Any, files: Any, **_: Any) -> Any:
        found = self._message(channel, message)
        if found.author is not self.world.bot:
            raise rules.RefusedError(403, 50005, "Cannot edit a message of another user")
        if found.type == 21:
            raise rules.RefusedError(403, 50021, "Cannot execute action on a system message")
        if found.channel.is_archived:
            raise rules.RefusedError(400, 50083, "Thread is archived")
        if files:
            self._need(found.channel, "attach_files")
        return self._edit(found, body, files)

    @_route("DELETE", "/channels/{channel}/messages/{message}", "message")
    async def delete(self, *, channel: str, message: str, **_: Any) -> None:
        found = self._message(channel, message)
        if found.author is not self.world.bot:
            self._need(found.channel, "manage_messages")
        self.world.delete(found)

    def _write(self, message: worlds.Message, body: Any, files: Any, limit: int = 0) -> None:
        """Let a new message be what was sent."""
        rules.check_message(body, len(files))
        self._need_mentions(body)
        message.content = (body.get("content") or "").strip()
        message.flags |= int(body.get("flags") or 0)
        message.components = body.get("components") or []
        message.attachments = self._attach(message, body, files, limit)
        message.pings = rules.pings(message, body.get("allowed_mentions"))
        self._watch(message)

    def _edit(self, message: worlds.Message, body: Any, files: Any, limit: int = 0) -> Any:
        rules.check_message(body, len(files), is_edit=True)
        self._need_mentions(body)
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
        message.edited = worlds.moment()
        self._watch(message)
        if message.seen_by is None:
            self.gateway.push_message("MESSAGE_UPDATE", message)
        return message.payload()

    def _need_mentions(self, body: Any) -> None:
        """Stricter than Discord: whoever writes says whom that may notify."""
        if body.get("content") and body.get("allowed_mentions") is None:
            self.unexpected.append(f"no allowed_mentions with {body['content']!r}")

    def _watch(self, message: worlds.Message) -> None:
        message.forms.append((time.monotonic(), message.content))

    def _attach(
        self, message: worlds.Message, body: Any, files: Any, limit: int
    ) -> list[worlds.Attachment]:
        guild = message.channel.guild
        limit = limit or (guild.file_limit if guild else 10 * worlds.MIB)
        sizes = [len(data) for _, data in files.values()]
        if max(sizes, default=0) >= limit or sum(sizes) > rules.MAX_FORM_BYTES:
            raise rules.RefusedError(413, 40005, "Request entity too large")
        kept = {attachment.id: attachment for attachment in message.attachments}
        made = []
        described = body.get("attachments")
        if described is None:
            described = [{"id": number} for number in files]
        for told in described:
            number = int(told["id"])
            if number in kept:
                made.append(kept[number])
            elif number in files:
                name, data = files[number]
                made.append(self.world.attachment(name, data, told.get("description")))
            else:
                raise rules.RefusedError(400, 50035, f"no file {number}")
        if len(made) > 10:
            raise rules.RefusedError(400, 50035, "more than 10 files")
        return made

    # Interactions.

    @_route("POST", "/interactions/{number}/{token}/callback")
    async def callback(self, *, number: str, token: str, body: Any, files: Any, **_: Any) -> Any:
        kind, data = body["type"], body.get("data") or {}
        if kind == 9:
            rules.check_modal(data)
        if kind == 8:
            _check_choices(data["choices"])
        interaction = self.register.answering(int(number), token, kind)
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
        told: dict[str, Any] = {"interaction": {"id": number, "type": interaction.kind}}
        if interaction.original is not None:
            original = interaction.original
            told["interaction"] |= {
                "response_message_id": str(original.id),
                "response_message_loading": original.is_loading,
                "response_message_ephemeral": original.seen_by is not None,
            }
            told["resource"] = {"type": kind, "message": original.payload()}
        return told

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
    async def follow(self, *, token: str, body: Any, files: Any, **_: Any) -> Any:
        interaction = self.register.following(token)
        if interaction.original is not None and interaction.original.is_loading:
            self.unexpected.append("a follow-up takes the place of what was promised")
        message = self._reply(interaction, body, files, is_loading=False)
        interaction.followups.append(message)
        return message.payload()

    def _followed(self, token: str, number: str) -> worlds.Message:
        interaction = self.register.following(token)
        if number == "@original" and interaction.original is not None:
            return interaction.original
        for message in interaction.messages:
            if number == str(message.id):
                return message
        raise rules.RefusedError(404, 10008, "Unknown Message")

    @_route("GET", "/webhooks/{application}/{token}/messages/{message}", "webhook")
    async def get_followed(self, *, token: str, message: str, **_: Any) -> Any:
        return self._followed(token, message).payload()

    @_route("PATCH", "/webhooks/{application}/{token}/messages/{message}", "webhook")
    async def edit_followed(
        self, *, token: str, message: str, body: Any, files: Any, **_: Any
    ) -> Any:
        found = self._followed(token, message)
        if found.id not in found.channel.messages:
            raise rules.RefusedError(404, 10008, "Unknown Message")
        if found.is_loading:
            found.is_loading = False
            found.flags &= ~(1 << 7)
        told = self._edit(found, body, files, self.register.following(token).file_limit)
        found.pings |= rules.pings(found, body.get("allowed_mentions"))
        return told

    @_route("DELETE", "/webhooks/{application}/{token}/messages/{message}", "webhook")
    async def delete_followed(self, *, token: str, message: str, **_: Any) -> None:
        self.world.delete(self._followed(token, message))


def _check_choices(choices: Any) -> None:
    if len(choices) > 25:
        raise rules.RefusedError(400, 50035, "more than 25 choices")
    for choice in choices:
        if not 1 <= len(choice["name"]) <= 100 or not 1 <= len(str(choice["value"])) <= 100:
            raise rules.RefusedError(400, 50035, "length of a choice")


def _as_stored(command: dict[str, Any]) -> dict[str, Any]:
    """Discord gives commands back with defaults left out and others filled in."""
    kept = {key: value for key, value in command.items() if value not in (None, [], False)}
    kept["nsfw"] = command.get("nsfw", False)
    kept["description"] = command.get("description", "")
    kept["default_member_permissions"] = command.get("default_member_permissions")
    kept["dm_permission"] = command.get("dm_permission", True)
    if "options" in kept:
        kept["options"] = [_option_as_stored(option) for option in kept["options"]]
    return kept


def _option_as_stored(option: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in option.items() if value not in (None, [], False)}
    if "options" in kept:
        kept["options"] = [_option_as_stored(inner) for inner in kept["options"]]
    return kept


async def _read(request: web.Request) -> tuple[Any, dict[int, tuple[str, bytes]]]:
    """The JSON body and the files by index."""
    if request.content_type != "multipart/form-data":
        text = await request.text()
        return (json.loads(text) if text else {}), {}
    form = await request.post()
    files = {}
    for name, value in form.items():
        match = re.fullmatch(r"files\[(\d+)\]", name)
        if match:
            assert isinstance(value, web.FileField)
            # A request that is cancelled later, because its client left, does not close it.
            with value.file:
                files[int(match[1])] = (value.filename, await asyncio.to_thread(value.file.read))
    payload = form["payload_json"]
    assert isinstance(payload, str)
    body = json.loads(payload)
    return body, files


def _limited(headers: Any, wait: float, *, scope: str) -> web.Response:
    is_global = scope == "global"
    told = {"message": "You are being rate limited.", "retry_after": wait, "global": is_global}
    told_in_headers = {"X-RateLimit-Scope": scope, "Retry-After": str(math.ceil(wait))}
    return _json(429, told, {**headers, **told_in_headers})


def _json(status: int, told: Any, headers: Any = None) -> web.Response:
    # Exactly this type: with a charset the client takes the body for text.
    return web.Response(
        status=status,
        body=json.dumps(told).encode(),
        headers={**(headers or {}), "Content-Type": "application/json"},
    )
