"""Files: too large, gone, not fetched, not sent, left out."""

from __future__ import annotations

from typing import Final

from interpreter_bot.text import quantities

NO_FILES: Final = "There are no files in /mnt/data."
NOT_ON_DISCORD: Final = "Discord no longer has this file."
LARGER_THAN_ANNOUNCED: Final = "The file is larger than Discord said."
NOT_READ_FROM_DISCORD: Final = "The file could not be read from Discord."
DOWNLOAD_BROKE_OFF: Final = "The download from Discord broke off."
EMPTY_FILE: Final = "it is empty, and Slack does not accept empty files."
NOT_SHOWN_BY_SLACK: Final = "Slack took it and does not show it."
NO_PICTURES_FOR_SLACK: Final = "Slack does not accept these files as pictures."
NO_ATTACHMENTS: Final = (
    "⚠️ I am not allowed to attach files in this channel. Use `/interpreter files` with a name to "
    "get one, or `/interpreter notebook` to get the whole conversation. An admin can let me attach "
    "files."
)
TOO_LARGE_FOR_DISCORD: Final = "⚠️ The file is too large for Discord. It stays in /mnt/data."
NOTEBOOK_FOLLOWS: Final = "This conversation as a Jupyter notebook:"
SENT_AS_FILE: Final = "That is too long to show here, so I sent it to you as a file."
UPLOAD_LABEL: Final = "Files for /mnt/data"
NO_FILE_PERMISSION: Final = "I'm not allowed to read it. The app may lack the permission files:read"
TOO_MANY_REDIRECTS: Final = "too many redirects"
SLACK_ACCESS_REASONS: Final = {
    "access_denied": "I am not allowed to see it",
    "file_not_found": "it was deleted",
    "hidden_by_limit": "this workspace's plan hides it",
    "tombstone": "it was deleted",
}
MACHINE_DISK_FULL: Final = "The machine's disk is nearly full."
BOT_DISK_FULL: Final = "The bot's disk is full."
EARLIER_FILES_GONE: Final = "Files and variables of that time are not kept, so nothing was changed."
COPY_DISK_FULL: Final = "The machine's disk is nearly full, so no files are copied."
COPY_TOO_SLOW: Final = "Copying the files takes too long."
COPY_FAILED: Final = "They could not be copied."
CHANGED_MEANWHILE: Final = "it changed meanwhile"
CHANGED_SINCE: Final = "it was changed or deleted since."
UNKNOWN_CHANGES: Final = "The bot no longer knows which files were there before."
IS_LINK: Final = "it is a link"
NOT_REGULAR: Final = "it is not a regular file"
SEVERAL_NAMES: Final = "it has several names (hard links)"
WAS_DELETED: Final = "it is deleted"
FOLDER_UNREADABLE: Final = "its folder cannot be read"
NESTED_TOO_DEEPLY: Final = "it is nested too deeply"
TOO_LARGE_TOGETHER: Final = "Together, the files of one cell are too large."
UNSEEN_FILES: Final = "There are too many files to check all of them, so some may be missing here."
NONE_FETCHED: Final = "None of the files could be fetched. Send them again."


def none_returned(error: object) -> str:
    return f"No files are returned: {error}"


def left_out(name: str, reason: object) -> str:
    """Return that a file was left out; `reason` is a sentence about the file, or its cause."""
    text = str(reason).removesuffix(".")
    return f"{text}." if text.startswith(f"{name} ") else f"{name} was left out: {text}."


def too_many(count: int, limit: int) -> str:
    return f"Only {limit} of {count:,} changed files are returned."


def not_saved(reason: object) -> str:
    return f"it cannot be saved ({reason})"


def over_upload_limit(limit_bytes: int) -> str:
    return f"It is too large: the limit is {quantities.size(limit_bytes)} a file."


def files_made(names: str) -> str:
    return f"Files were made: {names}."


def renamed(name: str) -> str:
    return f"An attachment is called {name}, because its own name cannot be used."


def over_send_limit(limit_bytes: int) -> str:
    size = quantities.size(limit_bytes)
    return f"The file is larger than the {size} allowed here. It stays in /mnt/data."


def too_large(name: str, limit_bytes: int) -> str:
    return f"{name} is larger than the {quantities.size(limit_bytes)} allowed."


def too_large_to_attach(name: str, size_bytes: int, limit_bytes: int) -> str:
    size, limit = quantities.size(size_bytes), quantities.size(limit_bytes)
    return f"⚠️ {name} ({size}) is too large: the limit here is {limit}."


def too_large_to_send(name: str, size_bytes: int, reason: str) -> str:
    return (
        f"⚠️ {name} ({quantities.size(size_bytes)}) is too large to send here: {reason}. It stays "
        "in /mnt/data. Ask for part of it, or for a smaller version."
    )


def compressed_too_large(size_bytes: int, limit_bytes: int) -> str:
    size, limit = quantities.size(size_bytes), quantities.size(limit_bytes)
    return f"it is {size} compressed, and the limit is {limit}"


def too_long_to_run(name: str) -> str:
    return f"{name} is too long to run."


def outside_slack(name: str) -> str:
    return f"{name} is hosted outside Slack, so I can't fetch it."


def not_on_slack(name: str) -> str:
    return f"{name} is not a Slack file."


def not_fetched(name: str, reason: str = "") -> str:
    """Return that a file could not be fetched; the reason has no full stop."""
    return f"{name} could not be fetched{f': {reason}' if reason else ' from Slack'}."


def answered_status(status: int) -> str:
    return f"Slack answered {status}"


def fetched_partly(size_bytes: int) -> str:
    return f"only {quantities.size(size_bytes)} of it arrived"


def not_sent(name: str, reason: object) -> str:
    return f"{name} could not be sent: {reason}"


def copy_too_large(limit: str) -> str:
    return f"The files take more than {limit}, so they are not copied."


def copy_too_many(limit: int) -> str:
    return f"There are more than {limit:,} files and folders, so they are not copied."


def not_copied(name: str, reason: object) -> str:
    return f"{name} cannot be copied: {reason}."


def too_large_for_one(name: str, limit_bytes: int) -> str:
    return f"{name} is larger than the {quantities.size(limit_bytes)} allowed for one file."


def too_many_files(limit: int) -> str:
    return (
        f"/mnt/data already holds the {limit} files and folders that are allowed. Delete some, or "
        "reset the session and its files."
    )


def does_not_fit(name: str, limit_bytes: int) -> str:
    return (
        f"{name} does not fit: /mnt/data holds {quantities.size(limit_bytes)}. Delete files, or "
        "reset the session and its files."
    )


def mostly_empty(name: str) -> str:
    return f"{name} is almost entirely empty space (a sparse file)."


def name_taken(name: str) -> str:
    return f"There is already a file or folder called {name}."
