"""Settings of MCP servers, whose tools code in a kernel can call through the bot."""

from __future__ import annotations

import keyword
import pathlib
import urllib.parse
from typing import Annotated, Literal, Self, TypeAlias

import pydantic

from interpreter_bot.setting_groups import fields

ToolApproval: TypeAlias = Literal["never", "auto", "ask", "off"]


def _address(url: str) -> str:
    """Check an address.

    Raises:
        ValueError: it is none, or has a secret in it.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it must begin with https:// or http://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("secrets belong into headers, token_file or oauth")
    return url


Address = Annotated[str, pydantic.AfterValidator(_address)]


class OAuthLogin(fields.Group):
    """Logins at an MCP server by OAuth: of the bot itself, by client credentials, or of people."""

    issuer: Address
    """Who gives the tokens; the secret is sent to no other origin."""
    client_id: str = ""
    """As whom. Where people log in, none lets the bot register itself there."""
    client_secret: Annotated[str, pydantic.Field(repr=False)] = ""
    """With what, such as `${JIRA_SECRET}`: of the bot's own environment."""
    scope: str = ""
    """What is asked for, separated by spaces; none means what the server says."""


class ToolLogins(fields.Group):
    """Logins of people at MCP servers whose `authorization` is `person`.

    The bot serves the page that they open, and to which the server's login leads back.
    """

    public_url: str = ""
    """Where the browsers of people reach that page, such as `https://bot.example.org`. Without one,
    only people at this machine can log in: of the page and of the terminal."""
    host: str = "127.0.0.1"
    """Where it listens; put a proxy with TLS before it."""
    port: Annotated[int, pydantic.Field(ge=0, le=65535)] = 8767
    """0 takes any that is free."""

    @pydantic.field_validator("public_url")
    @classmethod
    def _is_safe(cls, url: str) -> str:
        if not url:
            return ""
        parts = urllib.parse.urlsplit(_address(url))
        if parts.scheme != "https":
            raise ValueError("it must begin with https://")
        if parts.path.strip("/") or parts.query or parts.fragment:
            raise ValueError("nothing may follow the host and its port")
        # As browsers write it, who say of forms where they are from.
        return f"https://{parts.netloc.lower().removesuffix(':443')}"


class McpServer(fields.Group):
    """An MCP server, whose tools are Python functions: `from tools.NAME import …`."""

    name: Annotated[str, pydantic.Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")]
    """What it is called in Python."""
    url: Address | None = None
    """Its address, such as https://mcp.example.com/mcp; none for a program."""
    command: tuple[str, ...] = ()
    """The program that it is, with its arguments, instead of an address. The bot starts it in a
    sandbox of its own when it is used, and ends it when it is not."""
    readable: tuple[pathlib.Path, ...] = ()
    """Directories that the program may read, beside those of the system: where it is installed."""
    environment: dict[str, str] = pydantic.Field(default_factory=dict, repr=False)
    """What the program is given, such as `{ API_KEY = "${JIRA_TOKEN}" }`: of the bot's own
    environment."""
    network: bool = False
    """Whether the program has the network of this machine."""
    memory_bytes: fields.Positive = fields.GIB
    """What each process of the program may have, and all that it starts together."""
    temporary_bytes: fields.Positive = 64 * fields.MIB
    """What its files may have, which are in memory, and gone when it ends."""
    headers: dict[str, str] = pydantic.Field(default_factory=dict, repr=False)
    """Sent with each request, such as `Authorization = "Bearer ${JIRA_TOKEN}"`: of the bot's own
    environment, which code never sees."""
    token_file: pathlib.Path | None = None
    """File of a token that is sent instead of an `Authorization`."""
    oauth: OAuthLogin | None = None
    """How the bot logs in there; none for a server that takes a token, or nothing."""
    authorization: Literal["bot", "person"] = "bot"
    """Whose account there the tools are called with. `person`: each person's own, who gets a
    private link to log in, by OAuth; see `tool_logins`. Without `oauth.issuer` the server says who
    gives the tokens, which must be at a public address then."""
    places: tuple[str, ...] = ()
    """Where people may use it: `slack`, `slack/T024BE7LD`, `discord/GUILD/CHANNEL`, `web`,
    `console`, …; none named means everywhere."""
    approval: ToolApproval = "ask"
    """Whether a person is asked before each call. `auto`: not where the tool says that it only
    reads, which is for servers that you trust. `off`: it cannot be called."""
    approvals: dict[str, ToolApproval] = pydantic.Field(default_factory=dict)
    """The same for single tools, by their names."""
    call_seconds: fields.Seconds = 60.0
    """How long one call may take."""
    result_bytes: fields.Positive = 2 * fields.MIB
    """What one answer of the server may have."""

    @pydantic.model_validator(mode="after")
    def _is_one_of_two(self) -> Self:
        if (self.url is None) == (not self.command):
            raise ValueError("it takes either a url, or the command of a program")
        if self.command and (self.headers or self.token_file or self.oauth):
            raise ValueError("a program takes no headers, token_file or oauth, but an environment")
        if self.authorization == "person":
            named = {name.lower() for name in self.headers}
            if self.command or self.token_file or "authorization" in named:
                raise ValueError("where people log in, there is a url, and no token of the bot")
        elif self.oauth and not (self.oauth.client_id and self.oauth.client_secret):
            raise ValueError("oauth needs client_id and client_secret where the bot logs in")
        if self.url and (self.readable or self.environment or self.network):
            raise ValueError("readable, environment and network are for programs")
        if not all(path.is_absolute() for path in self.readable):
            raise ValueError("what is readable must be absolute")
        return self

    @pydantic.field_validator("name")
    @classmethod
    def _is_free(cls, name: str) -> str:
        if keyword.iskeyword(name):
            raise ValueError("that is a word of Python's")
        return name

    def is_in(self, *place: str) -> bool:
        """Return whether people may use it in a place: platform, workspace, channel, thread."""
        named = [tuple(one.split("/")) for one in self.places]
        return not named or any(place[: len(one)] == one for one in named)

    def approval_of(self, tool: str, *, is_read_only: bool) -> ToolApproval:
        """Return whether a call of a tool needs a person: never, ask or off."""
        wanted = self.approvals.get(tool, self.approval)
        if wanted == "auto":
            return "never" if is_read_only else "ask"
        return wanted
