"""Tools and data of other systems that code calls: logins, approvals, refusals."""

from __future__ import annotations

from typing import Final

CALL_MALFORMED: Final = "This tool call is not valid, or it is too large."
CALL_CUT_BY_RESTART: Final = (
    "The bot was restarted during this call, so it may or may not have been carried out."
)
CALL_STOPPED: Final = "It was stopped."
WITH_YOUR_ACCOUNT: Final = "# The call uses your own account."
OTHERS_RAN_CODE: Final = (
    " Other people ran code in this conversation, and it may be their code that calls this tool."
)
STATEMENT_TOO_LONG: Final = "The statement is too long for a person to approve it."


def too_many_calls(limit: int) -> str:
    return f"The code called tools more than {limit} times in this turn."


def not_approved(server: str, tool: str) -> str:
    return f"The call to {server}'s tool {tool} was not approved."


def edited_by_person(code: str) -> str:
    return f"The call was not approved. The person wants this instead:\n{code}"


def approval_heading(tool: str, server: str) -> str:
    return f"# Your code wants to call the tool {tool} of {server}."


def login_needed(server: str) -> str:
    return (
        f"{server} is used with each person's own account, and the person who asked has not logged "
        "in. Nothing was called. They get a link to log in that nobody else sees; if none "
        f"arrives, the command `connect {server}` sends one. Ask again after the login."
    )


def login_link(server: str, link: str) -> str:
    return (
        f"To let the bot use {server} with your account, open this within ten minutes. It is for "
        f"you alone: {link}"
    )


def no_logins(server: str) -> str:
    return f"No tool server called {server!r} asks people to log in here."


def logged_out(server: str, *, was_logged_in: bool) -> str:
    if not was_logged_in:
        return f"You were not logged in to {server}."
    return f"You are logged out of {server}, and your login is deleted from the bot."


def statement_refused(connection: str) -> str:
    return f"This statement was not approved to run on {connection}."


def statement_heading(connection: str) -> str:
    return f"-- To run on {connection}:"


# Servers of tools, and logins there.
HIDDEN_CHARACTERS: Final = "it has invisible characters"
TOO_MANY_PEOPLE: Final = "Too many people are using tools right now. Try again in a minute."
LINK_EXPIRED: Final = (
    "This link was already used, or has expired after ten minutes. Ask the bot for a new one."
)
OTHER_SERVERS_ANSWER: Final = (
    "This answer came from another server than the one you logged in to, so it was refused."
)
MISSING_LOGIN_SERVER: Final = "its login server cannot be found."
OTHER_LOGIN_SERVER: Final = "the server names another login server than the bot's settings."
NO_PKCE: Final = "it does not support PKCE with S256."
UNSAFE_ADDRESS: Final = "it names an address that is not safe."
REGISTER_BY_HAND: Final = (
    "the bot has to be registered there by hand. Ask whoever runs this bot to set `oauth` of the "
    "server."
)
OTHER_RESOURCE: Final = "the server names another address as its own."
BOT_REFUSED: Final = "it refuses the bot."


def unreachable(server: str) -> str:
    return f"The tools of {server} cannot be reached right now. Try again in a minute."


def no_program_sandbox(server: str, reason: str) -> str:
    return (
        f"The tools of {server} cannot be used: it is a program, and there is no sandbox for "
        f"programs here ({reason}). `interpreter-bot doctor` says how to get a stronger sandbox."
    )


def call_too_slow(server: str, seconds: float) -> str:
    return f"{server} did not answer within {seconds:.0f} seconds, so the call was cancelled."


def connection_broke_off(server: str) -> str:
    return (
        f"The connection to {server} broke during the call, so it may or may not have been "
        "carried out."
    )


def call_refused(server: str, reason: str) -> str:
    return f"{server} refused the call: {reason}"


def no_server(server: str) -> str:
    return f"There is no tool server {server!r} here."


def no_tool(server: str, tool: str) -> str:
    return f"{server} has no tool {tool!r} that can be used here."


def not_accepted(server: str, tool: str) -> str:
    return (
        f"{server}'s tool {tool} is off, because it is new or has changed. Ask whoever runs this "
        "bot to accept it."
    )


def tool_switched_off(server: str, tool: str) -> str:
    return f"{server}'s tool {tool} is switched off in the bot's settings."


def not_listed(server: str) -> str:
    return f"The tools of {server} are listed once somebody has logged in there."


def no_login_page(server: str) -> str:
    return (
        f"Nobody can log in to {server} right now, because the bot does not serve the login page."
    )


def no_longer_set_up(server: str) -> str:
    return f"Logging in to {server} is no longer set up here."


def login_cancelled(server: str) -> str:
    return f"The login to {server} was cancelled."


def needs_login(server: str) -> str:
    return f"You have to log in to {server} first."


def login_unusable(server: str, reason: str) -> str:
    return f"The login of {server} cannot be used: {reason}"


def login_unreachable(server: str) -> str:
    return f"The login server of {server} cannot be reached right now. Try again in a minute."


# What the operator reads: definitions of tools, and settings of `mcp_servers`.


def not_listed_yet(server: str) -> str:
    return f"{server} has not listed its tools yet. Run `interpreter-bot tools`."


def only_first(limit: int) -> str:
    return f"Only the first {limit} tools are read."


def bad_tool_name(number: int) -> str:
    return f"The name of tool {number} is not one that MCP allows."


def definition_too_long(tool: str) -> str:
    return f"The definition of {tool} is too long."


def too_many_parameters(tool: str, limit: int) -> str:
    return f"{tool} has more than {limit} parameters."


def same_name(tool: str, other_tool: str) -> str:
    return f"{tool} and {other_tool} have the same name in Python."


def mentions_other_tools(tools: str) -> str:
    return f"it mentions tools of another server: {tools}"


def bad_setting(server: str, flaw: str) -> str:
    return f"mcp_servers, {server}: {flaw}."


def bad_header(name: str, fault: str) -> str:
    return f"the header {name} {fault}"


def bad_token(file: object, fault: str) -> str:
    return f"the token in {file} {fault}"


def same_servers(names: str) -> str:
    return f"mcp_servers: several are called {names}."


# Agents that use the bot over MCP.
BAD_CLIENT_NAME: Final = (
    "A client's name has at most 32 of the characters a-z, 0-9 and -, such as ci-1."
)
TOKEN_NEEDED: Final = "A token is needed."
OTHER_MCP_PORT: Final = "Set another port in mcp.listen."


def client_exists(name: str) -> str:
    return f"There is already a client {name}. Remove it first to get a new token."


def no_client(name: str) -> str:
    return f"There is no client {name}."
