"""The web page: its requests, uploads, downloads, notebooks and links."""

from __future__ import annotations

from typing import Final

from interpreter_bot.text import quantities

WRITE_SOMETHING: Final = "Please write something first."
NO_MODEL: Final = (
    "There is no model to answer this. Press Python to run your own code. To set up a model, enter "
    "a key here, or run “interpreter-bot setup” where the bot runs."
)
NO_PANEL: Final = "There is nothing to show under that name."
NO_NAME: Final = "A name cannot be empty."
NO_TABLE: Final = "The table could not be read."
NOT_A_MODEL: Final = "Enter a key and an address as text."
OUTPUT_LEFT_OUT: Final = "Earlier output is left out while this runs."
LINK_EXPIRED: Final = "This link has expired. Ask for a new one in the chat."
FROM_OTHER_PAGE: Final = "That request came from another page."
OTHER_ORIGIN: Final = (
    "Requests from other pages are refused. If this is your page behind a proxy with TLS, the "
    "proxy has to send X-Forwarded-Proto."
)
OTHER_ADDRESS: Final = "This address is not served here."
NO_TOKEN: Final = "Open the page with the full address, including its token."
REQUEST_CUT_OFF: Final = "The request did not arrive completely."
TOO_MANY_DOWNLOADS: Final = (
    "Too many downloads of this conversation are running. Try again when one is done."
)
UPLOAD_BROKE_OFF: Final = "The upload broke off."
NOT_SHOWN: Final = "Files of this kind are not shown here."
NOT_A_PICTURE: Final = "That is not a picture."
PAGE_TOO_LARGE: Final = "The page is too large to be shown. Download it instead."
FILE_DELETED: Final = "It has been deleted."
NO_FILES_YET: Final = "There are no files yet."
INTERACTIVE_OUTPUT: Final = "This is interactive: see it in the conversation or in its notebook."
PICTURE_LEFT_OUT: Final = "This picture is not in this file."
ARCHIVE_FULL: Final = "With this file, the archive would exceed the limit for all files."
FILE_SHRANK: Final = "It shrank while it was packed, so only its beginning is here."
LOGIN_PAGE: Final = "The login page"
OTHER_LOGIN_PORT: Final = "Set another port in tool_logins.listen."
AGREE_BUTTON: Final = "Let the bot use it"
LOGIN_BUTTON: Final = "Continue to log in"
LOGGED_IN: Final = "Logged in"
OTHER_PORT: Final = "Is another bot running? To use another port, set INTERPRETER_BOT_WEB__LISTEN."
NOTEBOOK_RUNS: Final = "A notebook is already running in this conversation."


def log_in_at(server: str) -> str:
    return f"Log in at {server}"


def agree_question(server: str) -> str:
    return f"Let the bot use {server}?"


def too_large(limit_bytes: int) -> str:
    return f"The file is too large: the limit is {quantities.size(limit_bytes)}."


def too_long(characters: int, limit: int) -> str:
    return (
        f"That has {characters:,} characters, and the limit is {limit:,}. "
        "Please save it as a file and attach it."
    )


def no_code(name: str) -> str:
    return f"{name} has no code in it."


def too_many_cells(name: str, count: int, limit: int) -> str:
    return f"{name} has {count:,} cells of code, and the limit is {limit:,}."


def cells_skipped(skipped: int, count: int) -> str:
    were = "was" if skipped == 1 else "were"
    return f"{skipped:,} of {count:,} cells {were} not run."


def not_served(page: str, address: str, reason: object, way_out: str) -> str:
    return f"{page} cannot be served at {address}: {reason}. {way_out}"


def bad_token_file(file: object) -> str:
    return (
        f"{file} holds no token of 32 to 200 letters, digits, - and _. Remove it, and a new one is "
        "made."
    )
