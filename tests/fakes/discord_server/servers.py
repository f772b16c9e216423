"""A Discord on the loopback: strict, complete enough for a bot, with people in it.

    async with servers.Server() as discord:
        guild = discord.guild("Lab"); alice = guild.person("alice")
        channel = guild.channel("general")
        await discord.say(alice, channel, f"{discord.bot.mention} hello")

The real client runs against it. A request that Discord would refuse is refused, which is a fault
unless the test has called `expect(code)`. Faults raise at the end of the `async with`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import discord
import yarl
from aiohttp import web

from tests import waiting
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
        self._real_addresses: tuple[str, yarl.URL] | None = None

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
        self._real_addresses = (
            discord.http.Route.BASE,
            discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY,
        )
        discord.http.Route.BASE = self.origin + "/api/v10"
        discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(self.gateway.url)
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        assert self._runner
        assert self._real_addresses
        await self.gateway.close()
        await self._runner.cleanup()
        discord.http.Route.BASE, discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = (
            self._real_addresses
        )
        if kind is None:
            assert self.faults == [], self.faults

    @property
    def faults(self) -> list[str]:
        """Mistakes of the client."""
        refused = [r for r in self.rest.refusals if int(r.split()[0]) not in self._expected]
        notifications = [
            f"{ping!r} was notified by {message.content!r}"
            for channel in self.channels.values()
            for message in channel.messages.values()
            if message.author is self.bot
            for ping in message.pings & {"everyone", "role"}
        ]
        late = [] if self._expected & {10062, 40060} else self.register.faults
        invalid = self.rest.invalid_count
        ban = [f"{invalid} invalid requests"] if invalid > rules.MAX_INVALID_REQUESTS else []
        return refused + self.rest.faults + late + self.gateway.faults + notifications + ban

    def expect(self, *codes: int) -> None:
        """Accept refusals with these codes, which the test causes on purpose."""
        self._expected.update(codes)

    def plan(self, method: str, path: str, **others: Any) -> rules.Fault:
        """Plan a fault of coming requests."""
        fault = rules.Fault(method, path, **others)
        self.rest.planned_faults.append(fault)
        return fault

    # The state.

    def guild(self, name: str = "Lab", **others: Any) -> worlds.Guild:
        """Make a guild with the bot in it, before the bot connects."""
        guild = worlds.Guild(name, worlds.User("owner"), **others)
        guild.members[self.bot] = set()
        self.guilds.append(guild)
        return guild

    @property
    def channels(self) -> dict[int, worlds.Channel]:
        """All channels by id."""
        channels = [c for guild in self.guilds for c in guild.channels] + self.directs
        return {channel.id: channel for channel in channels}

    @property
    def users(self) -> dict[int, worlds.User]:
        """All people by id."""
        users = [self.owner, *(user for guild in self.guilds for user in guild.members)]
        users += [user for channel in self.directs for user in channel.recipients]
        return {user.id: user for user in users}

    def direct(self, user: worlds.User, other: worlds.User | None = None) -> worlds.Channel:
        """Return a person's direct conversation with the bot, or with `other`."""
        partner = other or self.bot
        for channel in self.directs:
            if {*channel.recipients} == {user, partner}:
                return channel
        channel = worlds.Channel(worlds.DM, recipients=[user, partner])
        self.directs.append(channel)
        return channel

    def attachment(
        self, name: str, data: bytes, description: str | None = None, **others: Any
    ) -> worlds.Attachment:
        """Put a file on the CDN."""
        attachment = worlds.Attachment(name, data, description=description, **others)
        attachment.url = f"{self.origin}/cdn/{attachment.id}/{name}"
        self._attachments[attachment.id] = attachment
        return attachment

    def thread(self, starter: worlds.Message, name: str, owner: worlds.User) -> worlds.Channel:
        """Open a thread on a message, whose id it has."""
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
        self.gateway.push(
            "THREAD_CREATE", thread.payload() | {"newly_created": True}, guild=parent.guild
        )
        self.gateway.push_message("MESSAGE_UPDATE", starter)
        self.post(worlds.Message(thread, owner, type=worlds.THREAD_STARTER, reference=starter))
        return thread

    def private_thread(
        self, parent: worlds.Channel, name: str, *invited: worlds.User
    ) -> worlds.Channel:
        """Open a private thread; the first of the invited owns it, and the bot is in it."""
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
        """Add a message to its channel, and announce it."""
        message.channel.messages[message.id] = message
        if message.seen_by is None:
            self.gateway.push_message("MESSAGE_CREATE", message)
        return message

    def delete(self, message: worlds.Message) -> None:
        """Delete a message."""
        channel = message.channel
        del channel.messages[message.id]
        payload = {"id": str(message.id), "channel_id": str(channel.id)}
        if channel.guild is not None:
            payload["guild_id"] = str(channel.guild.id)
        if message.seen_by is None:
            self.gateway.push("MESSAGE_DELETE", payload, guild=channel.guild)

    def delete_all(self, *messages: worlds.Message) -> None:
        """Delete messages of one channel at once, as moderators can."""
        channel = messages[0].channel
        for message in messages:
            del channel.messages[message.id]
        payload = {"ids": [str(m.id) for m in messages], "channel_id": str(channel.id)}
        if channel.guild is not None:
            payload["guild_id"] = str(channel.guild.id)
        self.gateway.push("MESSAGE_DELETE_BULK", payload, guild=channel.guild)

    async def _cdn(self, request: web.Request) -> web.StreamResponse:
        attachment = self._attachments.get(int(request.match_info["number"]))
        has_expired = time.time() > int(request.query.get("ex", "0"), 16)
        if attachment is None or attachment.serve == "gone" or has_expired:
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
        """Let a person edit their message."""
        message.content = content
        message.edited = worlds.format_time()
        self.gateway.push_message("MESSAGE_UPDATE", message)

    def unfurl(self, message: worlds.Message) -> None:
        """Let Discord add a link preview, which is an update without an edit."""
        self.gateway.push_message("MESSAGE_UPDATE", message)

    def _interact(self, interaction: interactions.Interaction) -> interactions.Interaction:
        self.register.add(interaction)
        self.gateway.push(
            "INTERACTION_CREATE",
            interaction.payload(self.bot),
            guild=interaction.channel.guild if not interaction.is_user_install else None,
        )
        return interaction

    async def _interact_and_wait(
        self, interaction: interactions.Interaction
    ) -> interactions.Interaction:
        self._interact(interaction)
        await waiting.until(
            lambda: interaction.answer, seconds=30, subject=f"answer to {interaction.data}"
        )
        return interaction

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
        leaf = command
        for part in rest:
            leaf = next(o for o in leaf["options"] if o["name"] == part)
        files = {}
        option_entries = []
        for key, value in (options or {}).items():
            option = next(o for o in leaf.get("options", []) if o["name"] == key)
            if isinstance(value, worlds.Attachment):
                files[str(value.id)] = value.payload
                value = str(value.id)
            entry = {"name": key, "type": option["type"], "value": value}
            option_entries.append(entry | ({"focused": True} if key == focused else {}))
        required = [o["name"] for o in leaf.get("options", []) if o.get("required")]
        assert set(required) <= set(options or {}), "Discord would not let it be sent"
        for part in reversed(rest):
            option_entries = [{"name": part, "type": 1, "options": option_entries}]
        data: dict[str, Any] = {
            "id": command["id"],
            "name": first,
            "type": 1,
            "options": option_entries,
        }
        if files:
            data["resolved"] = {"attachments": files}
        kind = interactions.AUTOCOMPLETE if focused else interactions.COMMAND
        guild = channel.guild
        if guild is not None:
            permission = worlds.PERMISSIONS["use_application_commands"]
            assert guild.permissions(user, channel) & permission, "Discord would not offer it"
        interaction = interactions.Interaction(
            kind, user, channel, data, is_user_install=is_user_install, user_limit=user_limit
        )
        return await self._interact_and_wait(interaction)

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
        interaction = interactions.Interaction(interactions.COMMAND, user, message.channel, data)
        return await self._interact_and_wait(interaction)

    async def click(
        self, user: worlds.User, message: worlds.Message, label: str, **others: Any
    ) -> interactions.Interaction:
        """Press a button."""
        data = {"custom_id": message.buttons[label], "component_type": 2}
        interaction = interactions.Interaction(
            interactions.COMPONENT, user, message.channel, data, message=message, **others
        )
        return await self._interact_and_wait(interaction)

    async def submit(
        self, opener: interactions.Interaction, values: dict[str, Any]
    ) -> interactions.Interaction:
        """Submit a modal.

        Values by custom id are texts, or lists of attachments or choices; components without a
        value keep their default.
        """
        assert opener.modal
        components = []
        files = {}
        for item in opener.modal["components"]:
            if item["type"] != 18:
                continue
            inner = item["component"]
            component = {"type": inner["type"], "custom_id": inner["custom_id"], "id": 1}
            value = values.get(inner["custom_id"], inner.get("value") or "")
            if inner["type"] == 3:
                defaults = [option["value"] for option in inner["options"] if option.get("default")]
                component["values"] = values.get(inner["custom_id"], defaults)
            elif inner["type"] == 19:
                files |= {str(file.id): file.payload for file in value or ()}
                component["values"] = [str(file.id) for file in value or ()]
            else:
                assert len(value) <= (inner.get("max_length") or 4000)
                assert value or not inner.get("required", True)
                component["value"] = value
            components.append({"type": 18, "id": 1, "component": component})
        data = {"custom_id": opener.modal["custom_id"], "components": components}
        if files:
            data["resolved"] = {"attachments": files}
        interaction = interactions.Interaction(
            interactions.MODAL,
            opener.user,
            opener.channel,
            data,
            message=opener.message,
        )
        return await self._interact_and_wait(interaction)
