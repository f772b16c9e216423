"""Settings of the platforms: Slack, Discord, the web page, and MCP over HTTP."""

from __future__ import annotations

from typing import Annotated

import pydantic

from interpreter_bot.setting_groups import fields, header_values


class Slack(fields.ServerGroup):
    """Slack. It is on if a token or, for many workspaces, a client id is set.

    What workspace admins choose in the app's home tab (people, groups, channels) replaces these
    settings in their workspace.
    """

    bot_token: header_values.Token = pydantic.SecretStr("")
    """`SLACK_BOT_TOKEN`, `xoxb-…`: the bot in one workspace."""
    app_token: header_values.Token = pydantic.SecretStr("")
    """`SLACK_APP_TOKEN`, `xapp-…` with the scope `connections:write`: for Socket Mode, in which the
    bot opens a connection to Slack."""
    signing_secret: header_values.Token = pydantic.SecretStr("")
    """`SLACK_SIGNING_SECRET`: proves that an HTTP request comes from Slack. Without an app token,
    Slack sends requests to the bot."""
    client_id: str = ""
    """`SLACK_CLIENT_ID`: for many workspaces, each installed by OAuth, instead of one bot token."""
    client_secret: header_values.Token = pydantic.SecretStr("")
    """`SLACK_CLIENT_SECRET`: belongs to `client_id`."""
    api_base_url: header_values.Address = "https://slack.com/api/"
    """`SLACK_API_BASE_URL`: for GovSlack, or a test server."""

    listen: fields.ListenAddress = "127.0.0.1:3000"
    """Address and port for requests from Slack. Put a proxy with TLS in front."""
    public_url: str = ""
    """Where Slack reaches the bot, such as `https://bot.example.org`. For OAuth."""

    allowed_workspaces: tuple[str, ...] = ()
    """Ids (`T…`) of workspaces that may use the bot. Empty means all it is installed in."""
    allowed_channels: tuple[str, ...] = ()
    """Ids (`C…`, `G…`) of channels. Empty means all. Does not affect direct messages."""
    allowed_people: tuple[str, ...] = ()
    """Ids of people (`U…`, `W…`) and of user groups (`S…`), whose members may use the bot. Empty
    means everybody. Admins always may."""
    heard_bots: tuple[str, ...] = ()
    """Ids (`B…`) of other apps, such as alerts, whose messages and files are shown to the model.
    They are never requests."""
    context_messages: Annotated[int, pydantic.Field(ge=0, le=100)] = 20
    """Most messages before a mention, back to the bot's last answer, that are shown to the
    model. Outside of threads those of the last hour."""
    allows_guests: bool = False
    """Let guests of the workspace use the bot."""
    allows_strangers: bool = False
    """Let people of other companies, who share a channel through Slack Connect, use the bot."""
    admins: tuple[str, ...] = ()
    """Ids of people who see and end everybody's sessions, besides the workspace's admins."""

    @property
    def uses_http(self) -> bool:
        """Whether Slack sends requests to the bot, instead of Socket Mode."""
        return bool(
            self.signing_secret.get_secret_value() and not self.app_token.get_secret_value()
        )

    @property
    def is_on(self) -> bool:
        """Whether a setting lets the bot log in."""
        return bool(self.bot_token.get_secret_value() or self.client_id)


class Discord(fields.Group):
    """Discord. It is on if a token is set."""

    token: header_values.Token = pydantic.SecretStr("")
    """`DISCORD_TOKEN`: the bot's token."""
    guilds: tuple[int, ...] = ()
    """Ids of servers where the bot may be used. Empty means all."""
    channels: tuple[int, ...] = ()
    """Ids of channels, including their threads. Empty means all."""
    roles: tuple[int, ...] = ()
    """Ids of roles that may use the bot. Together with `people`, either suffices. Both empty means
    everybody."""
    people: tuple[int, ...] = ()
    """Ids of people who may use the bot, also in direct messages."""
    direct_messages: bool = True
    """Answer direct messages. If `guilds`, `channels`, `roles` or `people` are set, only from
    members of such a server, holders of such a role, or listed people."""
    forum_channels: tuple[int, ...] = ()
    """Ids of forums where every post is answered, mentioned or not. Needs the message content
    intent."""
    sharding: bool = False
    """Open several connections, one per shard. Discord demands it from 2,500 servers on."""
    context_messages: Annotated[int, pydantic.Field(ge=0, le=100)] = 20
    """Most messages before a mention, back to the bot's last answer, that are shown to the
    model.
    """
    heard_bots: tuple[int, ...] = ()
    """Ids of other bots and webhooks whose messages are shown to the model."""

    @property
    def is_open(self) -> bool:
        """Whether anybody at all on Discord may use it, who adds it to a server of their own."""
        return not (self.guilds or self.channels or self.roles or self.people)


class Web(fields.ServerGroup):
    """The web page."""

    listen: fields.OptionalListenAddress = "127.0.0.1:8765"
    """Address and port; port 0 takes any free one. Empty means no page. Anything but loopback
    exposes the page to the network: put a proxy with TLS in front."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names other than loopback's under which browsers may open the page, such as
    `bot.example.org` or `bot.example.org:8443`. Without a port, any port."""
    public_url: Annotated[str, pydantic.Field(pattern=r"^(https?://[^/?#@\s]+/?)?$")] = ""
    """Where people reach the page, such as `https://bot.example.org`. Lets people on Slack and
    Discord open a conversation there. Empty means that nobody can."""
    page_scripts: bool = True
    """Run the scripts of pages that code made, such as plotly charts, in a sandbox without
    network. In browsers that do not support `Connection-Allowlist`, such scripts can still send
    data over WebRTC; `false` rules that out.
    """


class Mcp(fields.ServerGroup):
    """The Model Context Protocol over HTTP: other agents run code in the sandbox.

    `interpreter-bot mcp add NAME` creates a token for a client.
    """

    listen: fields.OptionalListenAddress = ""
    """Address and port, such as `127.0.0.1:8766`. Empty means that nothing is served. Tokens are
    sent in the clear: put a proxy with TLS in front of anything but loopback."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names other than loopback's under which clients may reach it, such as
    `bot.example.org`.
    """
