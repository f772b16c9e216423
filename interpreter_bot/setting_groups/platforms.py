"""Settings of the platforms: Slack, Discord, the web page, and MCP over HTTP."""

from __future__ import annotations

import pathlib
from typing import Annotated, Literal

import pydantic

from interpreter_bot.setting_groups import fields, header_values


class Slack(fields.Group):
    """Slack. It is on when a token (or, for many workspaces, a client id) is set.

    What admins choose in the home tab (people, groups, channels, approval, following threads)
    holds in their workspace instead of what is set here.
    """

    bot_token: header_values.Token = pydantic.SecretStr("")
    """SLACK_BOT_TOKEN, `xoxb-…`: the bot in one workspace."""
    app_token: header_values.Token = pydantic.SecretStr("")
    """SLACK_APP_TOKEN, `xapp-…` with `connections:write`: for Socket Mode."""
    signing_secret: header_values.Token = pydantic.SecretStr("")
    """SLACK_SIGNING_SECRET: proves that an HTTP request comes from Slack."""
    client_id: str = ""
    """SLACK_CLIENT_ID: many workspaces, each installed through OAuth, instead of one token."""
    client_secret: header_values.Token = pydantic.SecretStr("")
    """SLACK_CLIENT_SECRET, for the same."""
    api_base_url: header_values.Address = "https://slack.com/api/"
    """SLACK_API_BASE_URL: GovSlack, or a server for tests."""
    file_hosts: tuple[str, ...] = ("slack.com", "slack-edge.com", "slack-files.com")
    """Domains that may be sent the bot's token to fetch a file, besides the host of the API."""

    transport: Literal["socket", "http"] = "socket"
    """How events come: over a connection the bot opens, or over requests Slack makes."""
    host: str = "127.0.0.1"
    """Where HTTP listens; put a proxy with TLS before it."""
    port: Annotated[int, pydantic.Field(ge=0, le=65535)] = 3000
    """Port of HTTP; 0 takes a free one."""
    public_url: str = ""
    """Where Slack reaches that, such as `https://bot.example.org`; for OAuth."""

    allowed_workspaces: tuple[str, ...] = ()
    """Ids (`T…`) whose people may use the bot; none means all it is installed in."""
    allowed_channels: tuple[str, ...] = ()
    """Ids (`C…`, `G…`); none means all. Direct messages are not concerned."""
    allowed_groups: tuple[str, ...] = ()
    """User groups (`S…`) whose members may; with `allowed_people`, either suffices."""
    allowed_people: tuple[str, ...] = ()
    """Ids (`U…`, `W…`); no group and no person means everybody. Admins always may."""
    heard_bots: tuple[str, ...] = ()
    """Ids (`B…`) of other apps, such as alerts, whose messages and files in a thread or channel are
    shown to the model. Nothing that they write is a request."""
    allows_guests: bool = False
    """Let guests of the workspace in."""
    allows_strangers: bool = False
    """Let people of other companies in, who share a channel through Slack Connect."""
    admins: tuple[str, ...] = ()
    """Who sees and ends everybody's sessions, besides the workspace's own admins."""

    agent_view: bool = True
    """The app has Slack's agent view: sessions with a status, a native Stop, and text that is
    streamed in direct messages."""
    code: Literal["hidden", "short", "full"] = "short"
    """How much of the model's code an answer shows in the end: none; a button that shows it, and
    what it printed; or all of it, with what it printed, below the last words."""
    follows_threads: bool = True
    """Answer without a mention in the bot's threads while only one person writes there."""
    approval: Literal["never", "plan", "every"] = "never"
    """Whether a person is asked before the model's code runs; `sessions.approval` and
    channels can ask for more, never for less."""
    edit_seconds: Annotated[float, pydantic.Field(ge=0)] = 300.0
    """A message edited within this time is answered anew; 0 turns that off."""
    look_back_seconds: Annotated[float, pydantic.Field(ge=0, le=80_000)] = 3600.0
    """At the start, answer messages missed in the last so many seconds, in channels and threads
    used in the last day; 0 turns that off."""

    posting_seconds: fields.Seconds = 1.0
    """Between two messages in one channel, on the average; Slack allows about one a second."""
    streaming_seconds: fields.Seconds = 1.0
    """Between two pieces of one streamed answer."""
    editing_seconds: fields.Seconds = 3.0
    """Between two edits of one answer, where it cannot be streamed."""
    stream_seconds: fields.Seconds = 240.0
    """After this time a streamed answer goes on in another message; Slack ends them at 300."""
    stream_characters: Annotated[int, pydantic.Field(ge=1000, le=11_000)] = 9_000
    """Likewise after so much text; Slack refuses what is above 12,000."""
    sharing_seconds: fields.Seconds = 12.0
    """How long Slack may take to show a file; then it is sent again."""
    ping_seconds: fields.Seconds = 5.0
    """How soon a dead connection is noticed and replaced."""
    drain_seconds: Annotated[float, pydantic.Field(ge=0)] = 10.0
    """How long answers under way may take to finish when the bot is stopped."""

    @property
    def is_on(self) -> bool:
        """Whether a setting lets the bot log in."""
        return bool(self.bot_token.get_secret_value() or self.client_id)


class Discord(fields.Group):
    """Discord. It is on when a token is set."""

    token: header_values.Token = pydantic.SecretStr("")
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
    """Answer without a mention in its own threads while only one person writes there; needs the
    message content."""
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
    """At the start, what was written in the last so many seconds is answered too, if it was not;
    0 means that messages which came while the bot was down are passed over."""
    archive_minutes: Literal[60, 1440, 4320, 10080] = 1440
    """When a quiet thread is put away."""
    context_messages: Annotated[int, pydantic.Field(ge=0, le=100)] = 20
    """How many messages before a mention the model is shown, of those since its last answer."""
    bots: tuple[int, ...] = ()
    """Ids of other bots and of webhooks whose messages are shown to the model, too."""
    file_parts: Annotated[int, pydantic.Field(ge=1, le=10)] = 5
    """A file too large for one upload is sent in so many parts at most."""
    login_seconds: fields.Seconds = 60.0
    """How long logging in and connecting may take at the start."""
    closing_seconds: fields.Seconds = 30.0
    """How long last answers may take to be shown when the bot ends."""

    @property
    def is_open(self) -> bool:
        """Whether anybody at all on Discord may use it, who adds it to a server of their own."""
        return not (self.guilds or self.channels or self.roles or self.people)


class Web(fields.Group):
    """The web page: where it is served, and for whom."""

    enabled: bool = True
    """Serve it."""
    host: str = "127.0.0.1"
    """The address to listen on. Anything but loopback shows the page to the network: put a proxy
    that speaks TLS before it."""
    port: Annotated[int, pydantic.Field(ge=0, le=65535)] = 8765
    """0 takes any that is free."""
    allowed_hosts: tuple[str, ...] = ()
    """Names other than those of loopback under which browsers may ask for the page, such as
    "bot.example.org" or "bot.example.org:8443". Without a port, any port."""
    public_url: Annotated[str, pydantic.Field(pattern=r"^(https?://[^/?#@\s]+/?)?$")] = ""
    """Where people find the page, such as `https://bot.example.org`: lets those of Slack and
    Discord open a conversation there to read it. Without it nobody can."""
    approval: Literal["never", "plan", "every"] = "never"
    """Whether the page asks the person before the model's code runs; people can choose a stricter
    one there."""
    page_scripts: bool = True
    """Let pages that code made, such as plotly's charts, run their scripts, in a sandbox without a
    network. Without them browsers that lack `Connection-Allowlist` have no hole (WebRTC) either."""
    token_file: pathlib.Path | None = None
    """Holds the token, made where there is none. Default: in the data directory."""


class Mcp(fields.Group):
    """The Model Context Protocol over HTTP: other agents run code in the sandbox, by their tokens.

    `interpreter-bot mcp add NAME` makes a token.
    """

    enabled: bool = False
    """Serve it."""
    host: str = "127.0.0.1"
    """The address to listen on. Tokens are sent in the clear: put a proxy that speaks TLS before
    anything but loopback."""
    port: Annotated[int, pydantic.Field(ge=0, le=65535)] = 8766
    """0 takes any that is free."""
    allowed_hosts: tuple[str, ...] = ()
    """Names other than those of loopback under which clients may ask for it."""
