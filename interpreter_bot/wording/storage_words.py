"""What the bot stores: its database, its keys, and private files."""

from __future__ import annotations

from typing import Final

DATABASE_DOWN: Final = "The database cannot be used right now. Try again in a minute."
DATABASE_OF_OTHER_VERSION: Final = (
    "The database was made by another version of the bot, perhaps a development version, and this "
    "version cannot use it. Start that version again, or begin with a new database: move the old "
    "one away, or set another store.url or paths.data."
)
NOT_A_URL: Final = "The database's address (store.url) is not a URL."
NOT_A_FILE: Final = "An SQLite database must be a plain file (store.url)."
PICTURE_NOT_KEPT: Final = "A picture could not be stored."
OUTPUT_NOT_KEPT: Final = "What was shown here could not be stored."
CONVERSATION_GONE: Final = "This conversation was deleted in the meantime."


def database_unusable(database: str, reason: object) -> str:
    return f"The database {database} cannot be used: {reason}."


def other_database(scheme: str) -> str:
    return f"The database's address (store.url) begins with {scheme!r}. Use sqlite or postgresql."


def unknown_options(names: str) -> str:
    return f"The database's address (store.url) has unknown options: {names}."


def not_keys(place: str) -> str:
    return f"{place} must hold Fernet keys and nothing else, one a line."


def no_key(place: str) -> str:
    return (
        f"{place} is there but holds no key. Restore what was in it. If nothing was encrypted yet, "
        "remove it, and a new key is made."
    )


def unknown_key(place: str) -> str:
    return (
        f"Stored secrets were encrypted with a key that {place} does not have. Add it there, below "
        "the others. If it is lost, the secrets are lost too: install the bot again in Slack's "
        "workspaces, and enter keys and tokens again."
    )


def delete_if_key_is_lost(file: object) -> str:
    return f"If the key is lost, delete {file} before you enter them again."


def not_private(file: object) -> str:
    return f"Other users can read {file}. Run chmod 600 on it."


def file_too_large(file: object) -> str:
    return f"{file} is larger than 1 MiB. Put only the key into it."


def file_unusable(file: object, reason: object) -> str:
    return f"{file} cannot be used: {reason}."


def credentials_damaged(file: object) -> str:
    return f"{file} is damaged. Remove it, and enter keys and tokens again."
