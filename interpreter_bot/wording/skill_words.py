"""Skills that the operator accepts: why one cannot be read or used."""

from __future__ import annotations

from typing import Final

from interpreter_bot.text import quantities

TOO_DEEP: Final = "Its directories are nested too deeply."


def unknown(name: str) -> str:
    return f"There is no skill {name!r} in skills.directories."


def not_accepted(name: str) -> str:
    return f"The skill {name!r} is not accepted."


def accepted_unusable(reason: object) -> str:
    return f"The accepted skills cannot be used: {reason}."


def unreadable_directory(directory: object, reason: object) -> str:
    return f"{directory} cannot be read: {reason}."


def too_large(files: int, size_bytes: int) -> str:
    return f"It has more than {files} files or {quantities.size(size_bytes)}."


def unreadable(reason: object) -> str:
    return f"It cannot be read: {reason}."


def other_name(directory: str) -> str:
    return f"Its name must be that of its directory, {directory!r}."


def not_a_plain_file(path: str) -> str:
    return (
        f"{path} is a link or a device, or has an unprintable name. Only plain files are allowed."
    )


def no_front_matter(file: str) -> str:
    return f"{file} must begin with front matter between lines of ---."


def not_yaml(file: str) -> str:
    return f"The front matter of {file} is not valid YAML."


def no_fields(file: str) -> str:
    return f"The front matter of {file} has no fields."


def bad_name(limit: int) -> str:
    return f"Its name must have 1 to {limit} lower-case letters, digits and single hyphens."


def bad_description(limit: int) -> str:
    return f"Its description must have 1 to {limit} characters."
