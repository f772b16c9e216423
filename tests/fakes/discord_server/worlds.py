"""The state of the loopback Discord: people, guilds, channels and messages, with their payloads."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import time
from typing import Any

EPOCH_MS = 1_420_070_400_000
TEXT, DM, VOICE, ANNOUNCEMENT, ANNOUNCEMENT_THREAD, PUBLIC_THREAD, FORUM = 0, 1, 2, 5, 10, 11, 15
PRIVATE_THREAD = 12
_WRITTEN_TYPES = frozenset({0, 19, 20, 23})
"""Types of messages that a person or bot wrote; all others are Discord's own."""
THREAD_STARTER = 21
HAS_THREAD = 1 << 5
MIB = 1024 * 1024
CDN_SECONDS = 24 * 60 * 60

PERMISSIONS = {
    "manage_channels": 1 << 4,
    "administrator": 1 << 3,
    "manage_guild": 1 << 5,
    "view_channel": 1 << 10,
    "send_messages": 1 << 11,
    "manage_messages": 1 << 13,
    "embed_links": 1 << 14,
    "attach_files": 1 << 15,
    "read_message_history": 1 << 16,
    "use_application_commands": 1 << 31,
    "manage_threads": 1 << 34,
    "create_public_threads": 1 << 35,
    "send_messages_in_threads": 1 << 38,
}
_TIMEOUT_PERMISSIONS = PERMISSIONS["view_channel"] | PERMISSIONS["read_message_history"]
DEFAULT_PERMISSIONS = sum(
    bit for name, bit in PERMISSIONS.items() if not name.startswith(("manage", "administrator"))
)
ALL_PERMISSIONS = sum(PERMISSIONS.values())

_counter = itertools.count()


def permission_bits(names: set[str]) -> int:
    """Return permissions as a bit field."""
    return sum(PERMISSIONS[name] for name in names)


def snowflake() -> int:
    """Return a new id of the current time."""
    return ((int(time.time() * 1000) - EPOCH_MS) << 22) | (next(_counter) & 0x3FFFFF)


def format_time(seconds: float | None = None) -> str:
    """Return a time, by default the current one, as Discord writes it."""
    timestamp = time.time() if seconds is None else seconds
    return datetime.datetime.fromtimestamp(timestamp, tz=datetime.UTC).isoformat()


@dataclasses.dataclass(eq=False)
class User:
    """A person, or a bot."""

    name: str
    is_bot: bool = False
    id: int = dataclasses.field(default_factory=snowflake)

    @property
    def payload(self) -> dict[str, Any]:
        return {
            "id": str(self.id),
            "username": self.name,
            "global_name": self.name.title(),
            "discriminator": "0",
            "avatar": None,
            "bot": self.is_bot,
            "public_flags": 0,
        }

    @property
    def mention(self) -> str:
        return f"<@{self.id}>"


@dataclasses.dataclass(eq=False)
class Role:
    """A role of a guild; Discord makes one for each bot."""

    name: str
    permissions: int = 0
    id: int = dataclasses.field(default_factory=snowflake)
    bot: User | None = None

    @property
    def payload(self) -> dict[str, Any]:
        return {
            "id": str(self.id),
            "name": self.name,
            "permissions": str(self.permissions),
            "position": 0,
            "color": 0,
            "colors": {"primary_color": 0, "secondary_color": None, "tertiary_color": None},
            "hoist": False,
            "managed": False,
            "mentionable": False,
            "flags": 0,
        } | ({"managed": True, "tags": {"bot_id": str(self.bot.id)}} if self.bot else {})

    @property
    def mention(self) -> str:
        return f"<@&{self.id}>"


@dataclasses.dataclass(eq=False)
class Attachment:
    """A file of a message.

    Attributes:
        size: a false size in the payload, or None.
        serve: the CDN's behavior: "" for the file, "gone" for 404, "endless" for too much data.
    """

    filename: str
    data: bytes
    size: int | None = None
    description: str | None = None
    serve: str = ""
    url: str = ""
    id: int = dataclasses.field(default_factory=snowflake)

    @property
    def payload(self) -> dict[str, Any]:
        # An address is valid for a day after it was sent.
        url = f"{self.url}?ex={int(time.time()) + CDN_SECONDS:x}"
        return {
            "id": str(self.id),
            "filename": self.filename,
            "size": len(self.data) if self.size is None else self.size,
            "url": url,
            "proxy_url": url,
            "content_type": "application/octet-stream",
            "description": self.description,
        }


@dataclasses.dataclass(eq=False)
class Message:
    """A message, with all its earlier texts.

    Attributes:
        forms: (time, content) of each version, oldest first.
        pings: whom it notified: user ids, "everyone", "role".
        seen_by: the only person who sees an ephemeral message.
        extra_fields: more fields of its payload, which no library expects.
        nonce: the id by which its author recognises it.
    """

    channel: Channel
    author: User
    content: str = ""
    attachments: list[Attachment] = dataclasses.field(default_factory=list)
    components: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    reference: Message | None = None
    flags: int = 0
    type: int = 0
    nonce: str | None = None
    edited: str | None = None
    forms: list[tuple[float, str]] = dataclasses.field(default_factory=list)
    pings: set[Any] = dataclasses.field(default_factory=set)
    seen_by: User | None = None
    extra_fields: dict[str, Any] = dataclasses.field(default_factory=dict)
    created: float = dataclasses.field(default_factory=time.monotonic)
    is_loading: bool = False
    snapshots: list[Message] = dataclasses.field(default_factory=list)
    thread: Channel | None = None
    webhook_id: int | None = None
    id: int = dataclasses.field(default_factory=snowflake)

    @property
    def files(self) -> dict[str, bytes]:
        """Its files: bytes by name."""
        return {attachment.filename: attachment.data for attachment in self.attachments}

    @property
    def buttons(self) -> dict[str, str]:
        """Its buttons: custom ids by label."""
        custom_ids = {}
        for row in self.components:
            for item in row.get("components", []):
                if item["type"] == 2:
                    custom_ids[item["label"]] = item["custom_id"]
        return custom_ids

    @property
    def mentioned(self) -> list[User]:
        """The people that it mentions."""
        users = [user for user in self.channel.people if user.mention in self.content]
        original = self.reference
        if original is not None and original.author not in users:
            users.append(original.author)
        return users

    @property
    def mentioned_roles(self) -> list[Role]:
        """The roles that it mentions."""
        roles = self.channel.guild.roles if self.channel.guild is not None else []
        return [role for role in roles if role.mention in self.content]

    def payload(self, *, is_blank: bool = False) -> dict[str, Any]:
        """Return the payload; without the message-content intent it may be blank."""
        guild = self.channel.guild
        payload: dict[str, Any] = {
            "id": str(self.id),
            "channel_id": str(self.channel.id),
            "author": self.author.payload,
            "content": "" if is_blank else self.content,
            "timestamp": format_time(((self.id >> 22) + EPOCH_MS) / 1000),
            "edited_timestamp": self.edited,
            "tts": False,
            "mention_everyone": "@everyone" in self.content and not self.author.is_bot,
            "mentions": [user.payload for user in self.mentioned],
            "mention_roles": [str(role.id) for role in self.mentioned_roles],
            "attachments": [] if is_blank else [file.payload for file in self.attachments],
            "embeds": [],
            "pinned": False,
            "type": self.type,
            "flags": self.flags,
            "components": [] if is_blank else self.components,
        }
        payload |= self.extra_fields
        if self.webhook_id is not None:
            payload["webhook_id"] = str(self.webhook_id)
        if self.nonce is not None:
            payload["nonce"] = self.nonce
        if guild is not None:
            payload["guild_id"] = str(guild.id)
            if self.author in guild.members:
                member = guild.member_payload(self.author)
                del member["user"]
                payload["member"] = member
        if self.reference is not None:
            payload["type"] = self.type or 19
            payload["message_reference"] = {
                "message_id": str(self.reference.id),
                "channel_id": str(self.reference.channel.id),
            }
            payload["referenced_message"] = self.reference.payload()
        if self.snapshots:
            payload["message_reference"] = {
                "type": 1,
                "message_id": str(self.snapshots[0].id),
                "channel_id": str(self.snapshots[0].channel.id),
            }
            payload["message_snapshots"] = [
                {"message": snapshot.payload()} for snapshot in self.snapshots
            ]
        return payload


@dataclasses.dataclass(eq=False)
class Channel:
    """A channel, a thread or a direct conversation.

    Attributes:
        denied: permissions that only the owner of the guild has in this channel.
        overwrites: permissions that roles have in this channel, and lack, by the roles' ids.
        is_closed: whether the person of a direct conversation accepts no messages of bots.
        invited: the members of a private thread.
    """

    type: int
    name: str = ""
    guild: Guild | None = None
    parent: Channel | None = None
    owner: User | None = None
    recipients: list[User] = dataclasses.field(default_factory=list)
    denied: set[str] = dataclasses.field(default_factory=set)
    overwrites: dict[int, tuple[set[str], set[str]]] = dataclasses.field(default_factory=dict)
    messages: dict[int, Message] = dataclasses.field(default_factory=dict)
    is_archived: bool = False
    is_locked: bool = False
    is_closed: bool = False
    is_deleted: bool = False
    invited: set[User] = dataclasses.field(default_factory=set)
    id: int = dataclasses.field(default_factory=snowflake)

    @property
    def is_thread(self) -> bool:
        return self.type in (PUBLIC_THREAD, PRIVATE_THREAD, ANNOUNCEMENT_THREAD)

    @property
    def people(self) -> list[User]:
        return list(self.guild.members) if self.guild else self.recipients

    @property
    def all_denied(self) -> set[str]:
        return self.denied | (self.parent.denied if self.parent else set())

    @property
    def bot_messages(self) -> list[Message]:
        """Messages of bots that everybody sees, oldest first."""
        messages = (self.messages[number] for number in sorted(self.messages))
        return [
            message
            for message in messages
            if message.author.is_bot and not message.seen_by and message.type in _WRITTEN_TYPES
        ]

    def payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = {"id": str(self.id), "type": self.type, "flags": 0}
        last = max(self.messages, default=None)
        payload["last_message_id"] = None if last is None else str(last)
        if self.type == DM:
            payload["recipients"] = [user.payload for user in self.recipients if not user.is_bot]
            return payload
        assert self.guild
        payload |= {"name": self.name, "guild_id": str(self.guild.id), "rate_limit_per_user": 0}
        if self.is_thread:
            assert self.parent
            assert self.owner
            return payload | {
                "parent_id": str(self.parent.id),
                "owner_id": str(self.owner.id),
                "message_count": len(self.messages),
                "member_count": 1,
                "thread_metadata": {
                    "archived": self.is_archived,
                    "locked": self.is_locked,
                    "auto_archive_duration": 1440,
                    "archive_timestamp": format_time(),
                    "create_timestamp": format_time(),
                },
            }
        deny = sum(PERMISSIONS[name] for name in self.denied)
        if self.type == VOICE:
            payload |= {"bitrate": 64000, "user_limit": 0, "rtc_region": None}
        return payload | {
            "position": 0,
            "nsfw": False,
            "parent_id": None,
            "topic": None,
            "available_tags": [],
            "permission_overwrites": [
                {"id": str(self.guild.id), "type": 0, "allow": "0", "deny": str(deny)},
                *(
                    {
                        "id": str(role),
                        "type": 0,
                        "allow": str(permission_bits(may)),
                        "deny": str(permission_bits(may_not)),
                    }
                    for role, (may, may_not) in self.overwrites.items()
                ),
            ],
        }


@dataclasses.dataclass(eq=False)
class Guild:
    """A server. `tier` decides how large files may be.

    Attributes:
        timed_out_members: members in a timeout.
        late_seconds: how long after the start of a session the guild becomes available.
    """

    name: str
    owner: User
    tier: int = 0
    members: dict[User, set[Role]] = dataclasses.field(default_factory=dict)
    channels: list[Channel] = dataclasses.field(default_factory=list)
    roles: list[Role] = dataclasses.field(default_factory=list)
    has_bot: bool = True
    timed_out_members: set[User] = dataclasses.field(default_factory=set)
    late_seconds: float = 0.0
    id: int = dataclasses.field(default_factory=snowflake)

    def __post_init__(self) -> None:
        self.everyone = Role("@everyone", DEFAULT_PERMISSIONS, self.id)
        self.roles.append(self.everyone)
        self.members[self.owner] = set()

    def person(self, name: str, *roles: Role) -> User:
        """Add a member."""
        user = User(name)
        self.members[user] = set(roles)
        return user

    def role(self, name: str, *permissions: str) -> Role:
        """Add a role."""
        role = Role(name, sum(PERMISSIONS[permission] for permission in permissions))
        self.roles.append(role)
        return role

    def channel(self, name: str, kind: int = TEXT, *, denied: set[str] | None = None) -> Channel:
        """Add a channel."""
        channel = Channel(kind, name, guild=self, denied=denied or set())
        self.channels.append(channel)
        return channel

    @property
    def file_limit(self) -> int:
        return {2: 50 * MIB, 3: 100 * MIB}.get(self.tier, 10 * MIB)

    def permissions(self, user: User, channel: Channel) -> int:
        """Return a person's permissions in a channel, as a bit field."""
        if user is self.owner:
            return ALL_PERMISSIONS
        permissions = self.everyone.permissions
        for role in self.members.get(user, ()):
            permissions |= role.permissions
        for name in channel.all_denied:
            permissions &= ~PERMISSIONS[name]
        place = channel.parent or channel
        overwrites = [
            place.overwrites[r.id] for r in self.members.get(user, ()) if r.id in place.overwrites
        ]
        permissions &= ~permission_bits({name for _, denied in overwrites for name in denied})
        permissions |= permission_bits({name for allowed, _ in overwrites for name in allowed})
        return permissions & _TIMEOUT_PERMISSIONS if user in self.timed_out_members else permissions

    def member_payload(self, user: User) -> dict[str, Any]:
        return {
            "user": user.payload,
            "roles": [str(role.id) for role in self.members[user]],
            "joined_at": format_time(),
            "deaf": False,
            "mute": False,
            "flags": 0,
            "nick": None,
        }

    def payload(self, bot: User) -> dict[str, Any]:
        """Return the payload of GUILD_CREATE for a bot that may not list members."""
        threads = [channel for channel in self.channels if channel.is_thread]
        return {
            "id": str(self.id),
            "name": self.name,
            "icon": None,
            "owner_id": str(self.owner.id),
            "roles": [role.payload for role in self.roles],
            "emojis": [],
            "stickers": [],
            "features": [],
            "channels": [c.payload() for c in self.channels if not c.is_thread],
            "threads": [c.payload() for c in threads if not c.is_archived],
            "members": [self.member_payload(bot)],
            "member_count": len(self.members),
            "voice_states": [],
            "presences": [],
            "stage_instances": [],
            "guild_scheduled_events": [],
            "soundboard_sounds": [],
            "large": False,
            "unavailable": False,
            "premium_tier": self.tier,
            "preferred_locale": "en-US",
            "afk_timeout": 300,
            "verification_level": 0,
            "default_message_notifications": 0,
            "explicit_content_filter": 0,
            "mfa_level": 0,
            "nsfw_level": 0,
            "system_channel_flags": 0,
            "premium_progress_bar_enabled": False,
        }
