"""What the operator decides about Slack."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from interpreter_bot.groups import tables


class Slack(tables.Group):
    """Slack. It is on when a token (or, for many workspaces, a client id) is set.

    What admins choose in the home tab (people, groups, channels, approval, following threads)
    holds in their workspace instead of what is set here.
    """

    bot_token: pydantic.SecretStr = pydantic.SecretStr("")
    """SLACK_BOT_TOKEN, `xoxb-…`: the bot in one workspace."""
    app_token: pydantic.SecretStr = pydantic.SecretStr("")
    """SLACK_APP_TOKEN, `xapp-…` with `connections:write`: for Socket Mode."""
    signing_secret: pydantic.SecretStr = pydantic.SecretStr("")
    """SLACK_SIGNING_SECRET: proves that an HTTP request comes from Slack."""
    client_id: str = ""
    """SLACK_CLIENT_ID: many workspaces, each installed through OAuth, instead of one token."""
    client_secret: pydantic.SecretStr = pydantic.SecretStr("")
    """SLACK_CLIENT_SECRET, for the same."""
    api_base_url: str = "https://slack.com/api/"
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
    """How much of the model's code an answer shows."""
    follows_threads: bool = True
    """Answer without a mention in threads where one person alone talks with the bot."""
    approval: Literal["never", "plan", "every"] = "never"
    """Whether a person is asked before the model's code runs; `sessions.approval` and
    channels can ask for more, never for less."""
    edit_seconds: Annotated[float, pydantic.Field(ge=0)] = 300.0
    """A message edited within this time is answered anew; 0 turns that off."""

    posting_seconds: tables.Seconds = 1.0
    """Between two messages in one channel, on the average; Slack allows about one a second."""
    streaming_seconds: tables.Seconds = 1.0
    """Between two pieces of one streamed answer."""
    editing_seconds: tables.Seconds = 3.0
    """Between two edits of one answer, where it cannot be streamed."""
    stream_seconds: tables.Seconds = 240.0
    """After this time a streamed answer goes on in another message; Slack ends them at 300."""
    stream_characters: Annotated[int, pydantic.Field(ge=1000, le=11_000)] = 9_000
    """Likewise after so much text; Slack refuses what is above 12,000."""
    sharing_seconds: tables.Seconds = 12.0
    """How long Slack may take to show a file; then it is sent again."""
    ping_seconds: tables.Seconds = 5.0
    """How soon a dead connection is noticed and replaced."""
    drain_seconds: Annotated[float, pydantic.Field(ge=0)] = 10.0
    """How long answers under way may take to finish when the bot is stopped."""

    @property
    def is_on(self) -> bool:
        """Say whether anything is set that lets the bot log in."""
        return bool(self.bot_token.get_secret_value() or self.client_id)
