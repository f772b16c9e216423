"""The loopback Slack as a server: it answers requests, sends envelopes, and acts as people do."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import hmac
import json
import math
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import aiohttp
from aiohttp import web

from tests.fakes.slack_server import validation, web_api, worlds

# Slack waits three seconds. The bot shares this event loop, so the time is counted in steps of the
# loop: a busy machine delays both.
_ACK_STEPS, _STEP_SECONDS = 150, 0.02
# The fields for the value of an element, in a submitted view and in a view that is opened.
_ANSWER_FIELDS = {
    "multi_users_select": ("selected_users", "initial_users"),
    "multi_conversations_select": ("selected_conversations", "initial_conversations"),
    "static_select": ("selected_option", "initial_option"),
}
_LOGIN_PAGE = "<!DOCTYPE html><html><head><title>Slack</title></head><body>Sign in</body></html>"


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault of one call.

    Attributes:
        kind: ratelimited | drop (before the call is carried out) | drop after | error | status
            | slow | hide (`files.info` answers without shares).
        error: Slack's code, for `error`.
        seconds: the header Retry-After, or the delay of `slow`.
    """

    kind: str
    error: str = ""
    seconds: float = 1.0
    status: int = 503


@dataclasses.dataclass
class Delivery:
    """One event on its way to the app."""

    kind: str
    payload: dict[str, Any]
    acknowledged_after: float | None = None
    answer: Any = None
    tries: int = 0


class Server:
    """The server. Its rate limits are `speed` times as fast as Slack's."""

    def __init__(
        self, *, speed: float = 1.0, signing_secret: str = "loopback-signing-secret"
    ) -> None:
        self.world = worlds.World()
        self.speed = speed
        self.signing_secret = signing_secret
        self.app_token = "xapp-loopback-app-token"
        self.can_stream = True
        self.has_agents = True
        self.max_upload_bytes = 0
        # An app that is sold outside of the Marketplace may read few messages.
        self.is_distributed = False
        # Whether messages have `bot_id`, which Slack sometimes leaves out.
        self.sends_bot_id = True
        # Error codes by method: calls that the workspace's plan or the app's scopes exclude.
        self.refused_methods: dict[str, str] = {}
        # How long Slack processes a file before it is shared or can be shown in a block.
        self.sharing_seconds = 0.02
        # The number of coming batches of files that are confirmed, but never shared.
        self.unshared_batches = 0
        self.has_picture_blocks = True
        self.calls: list[tuple[float, str, dict[str, Any]]] = []
        self.errors: list[tuple[str, str, str]] = []
        self.problems: list[str] = []
        self.pings: list[str] = []
        self.deliveries: list[Delivery] = []
        self.downloads: list[tuple[str, str]] = []
        self.choose_fault: Callable[[str, dict[str, Any]], Fault | None] = lambda *_: None
        self.http_target = ""
        self.root = ""
        self.oauth_codes: dict[str, worlds.Team] = {}
        self.random = random.Random(7)
        self._faults: dict[str, list[Fault]] = {}
        self._triggers: dict[str, float] = {}
        self._sockets: list[web.WebSocketResponse] = []
        self._tickets: set[str] = set()
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._acknowledgements: dict[str, asyncio.Future[Any]] = {}
        self._api = web_api.WebApi(self)

    async def __aenter__(self) -> Server:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/api/{method}", self._call)
        app.router.add_get("/link/{ticket}", self._socket)
        app.router.add_post("/upload/{file}", self._upload)
        app.router.add_get("/files/{file}/{name}", self._download)
        app.router.add_post("/response/{number}", self._respond)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.root = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self.base_url = f"{self.root}/api/"
        self._client = aiohttp.ClientSession()
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()
        for socket in self._sockets:
            await socket.close()
        await self._runner.cleanup()
        if kind is None:
            assert self.problems == [], self.problems
            assert self.pings == [], "generated text reaches people"

    # For tests ----------------------------------------------------------------------------

    def problem(self, problem: str) -> None:
        self.problems.append(problem)

    def forgive(self, *beginnings: str) -> None:
        """Remove problems that the test caused itself, by their first words."""
        self.problems = [p for p in self.problems if not p.startswith(beginnings)]

    async def until(self, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        """Wait until a condition is true; returns its value."""
        async with asyncio.timeout(seconds), self._changed:
            while not (value := condition()):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), 0.05)
            return value

    def fail(self, method: str, *faults: Fault) -> None:
        """Plan faults for the coming calls of a method, one for each."""
        self._faults.setdefault(method, []).extend(faults)

    def called(self, method: str) -> list[dict[str, Any]]:
        return [arguments for _, name, arguments in self.calls if name == method]

    def replies(self, channel: str, root: str) -> list[dict[str, Any]]:
        """Return the app's messages in a thread."""
        return [m for m in self.world.thread(channel, root) if m.get("bot_id") and m["ts"] != root]

    def answers(self, channel: str, root: str) -> list[dict[str, Any]]:
        """Return the app's complete messages in a thread."""
        replies = self.replies(channel, root)
        have_ended = ("'action_id': 'stop'" not in str(m.get("blocks")) for m in replies)
        ended = [m for m, has_ended in zip(replies, have_ended, strict=True) if has_ended]
        return [m for m in ended if m.get("stream", "closed") != "open"]

    def text_seen_by(self, user: str, channel: str, ts: str) -> str:
        """Return the text of a message that a person sees."""
        message = self.world.messages[channel, ts]
        frozen = message.get("seen")
        if frozen is not None and frozen["by"] != user:
            return str(frozen["text"])
        return "".join([message["text"], *validation.find_texts(message.get("blocks", []))])

    def status(self, channel: str, root: str) -> str:
        """Return the last status of a session."""
        shown = [
            s["status"]
            for s in self.world.statuses
            if (s["channel"], s["thread_ts"]) == (channel, root)
        ]
        return shown[-1] if shown else ""

    # Calls --------------------------------------------------------------------------------

    async def _arguments(self, request: web.Request) -> dict[str, Any]:
        arguments: dict[str, Any] = dict(request.query)
        if request.content_type == "application/json":
            arguments |= await request.json()
        elif request.can_read_body:
            arguments |= dict(await request.post())
        return arguments

    async def _call(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        arguments = await self._arguments(request)
        header_token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        token = str(arguments.pop("token", "") or header_token)
        if method == "oauth.v2.access":
            return self._exchange(arguments)
        self.calls.append((time.monotonic(), method, arguments))
        if method not in web_api.METHODS:
            self.problem(f"unknown method {method}")
            return self._error("unknown_method")
        fault = self._next_fault(method, arguments)
        if fault is not None and fault.kind != "drop after":
            answer = await self._apply_fault(request, fault)
            if answer is not None:
                return answer
        response = await self._call_method(method, arguments, token)
        if fault is not None and fault.kind == "hide":
            response = _hide_shares(response)
        if fault is not None and fault.kind == "drop after":
            assert request.transport
            request.transport.abort()
        await self._notify()
        return response

    def _next_fault(self, method: str, arguments: dict[str, Any]) -> Fault | None:
        faults = self._faults.get(method)
        return faults.pop(0) if faults else self.choose_fault(method, arguments)

    async def _apply_fault(self, request: web.Request, fault: Fault) -> web.Response | None:
        if fault.kind == "ratelimited":
            return self._rate_limited(fault.seconds)
        if fault.kind == "error":
            return self._error(fault.error)
        if fault.kind == "status":
            return web.Response(status=fault.status, text="oops")
        if fault.kind == "slow":
            await asyncio.sleep(fault.seconds)
        if fault.kind in ("slow", "hide"):
            return None
        assert request.transport
        request.transport.abort()
        return web.Response()

    def _rate_limited(self, seconds: float) -> web.Response:
        # In whole seconds, as Slack sends them.
        headers = {"Retry-After": f"{math.ceil(seconds)}"}
        return web.json_response({"ok": False, "error": "ratelimited"}, status=429, headers=headers)

    def _error(self, error: str, **fields: Any) -> web.Response:
        return web.json_response({"ok": False, "error": error, **fields})

    async def _call_method(
        self, method: str, arguments: dict[str, Any], token: str
    ) -> web.Response:
        try:
            if method == "apps.connections.open":
                if token != self.app_token:
                    return self._error("invalid_auth")
                team = ""
            else:
                team = self.world.team_of(token).id
            if wait := self._api.throttle(method, team, arguments):
                self.errors.append((method, "ratelimited", ""))
                return self._rate_limited(wait)
            answer = await self._api.call(method, arguments, token)
        except worlds.RefusalError as refusal:
            detail = json.dumps(refusal.fields)
            self.errors.append((method, refusal.error, detail))
            if refusal.error.startswith(("invalid_", "msg_", "no_text", "missing_")) and (
                refusal.error != "invalid_auth"
            ):
                self.problem(f"{method}: {refusal.error} {detail}")
            return self._error(refusal.error, **refusal.fields)
        scopes = self.world.team_of(token).scopes if team else ""
        headers = {"x-oauth-scopes": scopes} if scopes else {}
        return web.json_response({"ok": True, **answer}, headers=headers)

    def _exchange(self, arguments: dict[str, Any]) -> web.Response:
        team = self.oauth_codes.pop(arguments.get("code", ""), None)
        if team is None:
            return self._error("invalid_code")
        self.world.teams[team.id] = team
        user = {"id": "U1"}
        fields = {"app_id": "A1", "bot_user_id": team.bot_user, "access_token": team.token}
        if team.is_organisation:
            enterprise = {"team": None, "enterprise": {"id": "E1", "name": "All"}}
            installation = {"is_enterprise_install": True, **enterprise}
            return web.json_response(
                {"ok": True, "authed_user": {"id": "U1"}, **fields, **installation}
            )
        installation = {"team": {"id": team.id, "name": "Other"}, "enterprise": None}
        fields |= {"scope": "chat:write", "token_type": "bot", "is_enterprise_install": False}
        return web.json_response({"ok": True, "authed_user": user, **fields, **installation})

    async def _upload(self, request: web.Request) -> web.Response:
        file = request.match_info["file"]
        fault = self._next_fault("upload", {})
        if fault is not None:
            answer = await self._apply_fault(request, fault)
            if answer is not None:
                return answer
        data = await request.read()
        info = self.world.files[file]
        if len(data) != info["size"]:
            self.problem(f"an upload of {len(data)} bytes that should be {info['size']}")
            return web.Response(status=400, text="length")
        info["is_uploaded"] = True
        self.world.contents[file] = data
        return web.Response(text=f"OK - {len(data)}", content_type="text/plain")

    async def _download(self, request: web.Request) -> web.StreamResponse:
        file = request.match_info["file"]
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.downloads.append((file, token))
        info = self.world.files[file]
        if "redirect" in info:
            return web.Response(status=302, headers={"Location": info["redirect"]})
        if token not in {team.token for team in self.world.teams.values()}:
            return web.Response(text=_LOGIN_PAGE, content_type="text/html")
        if info.get("login"):
            return web.Response(text=_LOGIN_PAGE, content_type="text/html")
        response = web.StreamResponse(headers={"Content-Type": info["mimetype"]})
        await response.prepare(request)
        data = self.world.contents[file]
        for start in range(0, len(data), 65_536):
            await response.write(data[start : start + 65_536])
        return response

    async def _respond(self, request: web.Request) -> web.Response:
        body = await request.json()
        if "blocks" in body:
            validation.check_message_blocks(body["blocks"])
        self.pings += validation.find_pings(body)
        self.world.responses.append({"number": request.match_info["number"], **body})
        await self._notify()
        return web.Response(text="ok")

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    # Sockets ------------------------------------------------------------------------------

    def issue_socket_url(self) -> str:
        ticket = f"t{self.world.next_number()}"
        self._tickets.add(ticket)
        return f"{self.root.replace('http', 'ws', 1)}/link/{ticket}"

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        ticket = request.match_info["ticket"]
        if ticket not in self._tickets:
            return web.Response(status=403)
        self._tickets.discard(ticket)
        socket = web.WebSocketResponse(autoping=True)
        await socket.prepare(request)
        hello = {"type": "hello", "num_connections": 1, "connection_info": {"app_id": "A1"}}
        await socket.send_json(hello)
        self._sockets.append(socket)
        await self._notify()
        try:
            async for message in socket:
                if message.type is aiohttp.WSMsgType.TEXT:
                    body = json.loads(message.data)
                    acknowledgement = self._acknowledgements.pop(body["envelope_id"], None)
                    if acknowledgement is not None and not acknowledgement.done():
                        acknowledgement.set_result(body.get("payload"))
        finally:
            if socket in self._sockets:
                self._sockets.remove(socket)
        return socket

    @property
    def is_connected(self) -> bool:
        return bool(self._sockets)

    def drop_sockets(self) -> None:
        """Cut every connection without notice."""
        for socket in list(self._sockets):
            self._sockets.remove(socket)
            transport = socket._req.transport if socket._req is not None else None
            if transport is not None:
                transport.abort()

    async def refresh_sockets(self) -> None:
        """Ask the app to reconnect, as Slack does every few hours."""
        for socket in list(self._sockets):
            await socket.send_json({"type": "disconnect", "reason": "refresh_requested"})

    # Deliveries ---------------------------------------------------------------------------

    def deliver(self, kind: str, payload: dict[str, Any], *, times: int = 1) -> Delivery:
        """Send an envelope, perhaps more than once, as Slack does at times."""
        delivery = Delivery(kind, payload)
        self.deliveries.append(delivery)
        for _ in range(times):
            task = asyncio.create_task(self._deliver(delivery))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return delivery

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task in the background, so that the call is answered first."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, delivery: Delivery) -> None:
        for attempt in range(4):
            delivery.tries += 1
            send = self._send_over_http if self.http_target else self._send_over_socket
            await self.until(lambda: self.http_target or self._sockets, seconds=600)
            started = time.monotonic()
            try:
                delivery.answer = await _wait_for_acknowledgement(send(delivery, attempt))
            except TimeoutError:
                self.problem(f"{delivery.kind} was not acknowledged within 3 s")
                continue
            except (ConnectionError, aiohttp.ClientError):
                # The connection was cut by the test; Slack tries again.
                await asyncio.sleep(0.05)
                continue
            delivery.acknowledged_after = time.monotonic() - started
            await self._notify()
            return

    async def _send_over_socket(self, delivery: Delivery, attempt: int) -> Any:
        if not self._sockets:
            raise ConnectionError("the socket was cut")
        socket = self.random.choice(self._sockets)
        envelope = f"E{self.world.next_number()}"
        acknowledgement = asyncio.get_running_loop().create_future()
        self._acknowledgements[envelope] = acknowledgement
        body = {"type": delivery.kind, "envelope_id": envelope, "payload": delivery.payload}
        body |= {"accepts_response_payload": delivery.kind != "events_api"}
        body |= {"retry_attempt": attempt, "retry_reason": "timeout" if attempt else ""}
        await socket.send_json(body)
        while not acknowledgement.done():
            if socket not in self._sockets:
                raise ConnectionError("the socket was cut")
            await asyncio.wait([acknowledgement], timeout=_STEP_SECONDS)
        return acknowledgement.result()

    async def _send_over_http(self, delivery: Delivery, attempt: int) -> Any:
        if delivery.kind == "events_api":
            body = json.dumps(delivery.payload)
            content = "application/json"
        elif delivery.kind == "slash_commands":
            body = aiohttp.FormData(delivery.payload)()._value.decode()
            content = "application/x-www-form-urlencoded"
        else:
            form = aiohttp.FormData({"payload": json.dumps(delivery.payload)})
            body = form()._value.decode()
            content = "application/x-www-form-urlencoded"
        headers = self.sign(body) | {"Content-Type": content}
        if attempt:
            headers |= {"X-Slack-Retry-Num": str(attempt), "X-Slack-Retry-Reason": "http_timeout"}
        async with self._client.post(self.http_target, data=body, headers=headers) as response:
            text = await response.text()
            if response.status != 200:
                raise ConnectionError(f"{response.status} {text}")
            return json.loads(text) if text.startswith("{") else text

    def sign(self, body: str, *, age_seconds: int = 0) -> dict[str, str]:
        stamp = str(int(time.time()) - age_seconds)
        basis = f"v0:{stamp}:{body}".encode()
        digest = hmac.new(self.signing_secret.encode(), basis, hashlib.sha256).hexdigest()
        return {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={digest}"}

    def trigger(self) -> str:
        trigger = f"trigger{self.world.next_number()}"
        self._triggers[trigger] = time.monotonic()
        return trigger

    def use_trigger(self, trigger: str) -> None:
        issued = self._triggers.pop(trigger, None)
        if issued is None:
            raise worlds.RefusalError("invalid_trigger_id")
        if time.monotonic() - issued > 3:
            raise worlds.RefusalError("expired_trigger_id")

    def event(
        self, event: dict[str, Any], *, times: int = 1, team: str = "T1", event_id: str = ""
    ) -> Delivery:
        """Send an event of the Events API."""
        installation = self.world.teams[team]
        authorization = {"team_id": team, "user_id": installation.bot_user, "is_bot": True}
        payload = {
            "type": "event_callback",
            "team_id": team,
            "api_app_id": "A1",
            "event_id": event_id or f"Ev{self.world.next_number()}",
            "event_time": int(time.time()),
            "authorizations": [authorization | {"enterprise_id": None}],
            "event": event,
        }
        return self.deliver("events_api", payload, times=times)

    # What people do -----------------------------------------------------------------------

    def put_file(
        self, name: str, data: bytes, *, mimetype: str = "text/csv", **fields: Any
    ) -> dict[str, Any]:
        """Let a person upload a file; returns its entry for `say`."""
        file = f"F{self.world.next_number()}"
        url = f"{self.root}/files/{file}/{name}"
        info = {"id": file, "name": name, "title": name, "mimetype": mimetype, "mode": "hosted"}
        info |= {"size": len(data), "url_private": url, "url_private_download": url}
        info |= {"filetype": name.rpartition(".")[2], **fields}
        self.world.files[file] = info
        self.world.contents[file] = data
        return info

    def say(
        self,
        user: str,
        channel: str,
        text: str,
        *,
        thread: str = "",
        files: Sequence[dict[str, Any]] = (),
        times: int = 1,
        **fields: Any,
    ) -> str:
        """Let a person write a message; returns its timestamp."""
        place = self.world.channels[channel]
        ts = self.world.next_ts()
        message = {"type": "message", "user": user, "text": text, "ts": ts, "team": place.team}
        if thread:
            message["thread_ts"] = thread
        if files:
            message |= {"files": list(files), "subtype": "file_share"}
        message |= {"client_msg_id": f"m{ts}", **fields}
        self.world.messages[channel, ts] = message
        event = {**message, "channel": channel, "channel_type": place.kind, "event_ts": ts}
        events = [event] if place.has_bot else []
        bot = self.world.teams[place.team].bot_user
        if f"<@{bot}>" in text and place.kind != "im" and place.has_bot:
            mention = {k: v for k, v in event.items() if k not in ("subtype", "channel_type")}
            events.append({**mention, "type": "app_mention"})
        self.random.shuffle(events)
        for event_to_send in events:
            self.event(event_to_send, times=times, team=place.team)
        return ts

    def edit(self, channel: str, ts: str, text: str) -> None:
        """Let a person edit their message."""
        message = self.world.messages[channel, ts]
        before = dict(message)
        message["text"] = text
        message["edited"] = {"user": message["user"], "ts": self.world.next_ts()}
        place = self.world.channels[channel]
        event = {"type": "message", "subtype": "message_changed", "channel": channel}
        event |= {"channel_type": place.kind, "ts": self.world.next_ts(), "message": dict(message)}
        self.event({**event, "previous_message": before}, team=place.team)

    def delete(self, channel: str, ts: str) -> None:
        """Let a person delete a message; if it has replies, a tombstone takes its place."""
        before = self.world.messages.pop((channel, ts))
        if self.world.thread(channel, ts):
            tombstone = {"type": "message", "subtype": "tombstone", "user": "USLACKBOT", "ts": ts}
            self.world.messages[channel, ts] = tombstone | {"text": "This message was deleted."}
        place = self.world.channels[channel]
        event = {"type": "message", "subtype": "message_deleted", "channel": channel}
        event |= {"channel_type": place.kind, "deleted_ts": ts, "ts": self.world.next_ts()}
        previous = {k: v for k, v in before.items() if isinstance(v, str | list)}
        self.event({**event, "previous_message": previous}, team=place.team)

    def command(
        self, user: str, channel: str, command: str, text: str = "", **fields: Any
    ) -> Delivery:
        """Let a person use a slash command."""
        number = self.world.next_number()
        payload = {"command": command, "text": text, "user_id": user, "channel_id": channel}
        payload |= {"team_id": self.world.channels[channel].team, "trigger_id": self.trigger()}
        payload |= {"response_url": f"{self.root}/response/{number}", "user_name": user.lower()}
        payload |= {"channel_name": channel.lower(), "api_app_id": "A1", **fields}
        return self.deliver("slash_commands", payload)

    def _interaction_payload(self, user: str, kind: str, **fields: Any) -> dict[str, Any]:
        user_fields = {"id": user, "username": user, "team_id": self.world.users[user]["team_id"]}
        payload = {"type": kind, "team": {"id": "T1"}, "user": user_fields, "api_app_id": "A1"}
        return payload | {"trigger_id": self.trigger(), **fields}

    def click(
        self, user: str, channel: str, ts: str, action_id: str, *, value: str = ""
    ) -> Delivery:
        """Let a person press a button of a message."""
        message = self.world.messages[channel, ts]
        action = _find_action(message.get("blocks", []), action_id, value)
        container = {"type": "message", "message_ts": ts, "channel_id": channel}
        url = f"{self.root}/response/{self.world.next_number()}"
        message_fields = {
            k: v for k, v in message.items() if k not in ("stream", "edits", "started")
        }
        fields = {"channel": {"id": channel}, "message": message_fields, "container": container}
        actions = [{**action, "action_ts": self.world.next_ts(), "block_id": "b"}]
        payload = self._interaction_payload(
            user, "block_actions", **fields, actions=actions, response_url=url
        )
        return self.deliver("interactive", payload)

    def click_home(self, user: str, action_id: str, *, value: str = "") -> Delivery:
        """Let a person use an element of their home."""
        view = self.world.homes[user]
        action = _find_action(view["blocks"], action_id, value)
        fields = {"view": {**view, "state": {"values": {}}}, "container": {"type": "view"}}
        actions = [{**action, "action_ts": self.world.next_ts(), "block_id": "b"}]
        return self.deliver(
            "interactive",
            self._interaction_payload(user, "block_actions", **fields, actions=actions),
        )

    def submit(self, user: str, view: dict[str, Any], **answers: Any) -> Delivery:
        """Let a person submit a modal, with `answers` by block_id."""
        state: dict[str, Any] = {}
        for block in view["blocks"]:
            if block["type"] == "input":
                element = block["element"]
                name, initial = _ANSWER_FIELDS.get(element["type"], ("value", "initial_value"))
                answer = answers.pop(block["block_id"], element.get(initial))
                if element["type"] == "static_select" and isinstance(answer, str):
                    [answer] = [o for o in element["options"] if o["value"] == answer]
                answer_state = {"type": element["type"], name: answer}
                state[block["block_id"]] = {element["action_id"]: answer_state}
        assert not answers, "there is no such input"
        submitted = {**view, "state": {"values": state}, "hash": "h"}
        return self.deliver(
            "interactive", self._interaction_payload(user, "view_submission", view=submitted)
        )

    def shortcut(self, user: str, callback_id: str, channel: str, ts: str) -> Delivery:
        """Let a person use a message shortcut."""
        message = {**self.world.messages[channel, ts]}
        fields = {"callback_id": callback_id, "channel": {"id": channel}, "message": message}
        fields |= {
            "message_ts": ts,
            "response_url": f"{self.root}/response/{self.world.next_number()}",
        }
        return self.deliver(
            "interactive", self._interaction_payload(user, "message_action", **fields)
        )

    def open_home(self, user: str, tab: str = "home") -> Delivery:
        """Let a person open the app's home or messages tab."""
        event = {"type": "app_home_opened", "user": user, "channel": "D" + user, "tab": tab}
        return self.event({**event, "event_ts": self.world.next_ts()})

    def press_stop(self, user: str, channel: str, root: str) -> Delivery:
        """Let a person press Slack's own Stop."""
        streaming = []
        for message in self.replies(channel, root):
            if message.get("stream") == "open":
                message["stream"] = "stopped by user"
                streaming.append(message["ts"])
        event = {"type": "agent_session_stopped", "channel": channel, "thread_ts": root}
        event |= {"user": user, "event_ts": self.world.next_ts(), "streaming_message_ts": streaming}
        return self.event(event)


def _hide_shares(response: web.Response) -> web.Response:
    body = json.loads(response.body)
    body["file"].pop("shares", None)
    return web.json_response(body)


def _find_action(blocks: Sequence[Any], action_id: str, value: str) -> dict[str, Any]:
    for block in blocks:
        for element in [*block.get("elements", []), *filter(None, [block.get("accessory")])]:
            if element.get("action_id") != action_id:
                continue
            if element["type"] == "feedback_buttons":
                return {"type": "feedback_buttons", "action_id": action_id, "value": value}
            if element["type"] == "users_select":
                return {"type": "users_select", "action_id": action_id, "selected_user": value}
            if element["type"] == "static_select":
                options = [o for o in element["options"] if o["value"] == value]
                return {"type": "static_select", "action_id": action_id} | {
                    "selected_option": options[0]
                }
            if not value or element.get("value") == value:
                return {"type": "button", "action_id": action_id, "value": element.get("value")}
    raise AssertionError(f"there is nothing called {action_id} to press")


async def _wait_for_acknowledgement(sending: Coroutine[Any, Any, Any]) -> Any:
    task = asyncio.create_task(sending)
    try:
        for _ in range(_ACK_STEPS):
            await asyncio.wait({task}, timeout=_STEP_SECONDS)
            if task.done():
                return task.result()
        raise TimeoutError
    finally:
        task.cancel()
