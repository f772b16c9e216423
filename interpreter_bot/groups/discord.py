"""What the operator decides about Discord."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from interpreter_bot.groups import tables


class Discord(tables.Group):
    """Discord. It is on when a token is set."""

    token: pydantic.SecretStr = pydantic.SecretStr("")
    """DISCORD_TOKEN: the bot's."""
    guilds: tuple[int, ...] = ()
    """Ids of the only servers where it may be used; empty means all."""
    channels: tuple[int, ...] = ()
    """Ids of the only channels (their threads included); empty means all."""
    roles: tuple[int, ...] = ()
    """Ids of roles that may use it; with `people`, either is enough. Both empty: everybody."""
    people: tuple[int, ...] = ()
    """Ids of people who may use it, in direct messages too."""
    direct_messages: bool = True
    """Whether it answers direct messages: of those who may use it on a server, if `guilds` or
    `channels` are named, of `people`, and of who has one of the `roles`."""
    user_install: bool = False
    """Offer the commands to people who install it for themselves, on servers it is not in."""
    threads: bool = True
    """A mention in a channel opens a thread; otherwise it is answered there, by a reply."""
    follow_threads: bool = True
    """Answer every message in its own threads, mentioned or not; needs the message content."""
    forum_channels: tuple[int, ...] = ()
    """Ids of forums whose every post is for it, mentioned or not; needs the message content."""
    message_content: Literal["auto", "required", "off"] = "auto"
    """The privileged intent: asked for and done without where it is not granted; demanded; not
    asked for. Without it only direct messages, mentions, replies to it and commands are read."""
    sharding: bool = False
    """Connect once per shard, which Discord demands from 2,500 servers on."""
    shards: Annotated[int, pydantic.Field(ge=0)] = 0
    """How many shards; 0 means as many as Discord advises."""
    edit_seconds: Annotated[float, pydantic.Field(ge=0.05)] = 1.5
    """Between two edits of an answer that is being written."""
    rerun_seconds: Annotated[float, pydantic.Field(ge=0)] = 300.0
    """Editing a message so long after it was sent runs it again; 0 means never."""
    look_back_seconds: Annotated[float, pydantic.Field(ge=0, le=86400)] = 600.0
    """At the start, what was written in the last so many seconds is answered too, if nobody has;
    0 means that messages which came while the bot was down are passed over."""
    archive_minutes: Literal[60, 1440, 4320, 10080] = 1440
    """When a quiet thread is put away."""
    context_messages: Annotated[int, pydantic.Field(ge=0, le=100)] = 20
    """Messages before a mention in somebody's thread that the model is told of."""
    file_parts: Annotated[int, pydantic.Field(ge=1, le=10)] = 5
    """A file too large for one upload is sent in so many parts at most."""
    login_seconds: tables.Seconds = 60.0
    """How long logging in and connecting may take at the start."""
    closing_seconds: tables.Seconds = 30.0
    """How long last answers may take to be shown when the bot ends."""

    @property
    def is_open(self) -> bool:
        """Whether anybody at all on Discord may use it, who adds it to a server of their own."""
        return not (self.guilds or self.channels or self.roles or self.people)
