"""A Discord on the loopback: strict, complete enough for a bot, with people in it.

    async with servers.Server() as discord:
        guild = discord.guild("Lab"); alice = guild.person("alice")
        channel = guild.channel("general")
        await discord.say(alice, channel, f"{discord.bot.mention} hello")

The real client runs against it. Whatever Discord would refuse is refused, and is a fault unless
the test said `expect(code)`; faults raise at the end of the `async with`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import discord
import yarl
from aiohttp import web

from tests.fakes.discord_server import gateways, interactions, rests, rules, worlds

TOKEN = "loopback.token-0123456789"


class Server:
    """The server and its world."""

    def __init__(self, *, token: str = TOKEN, window_seconds: float = 5.0) -> None:
        self.token = token
        self.bot = worlds.User("interpreter", is_bot=True)
        self.owner = worlds.User("operator")
        self.guilds: list[worlds.Guild] = []
        self.directs: list[worlds.Channel] = []
        self.register = interactions.Register()
        self.gateway = gateways.Gateway(bot=self.bot, token=token)
        self.gateway.guilds = self.guilds
        self.rest = rests.Rest(self, self.gateway, self.register)
        self.rest.buckets.window_seconds = window_seconds
        self.gateway.identify_seconds = window_seconds
        self._expected: set[int] = set()
        self._attachments: dict[int, worlds.Attachment] = {}
        self._runner: web.AppRunner | None = None
        self._before: tuple[str, yarl.URL] | None = None

    async def __aenter__(self) -> Server:
        app = web.Application(client_max_size=rules.MAX_REQUEST_BYTES)
        app.router.add_get("/gw", self.gateway.handle)
        app.router.add_get("/cdn/{number}/{name}", self._cdn)
        app.router.add_route("*", "/api/v10/{tail:.*}", self.rest.handle)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=1
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.origin = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self.gateway.url = self.origin.replace("http", "ws") + "/gw"
        self._before = (
            discord.http.Route.BASE,
            discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY,
        )
        discord.http.Route.BASE = self.origin + "/api/v10"
        discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(self.gateway.url)
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        assert self._runner
        assert self._before
        await self.gateway.close()
        await self._runner.cleanup()
        discord.http.Route.BASE, discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = self._before
        if kind is None:
            assert self.faults == [], self.faults

    @property
    def faults(self) -> list[str]:
        """What the client did wrong."""
        refused = [r for r in self.rest.refusals if int(r.split()[0]) not in self._expected]
        pinged = [
            f"{ping!r} was notified by {message.content!r}"
            for channel in self.channels.values()
            for message in channel.messages.values()
            if message.author is self.bot
            for ping in message.pings & {"everyone", "role"}
        ]
        late = [] if self._expected & {10062, 40060} else self.register.faults
        invalid = self.rest.invalid
        banned = [f"{invalid} invalid requests"] if invalid > rules.MAX_INVALID else []
        return refused + self.rest.unexpected + late + self.gateway.faults + pinged + banned

    def expect(self, *codes: int) -> None:
        """Take refusals with these codes for what the test is about."""
        self._expected.update(codes)

    def plan(self, method: str, path: str, **others: Any) -> rules.Fault:
        """Let something go wrong."""
        fault = rules.Fault(method, path, **others)
        self.rest.planned.append(fault)
        return fault

    # The world.

    def guild(self, name: str = "Lab", **others: Any) -> worlds.Guild:
        """A new guild, with the bot in it; to be made before the bot connects."""
        guild = worlds.Guild(name, worlds.User("owner"), **others)
        guild.members[self.bot] = set()
        self.guilds.append(guild)
        return guild

    @property
    def channels(self) -> dict[int, worlds.Channel]:
        """All channels by id."""
        known = [c for guild in self.guilds for c in guild.channels] + self.directs
        return {channel.id: channel for channel in known}

    @property
    def users(self) -> dict[int, worlds.User]:
        """All people by id."""
        known = [self.owner, *(user for guild in self.guilds for user in guild.members)]
        known += [user for channel in self.directs for user in channel.recipients]
        return {user.id: user for user in known}

    def direct(self, user: worlds.User, other: worlds.User | None = None) -> worlds.Channel:
        """The direct conversation of somebody, with the bot unless said otherwise."""
        with_whom = other or self.bot
        for channel in self.directs:
            if {*channel.recipients} == {user, with_whom}:
                return channel
        channel = worlds.Channel(worlds.DM, recipients=[user, with_whom])
        self.directs.append(channel)
        return channel

    def attachment(
        self, name: str, data: bytes, description: str | None = None, **others: Any
    ) -> worlds.Attachment:
        """A file on the CDN."""
        made = worlds.Attachment(name, data, description=description, **others)
        made.url = f"{self.origin}/cdn/{made.id}/{name}"
        self._attachments[made.id] = made
        return made

    def thread(
        self, starter: worlds.Message, name: str, owner: worlds.User, *, is_told: bool = True
    ) -> worlds.Channel:
        """A new thread on a message: it has the id of that message."""
        parent = starter.channel
        is_public = parent.type != worlds.ANNOUNCEMENT
        thread = worlds.Channel(
            worlds.PUBLIC_THREAD if is_public else worlds.ANNOUNCEMENT_THREAD,
            name,
            guild=parent.guild,
            parent=parent,
            owner=owner,
            id=starter.id,
        )
        assert parent.guild
        parent.guild.channels.append(thread)
        starter.thread = thread
        starter.flags |= worlds.HAS_THREAD
        if is_told:
            self.gateway.push(
                "THREAD_CREATE", thread.payload() | {"newly_created": True}, guild=parent.guild
            )
            self.gateway.push_message("MESSAGE_UPDATE", starter)
            self.post(worlds.Message(thread, owner, type=worlds.THREAD_STARTER, reference=starter))
        return thread

    def private_thread(
        self, parent: worlds.Channel, name: str, *invited: worlds.User
    ) -> worlds.Channel:
        """A new private thread, of the first who is in it; the bot is, too."""
        thread = worlds.Channel(
            worlds.PRIVATE_THREAD, name, guild=parent.guild, parent=parent, owner=invited[0]
        )
        thread.invited.update((*invited, self.bot))
        assert parent.guild
        parent.guild.channels.append(thread)
        self.gateway.push(
            "THREAD_CREATE", thread.payload() | {"newly_created": True}, guild=parent.guild
        )
        return thread

    def post(self, message: worlds.Message) -> worlds.Message:
        """Put a message where it belongs and tell everybody."""
        message.channel.messages[message.id] = message
        if message.seen_by is None:
            self.gateway.push_message("MESSAGE_CREATE", message)
        return message

    def delete(self, message: worlds.Message) -> None:
        """Take a message away."""
        channel = message.channel
        del channel.messages[message.id]
        told = {"id": str(message.id), "channel_id": str(channel.id)}
        if channel.guild is not None:
            told["guild_id"] = str(channel.guild.id)
        if message.seen_by is None:
            self.gateway.push("MESSAGE_DELETE", told, guild=channel.guild)

    def delete_all(self, *messages: worlds.Message) -> None:
        """Take messages of one channel away at once, as moderators can."""
        channel = messages[0].channel
        for message in messages:
            del channel.messages[message.id]
        told = {"ids": [str(m.id) for m in messages], "channel_id": str(channel.id)}
        if channel.guild is not None:
            told["guild_id"] = str(channel.guild.id)
        self.gateway.push("MESSAGE_DELETE_BULK", told, guild=channel.guild)

    async def _cdn(self, request: web.Request) -> web.StreamResponse:
        attachment = self._attachments.get(int(request.match_info["number"]))
        is_over = time.time() > int(request.query.get("ex", "0"), 16)
        if attachment is None or attachment.serve == "gone" or is_over:
            return web.Response(status=404)
        if attachment.serve == "endless":
            response = web.StreamResponse()
            await response.prepare(request)
            for _ in range(4096):
                await response.write(b"x" * 65536)
            return response
        return web.Response(body=attachment.data)

    # What people do.

    def say(
        self,
        user: worlds.User,
        channel: worlds.Channel,
        content: str = "",
        *,
        files: Sequence[worlds.Attachment] = (),
        reference: worlds.Message | None = None,
        snapshots: Sequence[worlds.Message] = (),
        webhook_id: int | None = None,
        is_pinging: bool = True,
    ) -> worlds.Message:
        """Write a message."""
        return self.post(
            worlds.Message(
                channel,
                user,
                content,
                attachments=list(files),
                reference=reference,
                snapshots=list(snapshots),
                webhook_id=webhook_id,
                is_pinging=is_pinging,
            )
        )

    def forum_post(
        self, user: worlds.User, forum: worlds.Channel, title: str, content: str
    ) -> worlds.Channel:
        """Open a post: a thread whose first message has its id."""
        assert forum.guild
        post = worlds.Channel(
            worlds.PUBLIC_THREAD, title, guild=forum.guild, parent=forum, owner=user
        )
        forum.guild.channels.append(post)
        self.gateway.push(
            "THREAD_CREATE", post.payload() | {"newly_created": True}, guild=forum.guild
        )
        self.post(worlds.Message(post, user, content, id=post.id))
        return post

    def edit(self, message: worlds.Message, content: str) -> None:
        """Change a message of one's own."""
        message.content = content
        message.edited = worlds.moment()
        self.gateway.push_message("MESSAGE_UPDATE", message)

    def unfurl(self, message: worlds.Message) -> None:
        """Let Discord add a preview: an update that nobody made."""
        self.gateway.push_message("MESSAGE_UPDATE", message)

    def _interact(self, made: interactions.Interaction) -> interactions.Interaction:
        self.register.add(made)
        self.gateway.push(
            "INTERACTION_CREATE",
            made.payload(self.bot),
            guild=made.channel.guild if not made.is_user_install else None,
        )
        return made

    async def _answered(self, made: interactions.Interaction) -> interactions.Interaction:
        self._interact(made)
        await rules.wait_until(lambda: made.answer, seconds=30, what=f"answer to {made.data}")
        return made

    async def command(
        self,
        user: worlds.User,
        channel: worlds.Channel,
        name: str,
        options: dict[str, Any] | None = None,
        *,
        focused: str = "",
        is_user_install: bool = False,
        user_limit: int = 0,
    ) -> interactions.Interaction:
        """Use a slash command such as "interpreter reset"; with `focused`, complete that option."""
        first, *rest = name.split()
        command = next(c for c in self.rest.commands if c["name"] == first)
        known = command
        for part in rest:
            known = next(o for o in known["options"] if o["name"] == part)
        files = {}
        told = []
        for key, value in (options or {}).items():
            option = next(o for o in known.get("options", []) if o["name"] == key)
            if isinstance(value, worlds.Attachment):
                files[str(value.id)] = value.payload
                value = str(value.id)
            entry = {"name": key, "type": option["type"], "value": value}
            told.append(entry | ({"focused": True} if key == focused else {}))
        missing = [o["name"] for o in known.get("options", []) if o.get("required")]
        assert set(missing) <= set(options or {}), "Discord would not let it be sent"
        for part in reversed(rest):
            told = [{"name": part, "type": 1, "options": told}]
        data: dict[str, Any] = {"id": command["id"], "name": first, "type": 1, "options": told}
        if files:
            data["resolved"] = {"attachments": files}
        kind = interactions.AUTOCOMPLETE if focused else interactions.COMMAND
        guild = channel.guild
        if guild is not None:
            may = worlds.PERMISSIONS["use_application_commands"]
            assert guild.permissions(user, channel) & may, "Discord would not offer it"
        made = interactions.Interaction(
            kind, user, channel, data, is_user_install=is_user_install, user_limit=user_limit
        )
        return await self._answered(made)

    async def menu(
        self, user: worlds.User, name: str, message: worlds.Message
    ) -> interactions.Interaction:
        """Use a context menu on a message."""
        command = next(c for c in self.rest.commands if c["name"] == name)
        data = {
            "id": command["id"],
            "name": name,
            "type": 3,
            "target_id": str(message.id),
            "resolved": {"messages": {str(message.id): message.payload()}},
        }
        made = interactions.Interaction(interactions.COMMAND, user, message.channel, data)
        return await self._answered(made)

    async def click(
        self, user: worlds.User, message: worlds.Message, label: str, **others: Any
    ) -> interactions.Interaction:
        """Press a button."""
        data = {"custom_id": message.buttons[label], "component_type": 2}
        made = interactions.Interaction(
            interactions.COMPONENT, user, message.channel, data, message=message, **others
        )
        return await self._answered(made)

    async def submit(
        self, opened: interactions.Interaction, filled: dict[str, Any]
    ) -> interactions.Interaction:
        """Send a modal off. Values are texts, or lists of attachments or of choices, by custom id;
        what is left out stays as the modal came."""
        assert opened.modal
        components = []
        files = {}
        for item in opened.modal["components"]:
            if item["type"] != 18:
                continue
            inner = item["component"]
            told = {"type": inner["type"], "custom_id": inner["custom_id"], "id": 1}
            value = filled.get(inner["custom_id"], inner.get("value") or "")
            if inner["type"] == 3:
                chosen = [one["value"] for one in inner["options"] if one.get("default")]
                told["values"] = filled.get(inner["custom_id"], chosen)
            elif inner["type"] == 19:
                files |= {str(file.id): file.payload for file in value or ()}
                told["values"] = [str(file.id) for file in value or ()]
            else:
                assert len(value) <= (inner.get("max_length") or 4000)
                assert value or not inner.get("required", True)
                told["value"] = value
            components.append({"type": 18, "id": 1, "component": told})
        data = {"custom_id": opened.modal["custom_id"], "components": components}
        if files:
            data["resolved"] = {"attachments": files}
        made = interactions.Interaction(
            interactions.MODAL,
            opened.user,
            opened.channel,
            data,
            message=opened.message,
        )
        return await self._answered(made)
