"""Tools and data of other systems that code calls: logins, approvals, refusals."""

from __future__ import annotations

from typing import Final

MALFORMED: Final = "This is not a valid call of a tool."
RESTARTED: Final = (
    "The bot was restarted during this call, so it may or may not have been carried out."
)
STOPPED: Final = "It was stopped."
WITH_YOUR_ACCOUNT: Final = "# It is called with your own account."
OTHERS_RAN_CODE: Final = (
    " Other people ran code in this conversation, and it may be their code that calls this tool."
)
STATEMENT_TOO_LONG: Final = "The statement is too long for a person to approve it."


def too_many_calls(limit: int) -> str:
    return f"The code called tools more than {limit} times in this turn."


def not_approved(server: str, tool: str) -> str:
    return f"The call to {server}'s tool {tool} was not approved."


def edited(code: str) -> str:
    return f"The call was not approved as it is. The person wants this instead:\n{code}"


def approval(tool: str, server: str) -> str:
    return f"# Your code wants to call the tool {tool} of {server}."


def login_needed(server: str, *, link_sent: bool) -> str:
    what_next = (
        "A link to log in was just sent to that person only. Nothing was called: ask again after "
        "the login."
        if link_sent
        else f"The command `connect {server}` sends a link that nobody else sees. Nothing was "
        "called."
    )
    return (
        f"{server} is used with each person's own account, and the person who asked has not logged "
        f"in. {what_next}"
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


def statement(connection: str) -> str:
    return f"-- To be run on {connection}:"
