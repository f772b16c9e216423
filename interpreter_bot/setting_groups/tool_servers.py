"""Settings of MCP servers, whose tools code in a kernel can call through the bot."""

from __future__ import annotations

import keyword
import pathlib
import urllib.parse
from typing import Annotated, Literal, Self, TypeAlias

import pydantic

from interpreter_bot.setting_groups import fields

ToolApproval: TypeAlias = Literal["never", "auto", "ask", "off"]


def _check_address(url: str) -> str:
    """Check an address.

    Raises:
        ValueError: it is none, or has a secret in it.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it must begin with https:// or http://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("secrets belong in headers, token_file or oauth")
    return url


Address = Annotated[str, pydantic.AfterValidator(_check_address)]


class OAuthLogin(fields.Group):
    """OAuth login at an MCP server: of the bot (client credentials), or of people."""

    issuer: Address
    """The authorization server. The secret is sent to no other origin."""
    client_id: str = ""
    """Client id. If people log in, empty means that the bot registers itself."""
    client_secret: Annotated[str, pydantic.Field(repr=False)] = ""
    """Client secret, such as `${JIRA_SECRET}` from the bot's environment."""
    scope: str = ""
    """Scopes to request, separated by spaces. Empty means what the server suggests."""


class ToolLogins(fields.ServerGroup):
    """The page on which people log in at MCP servers whose `authorization` is `person`."""

    public_url: str = ""
    """Where people's browsers reach that page, such as `https://bot.example.org`. Without it, only
    people at this machine can log in."""
    listen: fields.ListenAddress = "127.0.0.1:8767"
    """Address and port. Put a proxy with TLS in front."""

    @pydantic.field_validator("public_url")
    @classmethod
    def _normalize_public_url(cls, url: str) -> str:
        if not url:
            return ""
        parts = urllib.parse.urlsplit(_check_address(url))
        if parts.scheme != "https":
            raise ValueError("it must begin with https://")
        if parts.path.strip("/") or parts.query or parts.fragment:
            raise ValueError("nothing may follow the host and its port")
        # As browsers write it in the header `Origin` of a form.
        return f"https://{parts.netloc.lower().removesuffix(':443')}"


class McpServer(fields.Group):
    """An MCP server whose tools are Python functions: `from tools.NAME import …`."""

    name: Annotated[str, pydantic.Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")]
    """Name of the server, and in Python of the module with its tools."""
    url: Address | None = None
    """Address of the server, such as `https://mcp.example.com/mcp`. Unset for a program."""
    command: tuple[str, ...] = ()
    """A program with its arguments, instead of `url`. The bot starts it in a sandbox when it is
    used, and ends it when it is not."""
    readable: tuple[pathlib.Path, ...] = ()
    """Directories that the program may read besides the system's: where it is installed."""
    environment: dict[str, str] = pydantic.Field(default_factory=dict, repr=False)
    """Environment of the program, such as `{ API_KEY = "${JIRA_TOKEN}" }`. `${NAME}` comes from the
    bot's environment."""
    network: bool = False
    """Give the program the machine's network."""
    memory_bytes: fields.Positive = fields.GIB
    """Memory of each process of the program, and of all together."""
    headers: dict[str, str] = pydantic.Field(default_factory=dict, repr=False)
    """Headers of each request, such as `Authorization = "Bearer ${JIRA_TOKEN}"`. `${NAME}` comes
    from the bot's environment, which code never sees."""
    token_file: pathlib.Path | None = None
    """File with a bearer token, instead of an `Authorization` header."""
    oauth: OAuthLogin | None = None
    """OAuth login. Unset for a server that takes a token or nothing."""
    authorization: Literal["bot", "person"] = "bot"
    """`bot`: one account for all. `person`: each person logs in with their own account, through a
    private link; see `tool_logins`. Without `oauth.issuer`, the server names the authorization
    server, which then has to be at a public address."""
    places: tuple[str, ...] = ()
    """Where it may be used: `slack`, `slack/T024BE7LD`, `discord/GUILD/CHANNEL`, `web`, `console`,
    … Empty means everywhere."""
    approval: ToolApproval = "ask"
    """Whether a person approves each call: `never`; `auto`: unless the tool says that it only
    reads; `ask`: always; `off`: the tools cannot be called."""
    approvals: dict[str, ToolApproval] = pydantic.Field(default_factory=dict)
    """The same for single tools, by name."""
    call_seconds: fields.Seconds = 60.0
    """Time for one call."""

    @pydantic.model_validator(mode="after")
    def _check_combination(self) -> Self:
        if (self.url is None) == (not self.command):
            raise ValueError("set either url, or the command of a program")
        if self.command and (self.headers or self.token_file or self.oauth):
            raise ValueError(
                "a program has no headers, token_file or oauth; set its environment instead"
            )
        if self.authorization == "person":
            header_names = {name.lower() for name in self.headers}
            if self.command or self.token_file or "authorization" in header_names:
                raise ValueError("if people log in, set url, and no token of the bot")
        elif self.oauth and not (self.oauth.client_id and self.oauth.client_secret):
            raise ValueError("if the bot logs in, oauth needs client_id and client_secret")
        if self.url and (self.readable or self.environment or self.network):
            raise ValueError("readable, environment and network are for programs")
        if not all(path.is_absolute() for path in self.readable):
            raise ValueError("paths in readable must be absolute")
        return self

    @pydantic.field_validator("name")
    @classmethod
    def _refuse_keyword(cls, name: str) -> str:
        if keyword.iskeyword(name):
            raise ValueError("that is a keyword of Python")
        return name

    def approval_of(self, tool: str, *, is_read_only: bool) -> ToolApproval:
        """Return whether a call of a tool needs a person: never, ask or off."""
        approval = self.approvals.get(tool, self.approval)
        if approval == "auto":
            return "never" if is_read_only else "ask"
        return approval
